//! Tests of `drain` and `run_job`, which run stored jobs as a node does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::memory::{Fault, ManualClock};
use ratchet_core::model::{AttemptOutcome, Claim, NodeStatus, Settlement};
use ratchet_core::testing::{
    TestingError, advance_to_next, assert_enqueued, drain, memory_store, run_job,
};
use ratchet_core::time::Timestamp;
use ratchet_core::{
    Job, JobContext, JobId, JobResult, JobState, MemoryStore, NewJob, NodeHook, Ratchet, Recurring,
    Requires, RunError,
};
use serde::{Deserialize, Serialize};

use super::app::{Mail, Tick, cat, node};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_drain_runs_what_is_due_and_counts_how_it_ended() {
    let (store, clock) = memory_store();
    let node = node(store);
    let client = node.client();
    let jobs = [
        cat(5).into_job(),
        cat(0).into_job(),
        NewJob::new("other", &()),
        cat(7).into_job().delay(MINUTE),
        cat(9).into_job().capability("gpu"),
    ];
    client.enqueue_all(&jobs).await.unwrap();
    let drained = drain(&node).await.unwrap();
    // The job with width 5 succeeds and enqueues a mail, whose first attempt fails and is retried.
    // The job with width 0 fails.
    assert_eq!(
        (drained.succeeded, drained.failed, drained.retried),
        (1, 1, 1)
    );
    assert_eq!(drained.total(), 3);
    assert_eq!(drain(&node).await.unwrap().total(), 0);
    let stats = node.stats();
    assert_eq!((stats.claimed, stats.settled, stats.finished), (3, 3, 2));

    clock.advance(MINUTE);
    let drained = drain(&node).queue("mail").await.unwrap();
    assert_eq!((drained.retried, drained.total()), (1, 1));
    let drained = drain(&node).await.unwrap();
    assert_eq!((drained.succeeded, drained.retried), (1, 1));
    for (job, state) in jobs.iter().zip([
        JobState::Succeeded,
        JobState::Failed,
        JobState::Pending,
        JobState::Succeeded,
        JobState::Pending,
    ]) {
        assert_eq!(client.job(job.id()).await.unwrap().unwrap().state, state);
    }
    let nodes = client.nodes().await.unwrap();
    assert!(
        nodes.iter().all(|node| node.status == NodeStatus::Left),
        "{nodes:?}"
    );
}

/// A job whose body advances the clock by three minutes.
#[derive(Serialize, Deserialize)]
struct Slow;

type Began = Arc<Mutex<Vec<Timestamp>>>;

impl Job for Slow {
    const KIND: &'static str = "slow";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult {
        let clock = ctx.state::<ManualClock>();
        ctx.state::<Began>().lock().unwrap().push(clock.now());
        clock.advance(3 * MINUTE);
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<ManualClock>().state::<Began>()
    }
}

#[tokio::test]
async fn a_drain_sets_no_clock_back() {
    let (store, clock) = memory_store();
    let began = Began::default();
    let node = Ratchet::builder(store)
        .register::<Slow>()
        .state(clock.clone())
        .state(Arc::clone(&began))
        .build()
        .unwrap();
    let every = Recurring::every(MINUTE).job(Slow.into_job());
    let recurring = node.client().recurring();
    recurring.put(every.named("slow")).await.unwrap();
    // The last body begins before the 20 minutes have passed, and ends after them.
    let end = clock.now() + 20 * MINUTE;
    drain(&node).through(&clock, 20 * MINUTE).await.unwrap();
    assert!(clock.now() > end, "{}", clock.now());
    let began = began.lock().unwrap();
    assert!(began.len() > 2, "{began:?}");
    let passed = began.windows(2).map(|two| (two[1] - two[0]).num_minutes());
    assert!(passed.clone().all(|minutes| minutes >= 3), "{began:?}");
}

#[tokio::test]
async fn a_drain_goes_through_time_and_stops_at_the_end_of_the_span() {
    let (store, clock) = memory_store();
    let node = node(store);
    let began = clock.now();
    let mail = node
        .enqueue(Mail("a".to_owned()).into_job())
        .await
        .unwrap()
        .id();
    let later = node
        .enqueue(cat(1).into_job().delay(10 * MINUTE))
        .await
        .unwrap()
        .id();
    let drained = drain(&node).through(&clock, 5 * MINUTE).await.unwrap();
    assert_eq!((drained.retried, drained.succeeded), (2, 1));
    assert_eq!((clock.now() - began).num_seconds(), 300);
    let mail = node.client().job(mail).await.unwrap().unwrap();
    // Each attempt ran at its due time.
    let finished = mail.finished_at.unwrap() - began;
    assert_eq!(
        (mail.state, finished.num_seconds()),
        (JobState::Succeeded, 120)
    );
    let later = node.client().job(later).await.unwrap().unwrap();
    assert_eq!(later.state, JobState::Pending);
}

#[tokio::test]
async fn a_job_that_enqueues_itself_comes_to_the_limit_and_loses_nothing() {
    let (store, _clock) = memory_store();
    let node = node(store);
    node.enqueue(Tick.into_job()).await.unwrap();
    let error = drain(&node).limit(7).await.unwrap_err();
    let TestingError::Limit { drained } = &error else {
        panic!("{error}");
    };
    assert_eq!((drained.succeeded, drained.total()), (7, 7));
    assert!(
        error
            .to_string()
            .starts_with("a job is still due after the limit of 7 jobs was reached"),
        "{error}"
    );
    let left = assert_enqueued!(node, Tick, count = 1, state = JobState::Pending);
    assert_eq!(left[0].attempts, 0);
    assert!(drain(&node).limit(3).await.is_err());
}

#[tokio::test]
async fn as_many_jobs_as_the_limit_are_fine() {
    let (store, _clock) = memory_store();
    let node = node(store);
    for width in 1..=3 {
        node.enqueue(cat(width).into_job()).await.unwrap();
    }
    let drained = drain(&node).queue("default").limit(3).await.unwrap();
    assert_eq!(drained.succeeded, 3);
}

#[tokio::test]
async fn one_stored_job_is_run_and_its_neighbours_are_not() {
    let (store, clock) = memory_store();
    let node = node(store);
    let mut ids = Vec::new();
    for width in 1..=9 {
        ids.push(node.enqueue(cat(width).into_job()).await.unwrap().id());
    }
    let ran = run_job(&node, ids[5]).await.unwrap();
    assert_eq!((ran.job.id, ran.job.state), (ids[5], JobState::Succeeded));
    assert_eq!(ran.job.result.unwrap().decode::<u32>().unwrap(), 6);
    assert_eq!(ran.job.progress.unwrap().message, "reading cat.png");
    assert_eq!(ran.attempt.unwrap().outcome, AttemptOutcome::Succeeded);
    for (place, id) in ids.iter().enumerate().filter(|(place, _)| *place != 5) {
        let job = node.client().job(*id).await.unwrap().unwrap();
        assert_eq!(
            (job.state, job.attempts),
            (JobState::Pending, 0),
            "job {place}"
        );
    }
    let mail = assert_enqueued!(node, Mail(_), count = 1)[0].id;
    let ran = run_job(&node, mail).await.unwrap();
    assert_eq!(
        ran.attempt.unwrap().error.as_deref(),
        Some("the server is busy")
    );
    assert_eq!((ran.job.state, ran.job.attempts), (JobState::Pending, 1));

    // The next calls fail: for a job that is not due yet, for one that is not stored, and for one
    // whose kind this node does not run.
    let error = run_job(&node, mail).await.unwrap_err();
    assert!(
        matches!(&error, TestingError::NotRunnable { job } if job.id == mail),
        "{error}"
    );
    assert!(
        error.to_string().contains("it is pending, due at"),
        "{error}"
    );
    clock.advance(MINUTE);
    assert_eq!(run_job(&node, mail).await.unwrap().job.attempts, 2);
    let missing = JobId::new();
    let error = run_job(&node, missing).await.unwrap_err();
    assert!(matches!(error, TestingError::NotFound(id) if id == missing));
    let other = node.enqueue(NewJob::new("other", &())).await.unwrap().id();
    let error = run_job(&node, other).await.unwrap_err();
    assert!(matches!(error, TestingError::NotRunnable { .. }), "{error}");
}

/// A hook that records when jobs start and how they end.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl NodeHook for Heard {
    fn job_started(&self, claim: &Claim) {
        let told = format!("{} started", claim.route.kind);
        self.0.lock().unwrap().push(told);
    }

    fn job_ended(&self, claim: &Claim, end: &Settlement) {
        let told = format!("{} {:?}", claim.route.kind, end.effect(false).record);
        self.0.lock().unwrap().push(told);
    }
}

/// A job whose first attempt exceeds its timeout, and whose second attempt panics.
#[derive(Serialize, Deserialize)]
struct Late;

impl Job for Late {
    const KIND: &'static str = "late";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        assert_eq!(ctx.attempt(), 1, "again");
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn timeouts_panics_and_hooks_are_those_of_a_node() {
    let (store, clock) = memory_store();
    let heard = Heard::default();
    let builder = Ratchet::builder(store)
        .register::<Late>()
        .hook(heard.clone());
    let node = builder.build().unwrap();
    let job = Late.into_job().timeout(MINUTE);
    let id = node.enqueue(job).await.unwrap().id();
    assert_eq!(drain(&node).await.unwrap().retried, 1);
    assert_eq!(*heard.0.lock().unwrap(), ["late started", "late Retried"]);
    let read = async || node.client().job(id).await.unwrap().unwrap();
    assert_eq!(read().await.last_error.unwrap(), "timed out after 60s");
    clock.advance(MINUTE);
    assert_eq!(drain(&node).await.unwrap().retried, 1);
    assert!(read().await.last_error.unwrap().starts_with("panicked: "));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_a_while_is_waited_for_where_a_node_waits() {
    let (store, _clock) = memory_store();
    let faults = Mutex::new(vec![Fault::ErrorAfterCommit, Fault::ErrorBeforeCommit]);
    let faulty = MemoryStore::clone(&store).with_faults(move |operation| match operation {
        "settle" => faults.lock().unwrap().pop().unwrap_or_default(),
        _ => Fault::None,
    });
    let node = node(Arc::new(faulty));
    let id = node.enqueue(cat(5).into_job()).await.unwrap().id();
    let ran = run_job(&node, id).await.unwrap();
    assert_eq!((ran.job.state, ran.job.attempts), (JobState::Succeeded, 1));
    let broken = MemoryStore::clone(&store).with_faults(|operation| match operation {
        "claim_next_batch" => Fault::ErrorBeforeCommit,
        _ => Fault::None,
    });
    let node = crate::testing::app::node(Arc::new(broken));
    assert!(matches!(drain(&node).await, Err(TestingError::Store(_))));
}

#[tokio::test]
async fn a_node_that_runs_is_not_drained_beside() {
    let (store, _clock) = memory_store();
    let node = node(store);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let node = node.clone();
        async move { node.run_until(stopped).await }
    });
    while node.stats().claim_calls == 0 {
        tokio::task::yield_now().await;
    }
    let refused = drain(&node).await;
    assert!(matches!(
        refused,
        Err(TestingError::Run(RunError::AlreadyRunning))
    ));
    drop(stop);
    running.await.unwrap().unwrap();
    assert_eq!(drain(&node).await.unwrap().total(), 0);
}

#[derive(Serialize, Deserialize)]
struct Report;

impl Job for Report {
    const KIND: &'static str = "report";
    type Output = ();

    async fn run(self, _ctx: JobContext) -> JobResult<()> {
        Ok(())
    }
}

/// Checks that the clock moves to the next slot although each claim of recurring definitions takes
/// a second, in which the store's manual clock does not advance.
#[tokio::test(start_paused = true)]
async fn the_clock_is_moved_to_the_next_slot_however_long_the_store_takes() {
    let (store, clock) = memory_store();
    let store = MemoryStore::clone(&store).with_faults(|operation| match operation {
        "claim_due_recurring" => Fault::Delay(Duration::from_secs(1)),
        _ => Fault::None,
    });
    let hourly = Recurring::every(60 * MINUTE).job(Report.into_job());
    let node = Ratchet::builder(Arc::new(store))
        .register::<Report>()
        .recurring(hourly.named("hourly"))
        .build()
        .unwrap();
    for _ in 0..3 {
        advance_to_next(&node, &clock).await.unwrap().unwrap();
        assert_eq!(drain(&node).await.unwrap().succeeded, 1);
    }
}
