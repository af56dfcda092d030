//! Requests that hang, and processes that write much.

use futures_util::future::join;
use ratchet_core::store::Store;
use ratchet_core::time;

use super::faulty::{Fault, Gate, Operation};
use super::*;

/// A process that never stops writing lets another one with the same latency write too.
#[tokio::test(start_paused = true)]
async fn a_process_with_much_to_write_does_not_starve_others() {
    let bucket = Faulty::default();
    let other = bucket.other();
    let (busy, rare) = (Arc::new(open(&bucket).await), open(&other).await);
    bucket.set_latency(Duration::from_millis(20));
    other.set_latency(Duration::from_millis(20));
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let busy = Arc::clone(&busy);
        producers.spawn(async move {
            loop {
                add(&busy).await;
            }
        });
    }
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = time::monotonic();
        add(&rare).await;
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(2), "{waited:?}");
    }
    producers.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_delays_calls_by_seconds() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    for operation in [Operation::Put, Operation::Get] {
        bucket.plan_at(operation, "/log/", Fault::Hold(Gate::default()));
        let began = time::monotonic();
        add(&store).await;
        data(&store).await;
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(7), "{operation:?}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_is_repeated() {
    let bucket = Faulty::default();
    bucket.plan_at(Operation::List, "", Fault::Hold(Gate::default()));
    let opened = tokio::time::timeout(Duration::from_secs(7), builder(&bucket).connect());
    add(&opened.await.unwrap().unwrap()).await;
}

/// A snapshot that a process has begun is stored before the process ends.
#[tokio::test]
async fn close_waits_for_a_snapshot() {
    let bucket = Faulty::default();
    let store = open_brisk(&bucket).await;
    let gate = Gate::default();
    bucket.plan_at(Operation::Put, "/snapshots/", Fault::Hold(gate.clone()));
    add(&store).await;
    add(&store).await;
    gate.reached().await;
    let close = store.close();
    tokio::pin!(close);
    assert!(futures_util::poll!(close.as_mut()).is_pending());
    let released = async { gate.open() };
    join(close, released).await;
    assert!(bucket.has(&Path::from("r/manifest")).await);
}

/// The process that has put the segment before a snapshot may end at once.
#[tokio::test]
async fn another_process_stores_a_snapshot_that_is_missing() {
    let bucket = Faulty::default();
    let store = builder(&bucket).snapshot_every(8).connect().await.unwrap();
    bucket.plan_at(Operation::Put, "/snapshots/", Fault::Throttle);
    for _ in 0..8 {
        add(&store).await;
    }
    store.close().await;
    assert!(!bucket.has(&Path::from("r/manifest")).await);
    let other = bucket.other();
    let store = builder(&other).snapshot_every(8).connect().await.unwrap();
    for _ in 0..3 {
        add(&store).await;
    }
    store.close().await;
    assert!(bucket.has(&Path::from("r/manifest")).await);
}
