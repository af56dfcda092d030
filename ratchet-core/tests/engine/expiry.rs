//! Tests that jobs that have not begun in time end, and never run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{AttemptOutcome, Claim, Outcome, PauseRequest, PauseScope, Settlement};
use ratchet_core::store::{Layered, QueueStore, Store, StoreLayer};
use ratchet_core::{
    Condition, JobId, JobState, MemoryStore, Name, NewJob, NodeHook, Ratchet, Result, RetryPolicy,
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
