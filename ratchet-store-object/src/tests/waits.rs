//! Requests that hang, and processes that write much.

use futures_util::FutureExt;
use futures_util::future::join;
use ratchet_core::store::Store;
use ratchet_core::time;

use super::faulty::{Fault, Gate, Operation};
use super::*;
use crate::bucket::Bucket;

/// Ends the test if the call starves: the other tasks never stop, and the clock of the test only
/// advances.
async fn within_a_minute<T>(call: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(60), call).await;
    done.expect("a call starves")
}

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
        within_a_minute(add(&rare)).await;
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(2), "{waited:?}");
    }
    producers.shutdown().await;
}

/// The requests of the other process take ten times as long.
#[tokio::test(start_paused = true)]
async fn a_process_far_away_can_write_too() {
    let bucket = Faulty::default();
    let other = bucket.other();
    let (busy, far) = (Arc::new(open(&bucket).await), open(&other).await);
    bucket.set_latency(Duration::from_millis(10));
    other.set_latency(Duration::from_millis(100));
    let mut producers = tokio::task::JoinSet::new();
    let done = Arc::new(std::sync::atomic::AtomicU32::new(0));
    for _ in 0..8 {
        let (busy, done) = (Arc::clone(&busy), Arc::clone(&done));
        producers.spawn(async move {
            loop {
                add(&busy).await;
                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
    }
    let began = time::monotonic();
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = time::monotonic();
        within_a_minute(add(&far)).await;
        longest = longest.max(began.elapsed());
    }
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    // The busy process still has most of the time.
    let elapsed = u32::try_from(began.elapsed().as_secs()).unwrap();
    let rate = done.load(std::sync::atomic::Ordering::Relaxed) / elapsed;
    assert!(rate > 150, "{rate}/s");
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

/// A snapshot contains all data, so an attempt that has failed is not repeated at once.
#[tokio::test]
async fn a_snapshot_that_cannot_be_stored_is_tried_again_later() {
    let bucket = Faulty::default();
    let store = builder(&bucket).snapshot_every(16).connect().await.unwrap();
    for _ in 0..100 {
        bucket.plan_at(Operation::Put, "/snapshots/", Fault::Throttle);
    }
    for _ in 0..16 + 30 {
        add(&store).await;
        store.log.snapshots.stored().await;
    }
    // After segment 16, then after every third one, and after segment 32.
    let attempts = 100 - bucket.planned();
    assert!((10..=12).contains(&attempts), "{attempts}");
}

#[tokio::test]
async fn a_manifest_that_cannot_be_stored_stops_nothing() {
    let bucket = Faulty::default();
    let store = open_brisk(&bucket).await;
    for _ in 0..1_000 {
        bucket.plan_at(Operation::Put, "/manifest", Fault::Deny);
    }
    let jobs = bury(&bucket, &store, 1).await;
    assert!(!bucket.has(&Path::from("r/manifest")).await);
    let other = open_brisk(&bucket.other()).await;
    assert!(has_all(&other, &jobs).await);
    // Each is one, also with two processes.
    for _ in 0..5 {
        add(&other).await;
        other.log.snapshots.stored().await;
        add(&store).await;
        store.log.snapshots.stored().await;
    }
    let mut numbers: Vec<_> = snapshots(&bucket)
        .await
        .iter()
        .map(Bucket::number)
        .collect();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
}

/// Deleting may take longer than the time until the next snapshot.
#[tokio::test]
async fn a_snapshot_does_not_wait_until_old_segments_are_deleted() {
    let bucket = Faulty::default();
    let store = open_brisk(&bucket).await;
    let gate = Gate::default();
    bucket.plan_at(Operation::Delete, "/log/", Fault::Hold(gate.clone()));
    let deletes = gate.reached();
    tokio::pin!(deletes);
    while futures_util::poll!(deletes.as_mut()).is_pending() {
        bucket.clock().advance(Duration::from_secs(20 * 60));
        add(&store).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    let newest = snapshots(&bucket).await.pop();
    let stored = async {
        while snapshots(&bucket).await.pop() == newest {
            add(&store).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), stored)
        .await
        .unwrap();
    gate.open();
    store.log.snapshots.stored().await;
}

/// The whole log is listed once. Later, the process knows what it has deleted.
#[tokio::test]
async fn deleting_does_not_list_the_log_again() {
    let bucket = Faulty::default();
    let store = open_brisk(&bucket).await;
    bury(&bucket, &store, 1).await;
    bucket.plan_at(Operation::List, "r/log", Fault::Deny);
    while !bucket.has(&segment(10)).await {
        add(&store).await;
    }
    bury(&bucket, &store, 9).await;
    assert_eq!(bucket.planned(), 1);
    for number in 0..=9 {
        assert!(!bucket.has(&segment(number)).await, "{number}");
    }
}

/// The task of the log cannot begin without a runtime, or on one that has ended.
#[test]
fn a_call_without_a_runtime_does_not_block_later_calls() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let bucket = Faulty::default();
    let first = runtime();
    let store = first.block_on(open(&bucket));
    assert!(store.log.refresh().now_or_never().unwrap().is_err());
    let handle = first.handle().clone();
    drop(first);
    {
        let _inside = handle.enter();
        assert!(store.log.refresh().now_or_never().unwrap().is_err());
    }
    runtime().block_on(async {
        let job = add(&store).await;
        assert!(has_all(&store, &[job]).await);
        store.close().await;
    });
}

/// A limit of puts delays calls that change something, and no others.
#[tokio::test(start_paused = true)]
async fn a_process_keeps_its_budget_of_puts() {
    let bucket = Faulty::default();
    let builder = builder(&bucket).puts_per_minute(12).snapshot_every(10);
    let store = Arc::new(builder.connect().await.unwrap());
    bucket.set_latency(Duration::from_millis(20));
    bucket.counts();
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = Arc::clone(&store);
        producers.spawn(async move {
            loop {
                add(&store).await;
            }
        });
    }
    let mut puts = 0;
    for minute in 1..=10 {
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(900)).await;
            let began = time::monotonic();
            store.get(&[JobId::new()], Detail::Whole).await.unwrap();
            let waited = began.elapsed();
            assert!(waited < Duration::from_millis(300), "{waited:?}");
        }
        let counts = bucket.counts();
        puts += counts.puts;
        assert!(counts.puts <= 13, "{counts:?} in minute {minute}");
        assert!(counts.gets <= 200, "{counts:?} in minute {minute}");
    }
    assert!((100..=121).contains(&puts), "{puts}");
    producers.shutdown().await;
    let refused = self::builder(&bucket).puts_per_minute(3).check();
    assert!(refused.is_err());
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
