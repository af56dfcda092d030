//! Cancelling waiting and running jobs.

use std::time::Duration;

use ratchet_core::model::ActionOutcome;
use ratchet_core::{CancelReason, JobState, Ratchet};
use tokio::time::{Instant, sleep};

use crate::kit::World;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_waiting_job_is_cancelled_at_once_and_never_runs() {
    let world = World::new();
    let job = world.job("never", |_| async { Ok(()) });
    let id = world.enqueue(job.delay(SECOND)).await;
    let node = world.start();
    let cancelled = node.node.client().cancel(id).await.unwrap();
    assert_eq!(cancelled, ActionOutcome::Became(JobState::Cancelled));
    sleep(10 * SECOND).await;
    assert_eq!(world.read(id).await.claim_seq, 0);
}

#[tokio::test(start_paused = true)]
async fn a_running_body_is_told_within_a_heartbeat_and_its_result_is_dropped() {
    let world = World::new();
    let job = world.job("patient", |ctx| async move {
        assert_eq!(ctx.cancelled().await, CancelReason::Requested);
        assert_eq!(ctx.cancel_reason(), Some(CancelReason::Requested));
        Ok("an unwanted result")
    });
    let id = world.enqueue(job).await;
    let _node = world.start();
    world.until(id, |job| job.state == JobState::Running).await;
    #[expect(clippy::disallowed_methods, reason = "paused time")]
    let asked = Instant::now();
    // The cancel request comes from another client, not from the client of the node.
    let client = Ratchet::client(std::sync::Arc::new(world.store.clone()));
    assert_eq!(
        client.cancel(id).await.unwrap(),
        ActionOutcome::CancelRequested
    );
    let job = world.ended(id).await;
    assert!(
        asked.elapsed() <= 6 * SECOND,
        "told after {:?}",
        asked.elapsed()
    );
    assert_eq!((job.state, job.result), (JobState::Cancelled, None));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_that_fails_is_cancelled_and_not_retried() {
    let world = World::new();
    let job = world.job("stubborn", |ctx| async move {
        ctx.cancelled().await;
        Err::<(), _>("interrupted".into())
    });
    let id = world.enqueue(job).await;
    let node = world.start();
    world.until(id, |job| job.state == JobState::Running).await;
    node.node.client().cancel(id).await.unwrap();
    assert_eq!(world.ended(id).await.state, JobState::Cancelled);
}
