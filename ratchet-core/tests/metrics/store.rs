use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::memory::{Fault, ManualClock};
use ratchet_core::metrics::*;
use ratchet_core::time::wall_clock;
use ratchet_core::{JobError, MemoryStore, NewJob, Ratchet, RetryPolicy, StoreErrorKind};
use tokio::time::sleep;

use crate::kit::{Started, World};
use crate::recorder::Metrics;

const SECOND: Duration = Duration::from_secs(1);

pub(crate) async fn calls_are_counted_by_operation_and_result(metrics: &Metrics) {
    let world = World::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let store = world
        .store
        .clone()
        .with_faults(move |operation| match operation {
            "enqueue" => match calls.fetch_add(1, Ordering::SeqCst) {
                0 => Fault::ErrorBeforeCommit,
                1 => Fault::Delay(3 * SECOND),
                2 => Fault::Delay(3_600 * SECOND),
                3 => Fault::Failure(StoreErrorKind::Corrupt),
                _ => Fault::None,
            },
            "claim_next_batch" => Fault::Failure(StoreErrorKind::ReadOnly),
            _ => Fault::None,
        });
    let client = Ratchet::client(Arc::new(store.clone()));
    let job = || NewJob::new("scripted", &());
    client.enqueue(job()).await.unwrap();
    client.enqueue(job()).await.unwrap_err();
    let of = |result| {
        let labels = [("operation", "enqueue"), ("result", result)];
        metrics.sum(STORE_CALLS, &labels)
    };
    let results = ["ok", "unavailable", "timeout", "corrupt"];
    assert_eq!(results.map(of), [1.0, 1.0, 1.0, 1.0]);
    let took = metrics.values(STORE_CALL, &[("operation", "enqueue")]);
    assert_eq!(took, [0.0, 3.0, 10.0, 0.0]);
    // Two of the four calls failed and were repeated, each after one backoff.
    let waited = metrics.values(STORE_BACKOFF, &[("loop", "enqueue")]);
    assert_eq!(waited.len(), 2);
    let node = Started::new(world.builder_on(store).build().unwrap());
    sleep(5 * SECOND).await;
    assert!(metrics.sum(CLAIM_CALLS, &[("result", "failed")]) >= 2.0);
    let claims = [("operation", "claim"), ("result", "read_only")];
    assert!(metrics.sum(STORE_CALLS, &claims) >= 2.0);
    assert!(metrics.values(STORE_BACKOFF, &[("loop", "poller")]).len() >= 2);
    // The store calls of the election count too, although the election sets its own deadlines for
    // them.
    let acquire = [("operation", "acquire"), ("result", "ok")];
    assert!(metrics.sum(STORE_CALLS, &acquire) >= 1.0);
    node.stop().await.unwrap();
}

pub(crate) async fn settlements_are_tried_again_and_refused(metrics: &Metrics) {
    let world = World::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let store = world.store.clone().with_faults(move |operation| {
        let kind = match (
            operation,
            calls.fetch_add(usize::from(operation == "settle"), Ordering::SeqCst),
        ) {
            ("settle", 0) => StoreErrorKind::Contention,
            ("settle", 1 | 2) => StoreErrorKind::Corrupt,
            _ => return Fault::None,
        };
        Fault::Failure(kind)
    });
    let id = world.enqueue(world.job("ends", |_| async { Ok(()) })).await;
    let node = Started::new(world.builder_on(store).build().unwrap());
    world.ended(id).await;
    let retried = |error| metrics.sum(SETTLE_RETRIES, &[("error", error)]);
    assert_eq!((retried("contention"), retried("corrupt")), (1.0, 2.0));
    assert_eq!(metrics.sum(SETTLEMENTS_REFUSED, &[]), 1.0);
    assert_eq!(metrics.values(SETTLE, &[]).len(), 1);
    assert_eq!(metrics.values(SETTLE_BATCH, &[]), [1.0]);
    assert_eq!(
        metrics.values(STORE_BACKOFF, &[("loop", "settler")]).len(),
        2
    );
    node.stop().await.unwrap();
}

pub(crate) async fn claims_that_were_never_received_are_counted(metrics: &Metrics) {
    let world = World::new();
    let calls = AtomicUsize::new(0);
    // The first claim of each of the two pools takes effect, but its answer is lost.
    let store = world.store.clone().with_faults(move |operation| {
        let claims = operation == "claim_next_batch";
        match claims && calls.fetch_add(1, Ordering::SeqCst) < 2 {
            true => Fault::ErrorAfterCommit,
            false => Fault::None,
        }
    });
    let id = world.enqueue(world.job("lost", |_| async { Ok(()) })).await;
    let node = Started::new(world.builder_on(store).build().unwrap());
    world.ended(id).await;
    assert_eq!(metrics.sum(CLAIMS_UNDELIVERED, &[]), 1.0);
    node.stop().await.unwrap();
}

pub(crate) async fn steps_of_the_clock_are_counted(metrics: &Metrics) {
    let clock = ManualClock::running(wall_clock());
    let mut world = World::new();
    world.store = MemoryStore::with_clock(clock.clone());
    let node = world.start();
    sleep(SECOND).await;
    clock.advance(3_600 * SECOND);
    sleep(60 * SECOND).await;
    clock.set_back(1_800 * SECOND);
    sleep(60 * SECOND).await;
    let steps = |direction| metrics.sum(CLOCK_STEPS, &[("direction", direction)]);
    assert_eq!((steps("forward"), steps("back")), (1.0, 1.0));
    node.stop().await.unwrap();
}

pub(crate) async fn rewinds_of_the_database_are_counted(metrics: &Metrics) {
    let world = World::new();
    let node = world.start();
    sleep(SECOND).await;
    let copy = world.store.snapshot();
    sleep(60 * SECOND).await;
    world.store.rewind(&copy);
    sleep(60 * SECOND).await;
    assert_eq!(metrics.sum(DATABASE_REWINDS, &[]), 1.0);
    node.stop().await.unwrap();
}

pub(crate) async fn actions_are_counted_by_what_they_did(metrics: &Metrics) {
    let world = World::new();
    let node = world.start();
    let client = node.node.client();
    let fails = world.job("fails", |_| async { Err::<(), _>(JobError::discard("no")) });
    let failed = world.enqueue(fails.retry(RetryPolicy::never())).await;
    world.ended(failed).await;
    let later = NewJob::new("scripted", &()).delay(3_600 * SECOND);
    let later = world.enqueue(later).await;
    client.pause(later).await.unwrap();
    client.cancel(later).await.unwrap();
    client.cancel(later).await.unwrap();
    client.requeue(failed).await.unwrap();
    let acted =
        |action, outcome| metrics.sum(JOB_ACTIONS, &[("action", action), ("outcome", outcome)]);
    assert_eq!(acted("pause", "became"), 1.0);
    assert_eq!(acted("cancel", "became"), 1.0);
    assert_eq!(acted("cancel", "refused"), 1.0);
    assert_eq!(acted("requeue", "became"), 1.0);
    node.stop().await.unwrap();
}
