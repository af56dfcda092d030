//! How bodies end, and the resulting states of their jobs.

use std::time::Duration;

use ratchet_core::model::{AttemptOutcome, ClaimRequest, Detail};
use ratchet_core::store::JobStore;
use ratchet_core::{
    CancelReason, Job, JobContext, JobError, JobResult, JobState, NewJob, NodeId, RetryPolicy,
    TraceContext,
};
use serde::{Deserialize, Serialize, Serializer};
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_result_is_stored() {
    let world = World::new();
    let id = world
        .enqueue(world.job("sum", |_| async { Ok(40 + 2) }))
        .await;
    let node = world.start();
    let job = world.ended(id).await;
    assert_eq!(job.state, JobState::Succeeded);
    assert_eq!(job.result.unwrap().decode::<i32>().unwrap(), 42);
    assert_eq!((job.attempts, job.claim_seq), (1, 1));
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_unit_result_is_not_stored() {
    let world = World::new();
    let id = world.enqueue(world.job("unit", |_| async { Ok(()) })).await;
    let _node = world.start();
    assert_eq!(world.ended(id).await.result, None);
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_after_the_policy_s_delay_until_one_succeeds() {
    let world = World::new();
    let job = world.job("third time lucky", |ctx| async move {
        if ctx.attempt() < 3 {
            return Err(format!("attempt {} failed", ctx.attempt()).into());
        }
        Ok(ctx.attempt())
    });
    let id = world
        .enqueue(job.retry(RetryPolicy::fixed(5, 10 * SECOND)))
        .await;
    let _node = world.start();
    let job = world.ended(id).await;
    assert_eq!((job.state, job.attempts), (JobState::Succeeded, 3));
    assert_eq!(job.last_error.as_deref(), Some("attempt 2 failed"));
    let history = world.store.history(id).await.unwrap();
    let gap = history[1].claimed_at - history[0].ended_at;
    assert!(gap.num_seconds() >= 10, "retried after {gap}");
}

#[tokio::test(start_paused = true)]
async fn a_job_out_of_attempts_is_a_dead_letter_and_can_be_requeued() {
    let world = World::new();
    let job = world.job("hopeless", |ctx| async move {
        if ctx.attempt() == 1 && ctx.is_last_attempt() {
            return Err::<(), _>("only one".into());
        }
        Err("no use".into())
    });
    let id = world
        .enqueue(job.retry(RetryPolicy::fixed(2, SECOND)))
        .await;
    let node = world.start();
    let job = world.ended(id).await;
    assert_eq!((job.state, job.attempts), (JobState::Failed, 2));
    assert_eq!(job.last_error.as_deref(), Some("no use"));
    node.node.client().requeue(id).await.unwrap();
    let job = world.until(id, |job| job.attempts == 2).await;
    assert_eq!(job.claim_seq, 4);
}

#[tokio::test(start_paused = true)]
async fn a_snooze_costs_no_attempt_not_even_one_of_zero() {
    let world = World::new();
    let job = world.job("later", |ctx| async move {
        match ctx.checkpoint::<u32>()? {
            None => {
                ctx.save_checkpoint(&1).await?;
                Err(JobError::snooze(Duration::ZERO))
            }
            Some(1) => {
                ctx.save_checkpoint(&2).await?;
                Err(JobError::snooze(30 * SECOND))
            }
            Some(_) => Ok(ctx.attempt()),
        }
    });
    let id = world.enqueue(job.retry(RetryPolicy::never())).await;
    let _node = world.start();
    let job = world.ended(id).await;
    assert_eq!(
        (job.state, job.attempts, job.claim_seq),
        (JobState::Succeeded, 1, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_can_discard_cancel_and_choose_their_delay() {
    let world = World::new();
    let discard = world.job("discard", |_| async {
        Err::<(), _>(JobError::discard("no such user"))
    });
    let cancel = world.job("cancel", |_| async { Err::<(), _>(JobError::cancel()) });
    let later = world.job("later", |ctx| async move {
        if ctx.attempt() == 1 {
            return Err(JobError::retry_after(90 * SECOND, "busy"));
        }
        Ok(())
    });
    let discard = world.enqueue(discard).await;
    let cancel = world.enqueue(cancel).await;
    let later = world.enqueue(later).await;
    let _node = world.start();
    let failed = world.ended(discard).await;
    assert_eq!(failed.state, JobState::Failed);
    assert_eq!(failed.last_error.as_deref(), Some("no such user"));
    assert_eq!(world.ended(cancel).await.state, JobState::Cancelled);
    world.ended(later).await;
    let history = world.store.history(later).await.unwrap();
    assert!((history[1].claimed_at - history[0].ended_at).num_seconds() >= 90);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_attempt_of_that_job_only() {
    let world = World::new();
    let panics = world.job("panics", |_| async {
        if true {
            panic!("planned");
        }
        Ok(())
    });
    let id = world.enqueue(panics.retry(RetryPolicy::never())).await;
    let node = Started::new(world.builder().concurrency(1).build().unwrap());
    let job = world.ended(id).await;
    assert_eq!((job.state, job.attempts), (JobState::Failed, 1));
    assert_eq!(job.last_error.as_deref(), Some("panicked: planned"));
    let other = world.enqueue(world.job("fine", |_| async { Ok(()) })).await;
    assert_eq!(world.ended(other).await.state, JobState::Succeeded);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_timeout_warns_at_four_fifths_and_then_drops_the_body() {
    let world = World::new();
    let deaf = world.job("deaf", |_| async {
        sleep(3_600 * SECOND).await;
        Ok(())
    });
    let listens = world.job("listens", |ctx| async move {
        let reason = ctx.cancelled().await;
        assert_eq!(reason, CancelReason::SoftTimeout);
        Ok("in time")
    });
    let never = RetryPolicy::never();
    let deaf = world.enqueue(deaf.timeout(10 * SECOND).retry(never)).await;
    let listens = world
        .enqueue(listens.timeout(10 * SECOND).retry(never))
        .await;
    let _node = world.start();
    let job = world.ended(listens).await;
    assert_eq!(job.state, JobState::Succeeded);
    let ran = world.store.history(listens).await.unwrap()[0]
        .ran_for
        .unwrap();
    assert_eq!(ran.as_millis(), 8_000);
    let job = world.ended(deaf).await;
    assert_eq!((job.state, job.attempts), (JobState::Failed, 1));
    assert_eq!(job.last_error.as_deref(), Some("timed out after 10s"));
    let ran = world.store.history(deaf).await.unwrap()[0].ran_for.unwrap();
    assert_eq!(ran.as_millis(), 10_000);
}

/// A job whose result fails to serialize.
#[derive(Deserialize, Serialize)]
struct BadResult;

struct Unserializable;

impl Serialize for Unserializable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("cannot be written"))
    }
}

impl Job for BadResult {
    const KIND: &'static str = "bad_result";
    type Output = Unserializable;

    async fn run(self, _: JobContext) -> JobResult<Unserializable> {
        Ok(Unserializable)
    }
}

#[tokio::test(start_paused = true)]
async fn results_that_cannot_be_stored_fail_their_job_only() {
    let world = World::new();
    let bad = world
        .enqueue(BadResult.into_job().retry(RetryPolicy::never()))
        .await;
    let large = world.job("large", |_| async { Ok("x".repeat(70_000)) });
    let large = world.enqueue(large).await;
    let fine = world.enqueue(world.job("fine", |_| async { Ok(()) })).await;
    let _node = Started::new(world.builder().register::<BadResult>().build().unwrap());
    let job = world.ended(bad).await;
    assert_eq!(job.state, JobState::Failed);
    assert!(job.last_error.unwrap().contains("cannot be written"));
    let job = world.ended(large).await;
    assert!(
        job.last_error
            .unwrap()
            .contains("at most 65536 are allowed")
    );
    assert_eq!(world.ended(fine).await.state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_payload_of_another_shape_fails_its_job_at_no_attempt() {
    let world = World::new();
    let poison = world.enqueue(NewJob::new("scripted", &[1, 2, 3])).await;
    let fine = world.enqueue(world.job("fine", |_| async { Ok(()) })).await;
    let _node = world.start();
    let job = world.ended(poison).await;
    assert_eq!((job.state, job.attempts), (JobState::Failed, 0));
    assert!(
        job.last_error
            .unwrap()
            .starts_with("the payload does not decode as a scripted: ")
    );
    assert_eq!(world.ended(fine).await.state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn unknown_kinds_are_left_to_other_nodes() {
    let world = World::new();
    let other = world.enqueue(NewJob::new("other", &())).await;
    let node = world.start();
    sleep(60 * SECOND).await;
    let job = world.read(other).await;
    assert_eq!((job.state, job.claim_seq), (JobState::Pending, 0));
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_trace_travels_from_the_enqueue_through_the_handler_to_what_it_enqueues() {
    let world = World::new();
    let trace =
        TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
    let child = world.job("child", |ctx| async move {
        Ok(ctx.trace().map(|trace| trace.traceparent().to_owned()))
    });
    let child_id = child.id();
    let parent = world.job("parent", move |ctx| {
        let child = child.clone();
        async move {
            ctx.enqueue(child).await?;
            Ok(())
        }
    });
    world.enqueue(parent.trace(trace.clone())).await;
    let _node = world.start();
    for _ in 0..1_000 {
        if world.store.get(&[child_id], Detail::Whole).await.unwrap()[0].is_some() {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    let result = world.ended(child_id).await.result.unwrap();
    assert_eq!(result.decode::<String>().unwrap(), trace.traceparent());
}

#[tokio::test(start_paused = true)]
async fn payloads_can_be_loaded_lazily() {
    let world = World::new();
    let mut ids = Vec::new();
    for number in 0..100 {
        let job = world.job(&format!("job {number}"), move |_| async move { Ok(number) });
        ids.push(world.enqueue(job).await);
    }
    let _node = Started::new(world.builder().lazy_payloads(true).build().unwrap());
    for (number, id) in ids.into_iter().enumerate() {
        let result = world.ended(id).await.result.unwrap();
        assert_eq!(result.decode::<usize>().unwrap(), number);
    }
}

#[tokio::test(start_paused = true)]
async fn the_history_names_every_claim_with_its_end() {
    let world = World::new();
    let job = world.job("twice", |ctx| async move {
        sleep(SECOND).await;
        if ctx.attempt() == 1 {
            return Err("first".into());
        }
        Ok(())
    });
    let id = world
        .enqueue(job.retry(RetryPolicy::fixed(3, SECOND)))
        .await;
    let _node = world.start();
    world.ended(id).await;
    let history = world.store.history(id).await.unwrap();
    let outcomes: Vec<AttemptOutcome> = history.iter().map(|one| one.outcome).collect();
    assert_eq!(
        outcomes,
        [AttemptOutcome::Retried, AttemptOutcome::Succeeded]
    );
    assert_eq!(history[0].error.as_deref(), Some("first"));
    assert_eq!(history[0].ran_for, Some(SECOND));
    let nothing = ClaimRequest::new(NodeId::new(), 10);
    assert!(
        world
            .store
            .claim_next_batch(&nothing)
            .await
            .unwrap()
            .is_empty()
    );
}
