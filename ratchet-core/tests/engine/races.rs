//! Tests that force calls of several nodes into a given order. `docs/races.md` lists all such
//! races.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::cluster::{ClusterCoordinator, InProcessCoordinator, Wakeup, WakeupStream};
use ratchet_core::memory::Fault;
use ratchet_core::model::{Guarded, NodeStatus, NodeSweep};
use ratchet_core::store::NodeStore;
use ratchet_core::time::monotonic;
use ratchet_core::{JobState, MemoryStore, NewJob, NodeBuilder, RunError};
use tokio::time::sleep;

use crate::kit::{Started, World, stop_all};

const SECOND: Duration = Duration::from_secs(1);

fn start(builder: NodeBuilder) -> Started {
    Started::new(builder.build().unwrap())
}

/// Waits until `is` returns true.
async fn until(is: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if is() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("the condition should have become true");
}

/// Returns a handle on the store on which calls that `cut` selects fail while `away` is set.
fn cut_off(
    world: &World,
    away: &Arc<AtomicBool>,
    cut: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> MemoryStore {
    let away = Arc::clone(away);
    world.store.clone().with_faults(move |operation| {
        match away.load(Ordering::SeqCst) && cut(operation) {
            true => Fault::ErrorBeforeCommit,
            false => Fault::None,
        }
    })
}

/// Returns a job whose first body sleeps for `first`, even if it is cancelled, and whose later
/// bodies end at once. Each body returns its number; the first is 0.
fn slow_at_first(world: &World, name: &str, first: Duration) -> NewJob {
    let bodies = AtomicUsize::new(0);
    world.job(name, move |_| {
        let body = bodies.fetch_add(1, Ordering::SeqCst);
        async move {
            if body == 0 {
                sleep(first).await;
            }
            Ok(body)
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_that_another_node_has_finished_is_stale_and_counted() {
    let world = World::new();
    let away = Arc::new(AtomicBool::new(false));
    let id = world
        .enqueue(slow_at_first(&world, "taken", 40 * SECOND))
        .await;
    let cut = cut_off(&world, &away, |_| true);
    let late = start(world.builder_on(cut));
    world.until(id, |job| job.state == JobState::Running).await;
    away.store(true, Ordering::SeqCst);
    let other = world.start();
    let ended = world.ended(id).await;
    // In this time, the first body ends, but its node still cannot reach the store.
    sleep(40 * SECOND).await;
    away.store(false, Ordering::SeqCst);
    until(|| late.node.stats().stale == 1).await;
    let after = world.read(id).await;
    assert_eq!(after, ended);
    let result = after.result.unwrap();
    assert_eq!(
        (result.as_str(), after.crash_count, after.claim_seq),
        ("1", 1, 2)
    );
    assert_eq!(
        (late.node.stats().settled, other.node.stats().stale),
        (0, 0)
    );
    late.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_leads_again_has_a_new_term_and_its_jobs_go_on() {
    let world = World::new();
    let away = Arc::new(AtomicBool::new(false));
    let id = world
        .enqueue(slow_at_first(&world, "long", 120 * SECOND))
        .await;
    let cut = cut_off(&world, &away, |operation| {
        matches!(operation, "renew" | "acquire")
    });
    let node = start(world.builder_on(cut).active_passive("active"));
    world.until(id, |job| job.state == JobState::Running).await;
    let leadership = node.node.leadership("active").unwrap();
    let (term, guard) = (leadership.term(), leadership.guard().unwrap());
    away.store(true, Ordering::SeqCst);
    until(|| !leadership.is_leader()).await;
    // The node has already stopped leading. In this time, its lock also expires in the store.
    sleep(20 * SECOND).await;
    away.store(false, Ordering::SeqCst);
    until(|| leadership.is_leader()).await;
    assert!(leadership.term() > term);
    let sweep = |guard| NodeSweep::new(3_600 * SECOND, 3_600 * SECOND).guarded(Some(guard));
    let swept = world.store.sweep_nodes(&sweep(guard)).await.unwrap();
    assert_eq!(swept, Guarded::Stale);
    let present = leadership.guard().unwrap();
    let swept = world.store.sweep_nodes(&sweep(present)).await.unwrap();
    assert!(matches!(swept, Guarded::Done(_)));
    // A claim stays valid whichever node leads.
    let ended = world.ended(id).await;
    assert_eq!((ended.state, ended.claim_seq), (JobState::Succeeded, 1));
}

#[tokio::test(start_paused = true)]
async fn who_is_displaced_loses_its_claims_and_its_roles_to_the_new_node() {
    let world = World::new();
    let id = world
        .enqueue(slow_at_first(&world, "taken", 3_600 * SECOND))
        .await;
    let old = start(world.builder().label("only one"));
    world.until(id, |job| job.state == JobState::Running).await;
    let leadership = old.node.leadership("maintenance").unwrap();
    until(|| leadership.is_leader()).await;
    let new = start(world.builder().label("only one"));
    let error = old.ended().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "another node runs under the label only one and has replaced this node; every running node \
         needs its own label"
    );
    assert!(matches!(error, RunError::Displaced { label } if label == "only one"));
    assert!(!leadership.is_leader());
    let displaced = monotonic();
    until(|| new.node.leadership("maintenance").unwrap().is_leader()).await;
    assert!(displaced.elapsed() <= 4 * SECOND);
    let ended = world.ended(id).await;
    assert_eq!((ended.state, ended.claim_seq), (JobState::Succeeded, 2));
    assert_eq!(new.node.stats().settled, 1);
}

#[tokio::test(start_paused = true)]
async fn where_the_registry_is_emptied_all_register_again_and_no_job_is_taken() {
    for seed in 0..10 {
        let world = World::new();
        let mut ids = Vec::new();
        for number in 0..8 {
            let job = slow_at_first(&world, &number.to_string(), 300 * SECOND);
            ids.push(world.enqueue(job).await);
        }
        let node = |seed| start(world.builder().concurrency(4).prefetch(0).seed(seed));
        let nodes = [node(2 * seed), node(2 * seed + 1)];
        for _ in 0..5 {
            // After this sleep, each claim is so old that it would be reclaimed if the store did
            // not know its node.
            sleep(40 * SECOND + Duration::from_millis(700)).await;
            world.store.lose_nodes();
            // In this time, each node that holds a claim sends one heartbeat, and so registers
            // again.
            sleep(5 * SECOND).await;
            let rows = world.store.nodes().await.unwrap();
            assert_eq!(rows.len(), 2, "seed {seed}");
            assert!(rows.iter().all(|row| row.status == NodeStatus::Active));
        }
        for id in ids {
            let job = world.ended(id).await;
            let lost = (job.claim_seq - 1, job.crash_count);
            assert_eq!((job.state, lost), (JobState::Succeeded, (0, 0)));
        }
        stop_all(nodes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_node_held_that_died_with_the_registry_comes_back() {
    let world = World::new();
    let id = world
        .enqueue(slow_at_first(&world, "taken", 3_600 * SECOND))
        .await;
    let dying = world.start();
    world.until(id, |job| job.state == JobState::Running).await;
    let _other = world.start();
    sleep(60 * SECOND).await;
    dying.kill().await;
    world.store.lose_nodes();
    let died = monotonic();
    let ended = world.ended(id).await;
    assert_eq!((ended.state, ended.crash_count), (JobState::Succeeded, 1));
    // In 60 s, the lock of the dead leader expires, the other node registers again and is elected,
    // and one of its reclaim passes takes the job back.
    assert!(died.elapsed() <= 60 * SECOND, "{:?}", died.elapsed());
}

/// A coordinator that delivers wakeups a second late.
#[derive(Clone, Debug)]
struct Late(InProcessCoordinator);

#[async_trait]
impl ClusterCoordinator for Late {
    async fn notify(&self, wakeup: Wakeup) {
        let inner = self.0.clone();
        tokio::spawn(async move {
            sleep(SECOND).await;
            inner.notify(wakeup).await;
        });
    }

    fn subscribe(&self) -> WakeupStream {
        self.0.subscribe()
    }

    fn reaches_all_nodes(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_not_woken_by_its_own_echo() {
    let world = World::new();
    let coordinator = Late(InProcessCoordinator::new());
    let builder = world.builder().coordinator(coordinator.clone());
    let builder = builder.poll_interval(100 * SECOND, 100 * SECOND);
    let node = start(builder.system_concurrency(0));
    sleep(SECOND).await;
    let job = |name: &str| world.job(name, |_| async { Ok(()) });
    let id = node.node.enqueue(job("own")).await.unwrap().id();
    world.ended(id).await;
    let calls = node.node.stats().claim_calls;
    sleep(5 * SECOND).await;
    assert_eq!(
        node.node.stats().claim_calls,
        calls,
        "expected no claim: a node's own wakeup must not wake it"
    );
    // A wakeup that another client sends does wake the node.
    let client = ratchet_core::Ratchet::client(Arc::new(world.store.clone()));
    let other = client.with_coordinator(coordinator);
    let id = other.enqueue(job("another's")).await.unwrap().id();
    let enqueued = monotonic();
    world.ended(id).await;
    assert!(enqueued.elapsed() <= 2 * SECOND, "{:?}", enqueued.elapsed());
}
