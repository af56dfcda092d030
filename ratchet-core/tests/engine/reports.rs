//! Tests of what bodies report while they run: progress, checkpoints and signs of life.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::AttemptOutcome;
use ratchet_core::store::JobStore;
use ratchet_core::{CancelReason, JobState, RetryPolicy};
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn progress_is_seen_while_the_body_runs_and_the_last_word_stays() {
    let world = World::new();
    let job = world.job("walks", |ctx| async move {
        ctx.progress(40, "almost half");
        sleep(10 * SECOND).await;
        ctx.progress(200, "x".repeat(5_000));
        Ok(())
    });
    let id = world.enqueue(job).await;
    let _node = world.start();
    let job = world.until(id, |job| job.progress.is_some()).await;
    assert_eq!(job.state, JobState::Running);
    let progress = job.progress.unwrap();
    assert_eq!(
        (progress.percent, progress.message.as_str()),
        (40, "almost half")
    );
    let progress = world.ended(id).await.progress.unwrap();
    assert_eq!((progress.percent, progress.message.len()), (100, 1_024));
}

#[tokio::test(start_paused = true)]
async fn the_next_attempt_starts_from_the_checkpoint() {
    let world = World::new();
    let job = world.job("steps", |ctx| async move {
        let done = ctx.checkpoint::<u32>()?.unwrap_or(0);
        if done < 3 {
            ctx.save_checkpoint(&(done + 1)).await?;
            return Err("planned failure after one more step".into());
        }
        Ok(done)
    });
    let id = world
        .enqueue(job.retry(RetryPolicy::fixed(9, SECOND)))
        .await;
    let _node = world.start();
    let job = world.ended(id).await;
    assert_eq!(job.attempts, 4);
    assert_eq!(job.result.unwrap().decode::<u32>().unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_silent_body_loses_a_job_with_a_stall_timeout_and_a_lively_one_keeps_it() {
    let world = World::new();
    let silent = world.job("silent", |ctx| async move {
        if ctx.attempt() == 1 && ctx.checkpoint::<bool>()?.is_none() {
            ctx.save_checkpoint(&true).await?;
            assert_eq!(ctx.cancelled().await, CancelReason::ClaimLost);
            sleep(3_600 * SECOND).await;
        }
        Ok(())
    });
    let lively = world.job("lively", |ctx| async move {
        for _ in 0..40 {
            sleep(SECOND).await;
            ctx.heartbeat();
        }
        Ok(())
    });
    let silent = world.enqueue(silent.stall_timeout(5 * SECOND)).await;
    let lively = world.enqueue(lively.stall_timeout(5 * SECOND)).await;
    let _node = world.start();
    assert_eq!(world.ended(silent).await.crash_count, 1);
    let history = world.store.history(silent).await.unwrap();
    assert_eq!(history[0].outcome, AttemptOutcome::Lost);
    assert_eq!(world.ended(lively).await.claim_seq, 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_body_is_reported_once_so_that_its_claim_is_not_taken_for_unstarted() {
    let world = World::new();
    let job = world.job("long", |_| async {
        sleep(900 * SECOND).await;
        Ok(())
    });
    let id = world.enqueue(job).await;
    let reports = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let store = world.store.clone().with_faults({
        let reports = Arc::clone(&reports);
        move |operation| {
            let report = usize::from(operation == "report");
            reports.fetch_add(report, std::sync::atomic::Ordering::SeqCst);
            Fault::None
        }
    });
    let _node = Started::new(world.builder_on(store).build().unwrap());
    let job = world.ended(id).await;
    assert_eq!((job.claim_seq, job.crash_count), (1, 0));
    assert_eq!(reports.load(std::sync::atomic::Ordering::SeqCst), 1);
}
