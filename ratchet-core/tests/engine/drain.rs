//! Draining a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::NodeStatus;
use ratchet_core::store::NodeStore;
use ratchet_core::{CancelReason, JobState, RetryPolicy};
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_running_bodies_and_leaves() {
    let world = World::new();
    let job = world.job("slow", |_| async {
        sleep(20 * SECOND).await;
        Ok("done")
    });
    let id = world.enqueue(job).await;
    let node = world.start();
    world.until(id, |job| job.state == JobState::Running).await;
    node.stop().await.unwrap();
    assert_eq!(world.read(id).await.state, JobState::Succeeded);
    assert_eq!(
        world.store.nodes().await.unwrap()[0].status,
        NodeStatus::Left
    );
}

#[tokio::test(start_paused = true)]
async fn after_the_grace_bodies_are_told_then_dropped_and_their_jobs_cost_nothing() {
    let world = World::new();
    let deaf = world.job("deaf", |_| async {
        sleep(3_600 * SECOND).await;
        Ok(())
    });
    let listens = world.job("listens", |ctx| async move {
        assert_eq!(ctx.cancelled().await, CancelReason::Shutdown);
        Err::<(), _>("interrupted".into())
    });
    let finishes = world.job("finishes", |ctx| async move {
        ctx.cancelled().await;
        Ok("just in time")
    });
    let deaf = world.enqueue(deaf.retry(RetryPolicy::never())).await;
    let listens = world.enqueue(listens.retry(RetryPolicy::never())).await;
    let finishes = world.enqueue(finishes).await;
    let node = world.start();
    for id in [deaf, listens, finishes] {
        world.until(id, |job| job.state == JobState::Running).await;
    }
    node.stop().await.unwrap();
    for id in [deaf, listens] {
        let job = world.read(id).await;
        assert_eq!(job.state, JobState::Pending, "{job:?}");
        assert_eq!((job.attempts, job.crash_count, job.claim_seq), (0, 0, 1));
    }
    assert_eq!(world.read(finishes).await.state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn claims_that_have_not_begun_are_handed_back_at_once() {
    let world = World::new();
    let began = Arc::new(AtomicUsize::new(0));
    let mut ids = Vec::new();
    // The quick jobs run first, so that the node begins to prefetch. The slow jobs that follow fill
    // the slots, so the remaining claims wait.
    for number in 0..2_000 {
        let began = Arc::clone(&began);
        let job = world.job(&number.to_string(), move |_| {
            let began = Arc::clone(&began);
            async move {
                if began.fetch_add(1, Ordering::SeqCst) > 1_500 {
                    sleep(10 * SECOND).await;
                }
                sleep(Duration::from_micros(100)).await;
                Ok(())
            }
        });
        ids.push(world.enqueue(job).await);
    }
    let node = Started::new(world.builder().concurrency(4).build().unwrap());
    while began.load(Ordering::SeqCst) < 1_505 {
        sleep(Duration::from_millis(1)).await;
    }
    let held = node.node.stats().claimed - node.node.stats().settled;
    assert!(held > 4, "nothing was prefetched");
    node.stop().await.unwrap();
    for id in ids {
        let job = world.read(id).await;
        assert_ne!(job.state, JobState::Running);
        assert_eq!(job.crash_count, 0);
        assert_eq!(u32::from(job.state == JobState::Succeeded), job.attempts);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_under_way_when_the_drain_begins_is_handed_back() {
    let world = World::new();
    let id = world.enqueue(world.job("late", |_| async { Ok(()) })).await;
    let slow = world
        .store
        .clone()
        .with_faults(|operation| match operation {
            "claim_next_batch" => Fault::DelayedAnswer(3 * SECOND),
            _ => Fault::None,
        });
    let node = Started::new(world.builder_on(slow).build().unwrap());
    sleep(SECOND).await;
    node.stop().await.unwrap();
    let job = world.read(id).await;
    assert_eq!(
        (job.state, job.claim_seq, job.crash_count),
        (JobState::Pending, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_can_be_drained_from_elsewhere() {
    let world = World::new();
    let node = world.start();
    sleep(SECOND).await;
    let id = world.store.nodes().await.unwrap()[0].node;
    node.node.client().drain_node(id).await.unwrap();
    node.ended().await.unwrap();
    assert_eq!(
        world.store.nodes().await.unwrap()[0].status,
        NodeStatus::Left
    );
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_although_the_database_is_away() {
    let world = World::new();
    let job = world.job("slow", |_| async {
        sleep(5 * SECOND).await;
        Ok(())
    });
    let id = world.enqueue(job).await;
    let away = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let store = world.store.clone().with_faults({
        let away = Arc::clone(&away);
        move |_| match away.load(Ordering::SeqCst) {
            true => Fault::ErrorBeforeCommit,
            false => Fault::None,
        }
    });
    let node = Started::new(world.builder_on(store).build().unwrap());
    world.until(id, |job| job.state == JobState::Running).await;
    away.store(true, Ordering::SeqCst);
    node.stop().await.unwrap();
    assert_eq!(world.read(id).await.state, JobState::Running);
    // Another node reclaims the job. This counts as a crash, since the store does not know how the
    // node ended.
    let _other = world.start();
    let job = world.ended(id).await;
    assert_eq!((job.state, job.crash_count), (JobState::Succeeded, 1));
}
