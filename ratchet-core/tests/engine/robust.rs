//! Tests of conditions that must not block a node: stalled bodies, long jobs, stores that panic or
//! hang, and steps of the clock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::cluster::{ClusterCoordinator, InProcessCoordinator, Wakeup, WakeupStream};
use ratchet_core::memory::{Fault, ManualClock};
use ratchet_core::{CancelReason, JobState, MemoryStore, StoreErrorKind, time};
use tokio::time::sleep;

use crate::kit::{Started, World, stop_all};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_stalled_body_gives_its_slot_back() {
    let world = World::new();
    let first = Arc::new(AtomicBool::new(true));
    let stalls = world.job("stalls", move |_| {
        let hangs = first.swap(false, Ordering::SeqCst);
        async move {
            if hangs {
                sleep(36_000 * SECOND).await;
            }
            Ok(())
        }
    });
    let stalls = world.enqueue(stalls.stall_timeout(5 * SECOND)).await;
    let other = world
        .enqueue(world.job("other", |_| async { Ok(()) }))
        .await;
    let _node = Started::new(world.builder().concurrency(1).prefetch(0).build().unwrap());
    assert_eq!(world.ended(other).await.state, JobState::Succeeded);
    let job = world.ended(stalls).await;
    assert_eq!((job.state, job.crash_count), (JobState::Succeeded, 1));
}

#[tokio::test(start_paused = true)]
async fn no_slot_idles_beside_long_jobs_while_jobs_are_due() {
    let world = World::new();
    let mut short = Vec::new();
    for number in 0..830 {
        let seconds = if (600..630).contains(&number) {
            36_000
        } else {
            0
        };
        let job = world.job(&number.to_string(), move |_| async move {
            sleep(Duration::from_millis(40) + seconds * SECOND).await;
            Ok(())
        });
        let id = world.enqueue(job).await;
        if seconds == 0 {
            short.push(id);
        }
    }
    let _node = world.start();
    sleep(120 * SECOND).await;
    for id in short {
        assert_eq!(world.read(id).await.state, JobState::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_now_and_then_costs_nothing() {
    let world = World::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let store = world.store.clone().with_faults(move |operation| {
        let number = calls.fetch_add(1, Ordering::SeqCst);
        let fragile = matches!(
            operation,
            "claim_next_batch" | "settle" | "report" | "heartbeat"
        );
        assert!(!fragile || number % 4 != 3, "planned panic of a store");
        Fault::None
    });
    let _node = Started::new(world.builder_on(store).concurrency(2).build().unwrap());
    for number in 0..50 {
        let job = world.job(&number.to_string(), |ctx| async move {
            ctx.progress(50, "half");
            Ok(())
        });
        let id = world.enqueue(job).await;
        let job = world.ended(id).await;
        assert_eq!((job.state, job.claim_seq), (JobState::Succeeded, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn settlements_that_the_store_refuses_wait_apart() {
    let world = World::new();
    let refusals = Arc::new(AtomicUsize::new(0));
    let store = world.store.clone().with_faults(move |operation| {
        // The first twenty settle calls fail: those of the whole batch, and then those of its
        // single items.
        let refused = operation == "settle" && refusals.fetch_add(1, Ordering::SeqCst) < 20;
        if refused {
            Fault::Failure(StoreErrorKind::Corrupt)
        } else {
            Fault::None
        }
    });
    let mut ids = Vec::new();
    for number in 0..10 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        ids.push(world.enqueue(job).await);
    }
    let node = Started::new(world.builder_on(store).build().unwrap());
    for id in ids {
        let job = world.ended(id).await;
        assert_eq!((job.state, job.claim_seq), (JobState::Succeeded, 1));
    }
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_ends_at_its_deadline() {
    let world = World::new();
    let hang = Arc::new(AtomicBool::new(true));
    let store = world.store.clone().with_faults({
        let hang = Arc::clone(&hang);
        move |operation| {
            if operation == "claim_next_batch" && hang.swap(false, Ordering::SeqCst) {
                return Fault::Delay(86_400 * SECOND);
            }
            Fault::None
        }
    });
    let id = world
        .enqueue(world.job("waits", |_| async { Ok(()) }))
        .await;
    let _node = Started::new(world.builder_on(store).build().unwrap());
    let job = world.ended(id).await;
    assert!((job.finished_at.unwrap() - job.created_at).num_seconds() <= 12);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_alone_survives_a_jump_of_the_database_s_clock() {
    for seed in 0..20 {
        let clock = ManualClock::running(time::from_millis(1_000_000));
        let mut world = World::new();
        world.store = MemoryStore::with_clock(clock.clone());
        let job = world.job("long", |_| async {
            sleep(60 * SECOND).await;
            Ok(())
        });
        let id = world.enqueue(job).await;
        let node = Started::new(world.builder().seed(seed).build().unwrap());
        world.until(id, |job| job.state == JobState::Running).await;
        clock.advance(60 * SECOND);
        let job = world.ended(id).await;
        assert_eq!(
            (job.state, job.crash_count, job.claim_seq),
            (JobState::Succeeded, 0, 1)
        );
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_database_costs_no_job_a_crash() {
    let world = World::new();
    let away = Arc::new(AtomicBool::new(false));
    let faulty = || {
        let away = Arc::clone(&away);
        world
            .store
            .clone()
            .with_faults(move |_| match away.load(Ordering::SeqCst) {
                true => Fault::ErrorBeforeCommit,
                false => Fault::None,
            })
    };
    let mut ids = Vec::new();
    for number in 0..8 {
        let job = world.job(&number.to_string(), |ctx| async move {
            for _ in 0..600 {
                sleep(SECOND).await;
                ctx.heartbeat();
                drop(ctx.save_checkpoint(&1).await);
            }
            Ok(())
        });
        ids.push(world.enqueue(job.stall_timeout(10 * SECOND)).await);
    }
    let nodes: Vec<Started> = (0..2)
        .map(|seed| {
            let builder = world.builder_on(faulty()).concurrency(4).seed(seed);
            Started::new(builder.build().unwrap())
        })
        .collect();
    for _ in 0..5 {
        sleep(60 * SECOND).await;
        away.store(true, Ordering::SeqCst);
        sleep(40 * SECOND).await;
        away.store(false, Ordering::SeqCst);
    }
    for id in ids {
        let job = world.ended(id).await;
        assert_eq!(
            (job.state, job.claim_seq, job.crash_count),
            (JobState::Succeeded, 1, 0)
        );
    }
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn payloads_that_cannot_be_loaded_are_waited_for() {
    let world = World::new();
    let away = Arc::new(AtomicBool::new(true));
    let store = world.store.clone().with_faults({
        let away = Arc::clone(&away);
        move |operation| {
            if operation == "load_inputs" && away.load(Ordering::SeqCst) {
                return Fault::ErrorBeforeCommit;
            }
            Fault::None
        }
    });
    let id = world
        .enqueue(world.job("waits", |_| async { Ok(()) }))
        .await;
    let builder = world.builder_on(store).lazy_payloads(true);
    let _node = Started::new(builder.build().unwrap());
    sleep(60 * SECOND).await;
    away.store(false, Ordering::SeqCst);
    let job = world.ended(id).await;
    assert_eq!((job.state, job.claim_seq), (JobState::Succeeded, 1));
}

#[tokio::test(start_paused = true)]
async fn nodes_with_other_start_timeouts_leave_running_jobs_alone() {
    let world = World::new();
    let job = world.job("slow", |_| async {
        sleep(60 * SECOND).await;
        Ok(())
    });
    let id = world.enqueue(job).await;
    let _patient = world.start();
    world.until(id, |job| job.state == JobState::Running).await;
    let builder = world.builder().start_timeout(10 * SECOND);
    let _impatient = Started::new(builder.build().unwrap());
    assert_eq!(world.ended(id).await.claim_seq, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_blocks_its_thread_does_not_hold_the_node() {
    let world = World::new();
    let begun = Arc::new(AtomicBool::new(false));
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let job = world.job("blocks", {
        let begun = Arc::clone(&begun);
        move |_| {
            let (begun, released) = (Arc::clone(&begun), Arc::clone(&released));
            async move {
                begun.store(true, Ordering::SeqCst);
                let _ = released.lock().unwrap().recv();
                Ok(())
            }
        }
    });
    let id = world.enqueue(job).await;
    let builder = world.builder().drain_grace(Duration::from_millis(50));
    let builder = builder.store_deadline(Duration::from_millis(500));
    let node = Started::new(builder.concurrency(1).build().unwrap());
    // Waits until the body begins, because a node that stops hands back claims whose bodies have
    // not begun.
    while !begun.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(10)).await;
    }
    // If the node waited for the body, `stop` would never return.
    node.stop().await.unwrap();
    assert_eq!(world.read(id).await.state, JobState::Running);
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn no_body_begins_after_the_drain() {
    let world = World::new();
    let begun = Arc::new(AtomicUsize::new(0));
    for number in 0..100 {
        let begun = Arc::clone(&begun);
        let job = world.job(&number.to_string(), move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            async {
                sleep(Duration::from_millis(500)).await;
                Ok(())
            }
        });
        world.enqueue(job).await;
    }
    let slow = world
        .store
        .clone()
        .with_faults(|operation| match operation {
            "heartbeat" => Fault::Delay(3 * SECOND),
            _ => Fault::None,
        });
    let builder = world.builder_on(slow).concurrency(2);
    let node = Started::new(builder.build().unwrap());
    while begun.load(Ordering::SeqCst) < 10 {
        sleep(Duration::from_millis(10)).await;
    }
    let before = begun.load(Ordering::SeqCst);
    node.stop().await.unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), before);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_goes_on_after_the_soft_timeout_hears_of_graver_reasons() {
    let world = World::new();
    let job = world.job("goes on", |ctx| async move {
        assert_eq!(ctx.cancelled().await, CancelReason::SoftTimeout);
        let graver = ctx.cancelled_beyond(CancelReason::SoftTimeout).await;
        assert_eq!(graver, CancelReason::Requested);
        Err::<(), _>("told twice".into())
    });
    let id = world.enqueue(job.timeout(100 * SECOND)).await;
    let node = world.start();
    sleep(85 * SECOND).await;
    node.node.client().cancel(id).await.unwrap();
    let job = world.ended(id).await;
    assert_eq!(job.state, JobState::Cancelled);
    let ran = world.store_history(id).await[0].ran_for.unwrap();
    assert!(ran < 95 * SECOND, "told after {ran:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_cancelled_before_its_body_begins_does_not_run() {
    let world = World::new();
    let ran = Arc::new(AtomicBool::new(false));
    // The node prefetches only once it has run many quick jobs, so these are enqueued first.
    for number in 0..300 {
        world
            .enqueue(world.job(&number.to_string(), |_| async { Ok(()) }))
            .await;
    }
    let blocker = world.job("blocker", |_| async {
        sleep(20 * SECOND).await;
        Ok(())
    });
    let victim = world.job("victim", {
        let ran = Arc::clone(&ran);
        move |_| {
            ran.store(true, Ordering::SeqCst);
            async { Ok(()) }
        }
    });
    world.enqueue(blocker).await;
    let victim = world.enqueue(victim).await;
    let builder = world.builder().concurrency(1).start_timeout(600 * SECOND);
    let _node = Started::new(builder.prefetch_ttl(300 * SECOND).build().unwrap());
    world
        .until(victim, |job| job.state == JobState::Running)
        .await;
    let client = ratchet_core::Ratchet::client(Arc::new(world.store.clone()));
    client.cancel(victim).await.unwrap();
    let job = world.ended(victim).await;
    assert_eq!((job.state, job.attempts), (JobState::Cancelled, 0));
    assert!(!ran.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn old_wakeups_and_eager_heartbeats_cause_no_storm_of_calls() {
    let world = World::new();
    let coordinator = InProcessCoordinator::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let store = world.store.clone().with_faults({
        let calls = Arc::clone(&calls);
        move |operation| {
            let counted = matches!(operation, "claim_next_batch" | "report");
            calls.fetch_add(usize::from(counted), Ordering::SeqCst);
            Fault::None
        }
    });
    let eager = world.job("eager", |ctx| async move {
        for _ in 0..5_000 {
            sleep(Duration::from_millis(1)).await;
            ctx.heartbeat();
        }
        Ok(())
    });
    let eager = world.enqueue(eager.stall_timeout(10 * SECOND)).await;
    let builder = world.builder_on(store).concurrency(1).prefetch(0);
    let _node = Started::new(builder.coordinator(coordinator.clone()).build().unwrap());
    world
        .until(eager, |job| job.state == JobState::Running)
        .await;
    for _ in 0..900 {
        coordinator.notify(Wakeup::any()).await;
    }
    world.ended(eager).await;
    sleep(SECOND).await;
    let calls = calls.load(Ordering::SeqCst);
    assert!(
        calls < 40,
        "expected fewer than 40 calls in six seconds, found {calls}"
    );
}

/// A coordinator that never finishes sending a wakeup.
#[derive(Debug)]
struct Hanging;

#[async_trait]
impl ClusterCoordinator for Hanging {
    async fn notify(&self, _: Wakeup) {
        std::future::pending::<()>().await;
    }

    fn subscribe(&self) -> WakeupStream {
        WakeupStream::never()
    }

    fn reaches_all_nodes(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_hangs_holds_no_enqueue_up() {
    let world = World::new();
    let client = ratchet_core::Ratchet::client(Arc::new(world.store.clone()));
    let client = client.with_coordinator(Hanging);
    let job = world.job("stored", |_| async { Ok(()) });
    let enqueued = tokio::time::timeout(SECOND, client.enqueue(job)).await;
    assert!(enqueued.unwrap().is_ok());
}
