//! Tests that jobs that have not begun in time end, and never run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{
    AttemptOutcome, Claim, Detail, Outcome, PauseRequest, PauseScope, Report, Reported, Settlement,
};
use ratchet_core::store::{JobStore, Layered, QueueStore, Store, StoreLayer};
use ratchet_core::{
    Condition, JobError, JobId, JobState, MemoryStore, Name, NewJob, NodeHook, Ratchet, Result,
    RetryPolicy, StoreError, StoreErrorKind,
};
use tokio::time::sleep;

use crate::kit::{Scripted, Started, World};

const SECOND: Duration = Duration::from_secs(1);

/// A store whose passes end no expired job.
#[derive(Debug)]
struct WithoutPasses(MemoryStore);

#[async_trait]
impl StoreLayer for WithoutPasses {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn expire_jobs(&self, _limit: usize) -> Result<Vec<JobId>> {
        Ok(Vec::new())
    }
}

/// Counts the bodies that begin, and the claims that end as expired.
#[derive(Clone, Default)]
struct Counts {
    begun: Arc<AtomicUsize>,
    expired: Arc<AtomicUsize>,
}

impl NodeHook for Counts {
    fn job_started(&self, _claim: &Claim) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn job_ended(&self, _claim: &Claim, end: &Settlement) {
        if end.outcome == Outcome::Expired {
            self.expired.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_claimed_after_its_expiry_ends_without_running() {
    let world = World::new();
    let counts = Counts::default();
    let job = || world.job("late", |_| async { Ok(()) });
    let late = world.enqueue(job().expires_in(SECOND)).await;
    let after = job().after(late, Condition::Ended);
    let after = world.enqueue(after).await;
    sleep(SECOND).await;
    let store = Layered::new(WithoutPasses(world.store.clone()));
    let node = Ratchet::builder(Arc::new(store))
        .register::<Scripted>()
        .state(world.scripts.clone())
        .hook(counts.clone());
    let node = Started::new(node.build().unwrap());
    let ended = world.ended(late).await;
    assert_eq!((ended.state, ended.attempts), (JobState::Cancelled, 0));
    assert!(ended.is_expired());
    let history = world.store_history(late).await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].outcome, AttemptOutcome::Expired);
    // Its child runs.
    assert_eq!(world.ended(after).await.state, JobState::Succeeded);
    node.stop().await.unwrap();
    assert_eq!(counts.begun.load(Ordering::SeqCst), 1);
    assert_eq!(counts.expired.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn jobs_expire_that_no_node_can_claim() {
    let world = World::new();
    let node = world.start();
    let scope = PauseScope::Queue(Name::new("queue", "paused").unwrap());
    world.store.pause(&PauseRequest::new(scope)).await.unwrap();
    let in_paused = world.job("paused", |_| async { Ok(()) }).queue("paused");
    let unknown = NewJob::new("unknown", &1);
    for job in [in_paused, unknown] {
        let id = world.enqueue(job.expires_in(10 * SECOND)).await;
        let ended = world.ended(id).await;
        assert!(ended.is_expired());
        let late = ended.finished_at.unwrap() - ended.expires_at.unwrap();
        assert!(late.num_seconds() < 10, "{late}");
    }
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retry_runs_however_late_it_is() {
    let world = World::new();
    let node = world.start();
    let job = world.job("flaky", |ctx| async move {
        match ctx.attempt() {
            1 => Err("not yet".into()),
            _ => Ok(()),
        }
    });
    let job = job.retry(RetryPolicy::fixed(2, 60 * SECOND));
    let id = world.enqueue(job.expires_in(10 * SECOND)).await;
    let ended = world.ended(id).await;
    assert_eq!((ended.state, ended.claim_seq), (JobState::Succeeded, 2));
    assert_eq!(ended.expires_at, None);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_put_off_without_running_expires() {
    let world = World::new();
    let node = world.start();
    // The node claims the job and postpones it again and again, because it cannot read the payload.
    let job = world.job("newer", |_| async { Ok(()) }).payload_version(9);
    let id = world.enqueue(job.expires_in(10 * SECOND)).await;
    let ended = world.ended(id).await;
    assert!(ended.is_expired());
    assert!(ended.claim_seq > 1, "{}", ended.claim_seq);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_body_snoozes_never_expires() {
    let world = World::new();
    let node = world.start();
    let runs = Arc::new(AtomicUsize::new(0));
    let job = world.job("waiting", move |_| {
        let run = runs.fetch_add(1, Ordering::SeqCst);
        async move {
            match run {
                0 => Err(JobError::snooze(60 * SECOND)),
                _ => Ok(()),
            }
        }
    });
    let id = world.enqueue(job.expires_in(10 * SECOND)).await;
    let ended = world.ended(id).await;
    assert_eq!((ended.state, ended.claim_seq), (JobState::Succeeded, 2));
    assert_eq!(ended.expires_at, None);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_store_knows_that_a_job_has_begun_before_its_body_runs() {
    let world = World::new();
    let node = world.start();
    let store = world.store.clone();
    let job = world.job("reads", move |ctx| {
        let store = store.clone();
        async move {
            let read = store.get(&[ctx.job_id()], Detail::Outline).await?.remove(0);
            Ok(read.unwrap().expires_at.is_none())
        }
    });
    let id = world.enqueue(job.expires_in(10 * SECOND)).await;
    let ended = world.ended(id).await;
    assert_eq!(ended.result.unwrap().as_str(), "true");
    node.stop().await.unwrap();
}

/// A store whose reports take a second, and fail if they contain the job that is locked.
#[derive(Debug)]
struct SlowReports {
    inner: MemoryStore,
    locked: JobId,
    /// How many reports each call has.
    calls: Arc<Mutex<Vec<usize>>>,
}

#[async_trait]
impl StoreLayer for SlowReports {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        self.calls.lock().unwrap().push(reports.len());
        sleep(SECOND).await;
        match reports.iter().any(|report| report.token.job == self.locked) {
            true => Err(StoreError::new(StoreErrorKind::Timeout, "report")),
            false => self.inner.report(reports).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_begin_together_and_only_one_whose_report_fails_does_not() {
    let world = World::new();
    let counts = Counts::default();
    let job = || world.job("fleeting", |_| async { Ok(()) });
    let mut jobs = Vec::new();
    for _ in 0..10 {
        jobs.push(world.enqueue(job().expires_in(3_600 * SECOND)).await);
    }
    let locked = jobs.pop().unwrap();
    let calls = Arc::default();
    let store = SlowReports {
        inner: world.store.clone(),
        locked,
        calls: Arc::clone(&calls),
    };
    let node = Ratchet::builder(Arc::new(Layered::new(store)))
        .register::<Scripted>()
        .state(world.scripts.clone())
        .concurrency(10)
        .hook(counts.clone());
    let node = Started::new(node.build().unwrap());
    for id in jobs {
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
    // The second call reports all bodies that waited for the first one.
    assert_eq!(calls.lock().unwrap()[..3], [1, 9, 1]);
    node.stop().await.unwrap();
    assert_eq!(counts.begun.load(Ordering::SeqCst), 9);
    // The claim was handed back, so the job still expires.
    let handed_back = world.read(locked).await;
    assert_eq!(handed_back.state, JobState::Pending);
    assert!(handed_back.expires_at.is_some());
    let history = world.store_history(locked).await;
    assert_eq!(history[0].outcome, AttemptOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_expires_during_its_report_does_not_run() {
    let world = World::new();
    let counts = Counts::default();
    let job = world.job("late", |_| async { Ok(()) });
    let id = world.enqueue(job.expires_in(SECOND / 2)).await;
    let store = SlowReports {
        inner: world.store.clone(),
        locked: JobId::new(),
        calls: Arc::default(),
    };
    let node = Ratchet::builder(Arc::new(Layered::new(store)))
        .register::<Scripted>()
        .state(world.scripts.clone())
        .hook(counts.clone());
    let node = Started::new(node.build().unwrap());
    assert_eq!(world.ended(id).await.state, JobState::Cancelled);
    node.stop().await.unwrap();
    assert_eq!(counts.begun.load(Ordering::SeqCst), 0);
    assert_eq!(counts.expired.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_without_an_expiry_needs_no_report_to_begin() {
    let world = World::new();
    let id = world
        .enqueue(world.job("plain", |_| async { Ok(()) }))
        .await;
    let calls = Arc::default();
    let store = SlowReports {
        inner: world.store.clone(),
        locked: id,
        calls: Arc::clone(&calls),
    };
    let node = Ratchet::builder(Arc::new(Layered::new(store)))
        .register::<Scripted>()
        .state(world.scripts.clone());
    let node = Started::new(node.build().unwrap());
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    node.stop().await.unwrap();
    assert_eq!(*calls.lock().unwrap(), Vec::<usize>::new());
}
