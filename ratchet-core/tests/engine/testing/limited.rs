//! Tests of `drain` and `run_job` with jobs that a rate limit or a permit delays.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::model::{Claim, Settlement};
use ratchet_core::testing::{TestingError, drain, memory_store, run_job};
use ratchet_core::{
    Job, JobContext, JobResult, JobState, NodeHook, Ratchet, RateLimit, RetryPolicy,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Limited(u32);

impl Job for Limited {
    const KIND: &'static str = "limited";
    type Output = u32;

    async fn run(self, _: JobContext) -> JobResult<u32> {
        Ok(self.0)
    }
}

#[derive(Serialize, Deserialize)]
struct Free;

impl Job for Free {
    const KIND: &'static str = "free";
    type Output = ();

    async fn run(self, _: JobContext) -> JobResult<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_drain_leaves_what_a_rate_limit_holds_up_and_runs_the_rest() {
    let (store, _clock) = memory_store();
    let limit = RateLimit::per_minute(2).burst(2);
    let builder = Ratchet::builder(store)
        .register::<Limited>()
        .register::<Free>();
    let node = builder.rate_limit::<Limited>(limit).build().unwrap();
    let mut jobs: Vec<_> = (0..5).map(|number| Limited(number).into_job()).collect();
    jobs.push(Free.into_job());
    node.client().enqueue_all(&jobs).await.unwrap();
    let drained = drain(&node).await.unwrap();
    // Two jobs run within the limit, and the job `Free` has no limit. A third job is claimed and
    // then refused by the limiter. Its claim is released, which counts as lost.
    assert_eq!((drained.succeeded, drained.lost), (3, 1), "{drained:?}");
    assert_eq!(drained.total(), 4);
    for (job, state) in jobs.iter().zip([
        JobState::Succeeded,
        JobState::Succeeded,
        JobState::Pending,
        JobState::Pending,
        JobState::Pending,
        JobState::Succeeded,
    ]) {
        let job = node.client().job(job.id()).await.unwrap().unwrap();
        assert_eq!((job.state, job.crash_count), (state, 0));
    }
}

#[tokio::test]
async fn a_job_whose_permit_earlier_ones_take_is_named_with_it() {
    let (store, _clock) = memory_store();
    let node = Ratchet::builder(store)
        .register::<Limited>()
        .build()
        .unwrap();
    node.client().set_permits("api", 1).await.unwrap();
    let jobs = [0, 1].map(|number| Limited(number).into_job().permit("api"));
    node.client().enqueue_all(&jobs).await.unwrap();
    let error = run_job(&node, jobs[1].id()).await.unwrap_err();
    assert!(matches!(error, TestingError::NotRunnable { .. }), "{error}");
    assert!(
        error.to_string().contains("the permit Some(\"api\")"),
        "{error}"
    );
    // After the error, no job holds the permit, so each job can run.
    assert_eq!(node.client().permits().await.unwrap()[0].held, 0);
    for job in &jobs {
        let ran = run_job(&node, job.id()).await.unwrap();
        assert_eq!(ran.job.state, JobState::Succeeded);
    }
}

/// A hook that records the states in which jobs end.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<JobState>>>);

impl NodeHook for Ends {
    fn job_ended(&self, _: &Claim, end: &Settlement) {
        self.0.lock().unwrap().push(end.effect(false).state);
    }
}

#[tokio::test]
async fn hooks_hear_of_a_dead_letter_made_by_a_key_function_that_panics() {
    let (store, clock) = memory_store();
    let ends = Ends::default();
    let by = |job: &Limited| -> Option<String> { panic!("planned panic: no key for {}", job.0) };
    let builder = Ratchet::builder(store).register::<Limited>();
    let builder = builder.hook(ends.clone());
    let limit = RateLimit::per_minute(2).by(by);
    let node = builder.rate_limit::<Limited>(limit).build().unwrap();
    let minute = Duration::from_secs(60);
    let job = Limited(7).into_job().retry(RetryPolicy::fixed(2, minute));
    let id = node.enqueue(job).await.unwrap().id();
    assert_eq!(drain(&node).await.unwrap().retried, 1);
    clock.advance(minute);
    assert_eq!(drain(&node).await.unwrap().failed, 1);
    let job = node.client().job(id).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Failed);
    assert_eq!(*ends.0.lock().unwrap(), [JobState::Failed]);
}
