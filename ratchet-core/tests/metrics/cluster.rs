use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::cluster::{
    ClusterCoordinator, Election, InProcessCoordinator, Wakeup, WakeupStream,
};
use ratchet_core::memory::{Fault, ManualClock};
use ratchet_core::metrics::*;
use ratchet_core::model::{Claim, Heartbeat, NodeStatus};
use ratchet_core::store::{LockStore, NodeStore};
use ratchet_core::{JobState, MemoryStore, Name, NodeHook, NodeId, Ratchet, RunError, time};
use tokio::time::sleep;

use crate::jobs::talks;
use crate::kit::{Started, World};
use crate::recorder::Metrics;

const SECOND: Duration = Duration::from_secs(1);
const MAINTENANCE: (&str, &str) = ("role", "maintenance");

/// Returns a handle on the store. While `away` is set, its operations in `only` fail, or all
/// operations if `only` is empty.
fn cut_off(store: &MemoryStore, away: &Arc<AtomicBool>, only: &'static [&str]) -> MemoryStore {
    let away = Arc::clone(away);
    store.clone().with_faults(move |operation| {
        let concerned = only.is_empty() || only.contains(&operation);
        match concerned && away.load(Ordering::SeqCst) {
            true => Fault::ErrorBeforeCommit,
            false => Fault::None,
        }
    })
}

pub(crate) async fn what_a_node_loses_while_it_is_taken_for_dead(metrics: &Metrics) {
    let world = World::new();
    let (away, ends) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let job = world.enqueue(talks(&world, &ends)).await;
    // While `away` is set, the heartbeats of the node fail, and its other calls succeed.
    let store = cut_off(&world.store, &away, &["heartbeat"]);
    let node = Started::new(world.builder_on(store).label("slow").build().unwrap());
    world.until(job, |job| job.state == JobState::Running).await;
    let other = world.start();
    away.store(true, Ordering::SeqCst);
    world.until(job, |job| job.crash_count == 1).await;
    sleep(2 * SECOND).await;
    assert_eq!(
        metrics.sum(CLAIMS_RECLAIMED, &[("reason", "owner_lost")]),
        1.0
    );
    assert_eq!(metrics.sum(NODES_DIED, &[]), 1.0);
    assert!(metrics.sum(HEARTBEATS, &[("outcome", "failed")]) >= 1.0);
    // The reports of the body are stale.
    assert_eq!(metrics.sum(REPORTS, &[("outcome", "stale")]), 1.0);
    assert_eq!(metrics.sum(CLAIMS_LOST, &[("during", "run")]), 1.0);
    away.store(false, Ordering::SeqCst);
    sleep(10 * SECOND).await;
    assert_eq!(metrics.sum(TAKEN_FOR_DEAD, &[("result", "renewed")]), 1.0);
    ends.store(true, Ordering::SeqCst);
    world.ended(job).await;
    // The body of this job reports nothing, and ends after the job was reclaimed.
    let hold = Arc::new(AtomicBool::new(true));
    let quiet = world.job("quiet", {
        let hold = Arc::clone(&hold);
        move |_| {
            let hold = Arc::clone(&hold);
            async move {
                while hold.load(Ordering::SeqCst) {
                    sleep(SECOND / 10).await;
                }
                Ok(())
            }
        }
    });
    let slow_only = cut_off(&world.store, &away, &["heartbeat", "report"]);
    node.stop().await.unwrap();
    other.stop().await.unwrap();
    let node = Started::new(world.builder_on(slow_only).label("slow").build().unwrap());
    let quiet = world.enqueue(quiet).await;
    world
        .until(quiet, |job| job.state == JobState::Running)
        .await;
    let other = world.start();
    away.store(true, Ordering::SeqCst);
    world.until(quiet, |job| job.crash_count == 1).await;
    hold.store(false, Ordering::SeqCst);
    world.ended(quiet).await;
    sleep(SECOND).await;
    assert_eq!(metrics.sum(SETTLEMENTS_STALE, &[("pool", "default")]), 1.0);
    away.store(false, Ordering::SeqCst);
    node.stop().await.unwrap();
    // A second node starts with the label of a running node, and so displaces it.
    let old = Started::new(world.builder().label("one").build().unwrap());
    sleep(SECOND).await;
    let new = Started::new(world.builder().label("one").build().unwrap());
    assert!(matches!(old.ended().await, Err(RunError::Displaced { .. })));
    assert_eq!(metrics.sum(TAKEN_FOR_DEAD, &[("result", "displaced")]), 1.0);
    new.stop().await.unwrap();
    other.stop().await.unwrap();
}

pub(crate) async fn who_leads_and_who_stops_to(metrics: &Metrics) {
    let world = World::new();
    let away = Arc::new(AtomicBool::new(false));
    let store = cut_off(&world.store, &away, &["renew", "acquire"]);
    let builder = world.builder_on(store).role("pricing");
    away.store(true, Ordering::SeqCst);
    let leader = Started::new(builder.build().unwrap());
    sleep(SECOND).await;
    // The node is a candidate for the role but does not lead, so its gauge is 0.
    assert_eq!(metrics.values(LEADER, &[("role", "pricing")]), [0.0]);
    away.store(false, Ordering::SeqCst);
    sleep(5 * SECOND).await;
    let standby = Started::new(world.builder().role("pricing").build().unwrap());
    sleep(10 * SECOND).await;
    let pricing = ("role", "pricing");
    let turns = |outcome| metrics.sum(ELECTION_TURNS, &[pricing, ("outcome", outcome)]);
    assert_eq!(turns("elected"), 1.0);
    assert!(turns("renewed") >= 3.0);
    assert!(turns("other_leader") >= 3.0);
    assert_eq!(metrics.sum(LEADER, &[pricing]), 1.0);
    let term = metrics.sum(LEADER_TERM, &[pricing]);
    assert!(term >= 1.0);
    // A leader that cannot renew its lock stops leading, for the reason `fenced`. The other node
    // leads in the next term.
    away.store(true, Ordering::SeqCst);
    sleep(20 * SECOND).await;
    let stepped_down = |reason| metrics.sum(STEP_DOWNS, &[pricing, ("reason", reason)]);
    assert_eq!(stepped_down("fenced"), 1.0);
    assert!(turns("failed") >= 1.0);
    assert_eq!(metrics.sum(LEADER, &[pricing]), 1.0);
    assert!(metrics.sum(LEADER_TERM, &[pricing]) > term);
    standby.stop().await.unwrap();
    assert_eq!(stepped_down("resigned"), 1.0);
    assert_eq!(metrics.sum(LEADER, &[pricing]), 0.0);
    assert!(
        !metrics
            .values(STORE_BACKOFF, &[("loop", "leader")])
            .is_empty()
    );
    leader.kill().await;
}

pub(crate) async fn writes_of_a_superseded_leader_are_refused(metrics: &Metrics) {
    let world = World::new();
    let builder = world.builder().maintenance_interval(SECOND / 5);
    let builder = builder.reclaim_interval(SECOND / 5);
    let node = Started::new(builder.build().unwrap());
    // After 46 s, the leader has led long enough to mark silent nodes dead.
    sleep(46 * SECOND).await;
    // This node sends only one heartbeat. So it is silent for long enough to be swept soon after
    // another owner has taken the lock.
    let label = Name::new("label", "silent").unwrap();
    let silent = Heartbeat::new(NodeId::new(), label, NodeStatus::Active, SECOND);
    world.store.heartbeat(&silent).await.unwrap();
    sleep(15 * SECOND).await;
    // Another owner takes the lock without the leader noticing.
    let lock = Election::lock_of(&Name::new("role", "maintenance").unwrap()).unwrap();
    let held = world.store.inspect(&lock).await.unwrap().unwrap();
    let holder = held.holder.unwrap();
    let locks: &dyn LockStore = &world.store;
    locks
        .release(&lock, &holder.owner, held.fence)
        .await
        .unwrap();
    let thief = Name::new("owner", "thief").unwrap();
    locks.acquire(&lock, &thief, 60 * SECOND).await.unwrap();
    sleep(5 * SECOND).await;
    for write in ["maintenance", "sweep"] {
        let refused = metrics.sum(GUARDED_WRITES_STALE, &[("write", write)]);
        assert!(refused >= 1.0, "{write}");
    }
    let superseded = [MAINTENANCE, ("reason", "superseded")];
    assert_eq!(metrics.sum(STEP_DOWNS, &superseded), 1.0);
    assert_eq!(
        metrics.sum(ELECTION_TURNS, &[MAINTENANCE, ("outcome", "conflict")]),
        1.0
    );
    node.stop().await.unwrap();
}

pub(crate) async fn nodes_and_slots_are_there_while_they_run(metrics: &Metrics) {
    let mut world = World::new();
    let clock = ManualClock::new(time::add(time::wall_clock(), 120 * SECOND));
    world.store = MemoryStore::with_clock(clock);
    let nodes = [world.start(), world.start()];
    sleep(SECOND).await;
    assert_eq!(metrics.sum(NODES, &[("status", "active")]), 2.0);
    assert_eq!(metrics.sum(NODES, &[]), 2.0);
    assert_eq!(metrics.sum(SLOTS, &[("pool", "default")]), 64.0);
    let skew = metrics.sum(CLOCK_SKEW, &[]);
    assert!((-121.0..=-119.0).contains(&skew), "{skew}");
    assert!(metrics.sum(HEARTBEATS, &[("outcome", "ok")]) >= 4.0);
    let [stopped, killed] = nodes;
    stopped.stop().await.unwrap();
    assert_eq!(metrics.sum(NODES, &[]), 1.0);
    assert_eq!(metrics.sum(SLOTS, &[("pool", "default")]), 32.0);
    killed.kill().await;
    assert_eq!(
        (metrics.sum(NODES, &[]), metrics.sum(SLOTS, &[])),
        (0.0, 0.0)
    );
}

pub(crate) async fn daemons_that_fail_are_started_again(metrics: &Metrics) {
    let world = World::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let builder = world.builder().daemon("feed", move |ctx| {
        let number = runs.fetch_add(1, Ordering::SeqCst);
        async move {
            if number < 2 {
                return Err("it fails".into());
            }
            ctx.stopped().await;
            Ok(())
        }
    });
    let node = Started::new(builder.build().unwrap());
    sleep(60 * SECOND).await;
    let feed = [("role", "feed")];
    assert_eq!(metrics.sum(DAEMON_STARTS, &feed), 3.0);
    assert_eq!(metrics.sum(DAEMON_FAILURES, &feed), 2.0);
    node.stop().await.unwrap();
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

pub(crate) async fn wakeups_are_sent_received_and_lost(metrics: &Metrics) {
    let world = World::new();
    let transport = InProcessCoordinator::new();
    let builder = world.builder().coordinator(transport.clone());
    let node = Started::new(builder.build().unwrap());
    // After this sleep, the leader searches for due jobs only in half a second. So its search sends
    // no wakeup for the job.
    sleep(10 * SECOND + SECOND / 2).await;
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let client = client.with_coordinator(transport.clone());
    let received = || metrics.sum(WAKEUPS_RECEIVED, &[("pool", "default")]);
    let before = received();
    let id = client
        .enqueue(world.job("wakes", |_| async { Ok(()) }))
        .await;
    world.ended(id.unwrap().id()).await;
    assert_eq!(metrics.sum(WAKEUPS_SENT, &[("outcome", "sent")]), 1.0);
    assert_eq!(received(), before + 1.0);
    // A subscription loses wakeups if too many arrive at once.
    sleep(10 * SECOND).await;
    for _ in 0..3_000 {
        transport.notify(Wakeup::any()).await;
    }
    sleep(SECOND).await;
    assert!(metrics.sum(WAKEUPS_LOST, &[]) > 1_000.0);
    let hangs = client.with_coordinator(Hanging);
    let job = world.job("waits", |_| async { Ok(()) });
    hangs.enqueue(job).await.unwrap();
    assert_eq!(metrics.sum(WAKEUPS_SENT, &[("outcome", "given_up")]), 1.0);
    // Coordinators call this function during an outage of their transport.
    coordinator_outage();
    assert_eq!(metrics.sum(COORDINATOR_OUTAGES, &[]), 1.0);
    // The HTTP API calls this function with the result of its check whether any node runs jobs.
    for (judged, shown) in [(true, 1.0), (false, 0.0)] {
        nothing_runs(judged);
        assert_eq!(metrics.sum(NOTHING_RUNS, &[]), shown);
    }
    node.stop().await.unwrap();
}

pub(crate) async fn a_drain_is_clean_or_not(metrics: &Metrics) {
    let world = World::new();
    let drains = |result| metrics.values(DRAIN, &[("result", result)]);
    world.start().stop().await.unwrap();
    let started = world.start();
    sleep(SECOND).await;
    started.stop().await.unwrap();
    assert_eq!(drains("clean").len(), 1);
    let away = Arc::new(AtomicBool::new(false));
    for (result, seconds) in [("interrupted", 3.0), ("abandoned", 14.0)] {
        let job = world.job(result, |_| async {
            sleep(3_600 * SECOND).await;
            Ok(())
        });
        let id = world.enqueue(job).await;
        let store = cut_off(&world.store, &away, &["settle"]);
        let builder = world.builder_on(store).drain_grace(3 * SECOND);
        let node = Started::new(builder.build().unwrap());
        world.until(id, |job| job.state == JobState::Running).await;
        away.store(result == "abandoned", Ordering::SeqCst);
        node.stop().await.unwrap();
        away.store(false, Ordering::SeqCst);
        let took = drains(result);
        assert!(took.len() == 1 && took[0] >= seconds, "{result}: {took:?}");
    }
}

/// A coordinator that panics when a node subscribes to its wakeups.
#[derive(Debug)]
struct Broken;

#[async_trait]
impl ClusterCoordinator for Broken {
    async fn notify(&self, _: Wakeup) {}

    fn subscribe(&self) -> WakeupStream {
        panic!("planned panic of a transport")
    }

    fn reaches_all_nodes(&self) -> bool {
        true
    }
}

struct Panics;

impl NodeHook for Panics {
    fn job_started(&self, _: &Claim) {
        panic!("planned panic of a hook");
    }
}

pub(crate) async fn panics_of_loops_and_hooks_are_counted(metrics: &Metrics) {
    let world = World::new();
    let node = Started::new(world.builder().hook(Panics).build().unwrap());
    let id = world.enqueue(world.job("runs", |_| async { Ok(()) })).await;
    world.ended(id).await;
    assert_eq!(metrics.sum(HOOK_PANICS, &[]), 1.0);
    node.stop().await.unwrap();
    let node = Started::new(world.builder().coordinator(Broken).build().unwrap());
    sleep(5 * SECOND).await;
    assert!(metrics.sum(LOOP_PANICS, &[("loop", "poller")]) >= 2.0);
    node.stop().await.unwrap();
}
