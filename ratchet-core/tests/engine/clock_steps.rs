//! How a cluster behaves when the database's clock is set forward or back while it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::cluster::{LeaderTimings, Leadership};
use ratchet_core::memory::{Fault, ManualClock};
use ratchet_core::model::{Heartbeat, NodeStatus};
use ratchet_core::store::NodeStore;
use ratchet_core::time::{monotonic, wall_clock};
use ratchet_core::{JobId, JobState, MemoryStore, Name, NewJob, NodeBuilder, NodeId};
use tokio::time::sleep;

use crate::kit::{Started, World, stop_all};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Returns a world, and the clock of its database. The clock runs, and the test can set it.
fn world() -> (World, ManualClock) {
    let clock = ManualClock::running(wall_clock());
    let mut world = World::new();
    world.store = MemoryStore::with_clock(clock.clone());
    (world, clock)
}

/// Sets the clock forward or back.
fn step(clock: &ManualClock, forward: bool, by: Duration) {
    if forward {
        clock.advance(by);
    } else {
        clock.set_back(by);
    }
}

fn start(builder: NodeBuilder) -> Started {
    Started::new(builder.build().unwrap())
}

fn maintenance(node: &Started) -> Leadership {
    node.node.leadership("maintenance").unwrap()
}

/// Returns the nodes whose stored status is active.
async fn active(world: &World) -> Vec<NodeId> {
    let rows = world.store.nodes().await.unwrap();
    let active = rows
        .iter()
        .filter(|row| row.status == NodeStatus::Active)
        .map(|row| row.node);
    let mut active: Vec<NodeId> = active.collect();
    active.sort();
    active
}

/// Adds a node that sends no heartbeat from now on, so there is a node to sweep in 15 s.
async fn fall_silent(world: &World) {
    let (node, label) = (NodeId::new(), NodeId::new().to_string());
    let label = Name::new("label", label).unwrap();
    let silent = Heartbeat::new(node, label, NodeStatus::Active, SECOND);
    world.store.heartbeat(&silent).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_buries_no_node() {
    for forward in [true, false] {
        for phase in 0..8 {
            let (world, clock) = world();
            let nodes: Vec<Started> = (0..3)
                .map(|seed| start(world.builder().seed(seed)))
                .collect();
            // After this sleep, two of the nodes are idle and send a heartbeat only every 30 s. So
            // between two heartbeats they are silent for longer than `dead_after`.
            sleep(200 * SECOND + phase * 3_800 * MILLI).await;
            let before = active(&world).await;
            step(&clock, forward, HOUR);
            for _ in 0..24 {
                sleep(5 * SECOND).await;
                let rows = world.store.nodes().await.unwrap();
                assert_eq!(rows.len(), 3, "phase {phase}: {rows:#?}");
            }
            assert_eq!(active(&world).await, before, "phase {phase}");
            stop_all(nodes).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_between_a_heartbeat_and_its_sweep_buries_no_node() {
    let (world, clock) = world();
    for operation in ["nodes", "sweep_nodes", "reclaim"] {
        let armed = Arc::new(AtomicBool::new(false));
        let faulty = world.store.clone().with_faults({
            let (armed, clock) = (Arc::clone(&armed), clock.clone());
            move |called| {
                if called == operation && armed.swap(false, Ordering::SeqCst) {
                    clock.advance(HOUR);
                }
                Fault::None
            }
        });
        let nodes: Vec<Started> = (0..3)
            .map(|seed| start(world.builder_on(faulty.clone()).seed(seed)))
            .collect();
        let id = world.enqueue(long(&world, operation, 400)).await;
        sleep(200 * SECOND).await;
        let before = active(&world).await;
        fall_silent(&world).await;
        armed.store(true, Ordering::SeqCst);
        sleep(100 * SECOND).await;
        assert!(
            !armed.load(Ordering::SeqCst),
            "expected the leader to call {operation}"
        );
        assert_eq!(active(&world).await, before);
        assert_untouched(&world, id).await;
        stop_all(nodes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_step_the_wait_until_silence_counts_begins_anew() {
    for forward in [true, false] {
        let (world, clock) = world();
        let sweeps = Arc::new(Mutex::new(Vec::new()));
        let watched = world.store.clone().with_faults({
            let sweeps = Arc::clone(&sweeps);
            move |called| {
                if called == "sweep_nodes" {
                    sweeps.lock().unwrap().push(monotonic());
                }
                Fault::None
            }
        });
        let node = start(world.builder_on(watched));
        // Adds a silent node every second, so that each pass of the leader has a node to sweep.
        let minute = async || {
            for _ in 0..60 {
                fall_silent(&world).await;
                sleep(SECOND).await;
            }
        };
        minute().await;
        step(&clock, forward, HOUR);
        let stepped = monotonic();
        minute().await;
        let sweeps = sweeps.lock().unwrap().clone();
        let passes = sweeps.iter().filter(|at| **at < stepped).count();
        assert!(
            passes >= 5,
            "expected at least 5 sweeps of the leader before the step, found \
             {passes}"
        );
        // The leader waits for `dead_after` from the heartbeat that noticed the step, and then
        // until its next pass.
        let next = sweeps.iter().find(|at| **at >= stepped).unwrap();
        let waited = *next - stepped;
        assert!((15..=26).contains(&waited.as_secs()), "{waited:?}");
        node.stop().await.unwrap();
    }
}

/// Returns a job that reports every 40 s. This is longer than the time after which a silent node
/// counts as dead.
fn long(world: &World, name: &str, seconds: u32) -> NewJob {
    world.job(name, move |ctx| async move {
        for _ in 0..seconds / 40 {
            sleep(40 * SECOND).await;
            ctx.heartbeat();
        }
        Ok(())
    })
}

/// Waits for the end of a job, and checks that its first claim was never reclaimed.
async fn assert_untouched(world: &World, id: JobId) {
    let job = world.ended(id).await;
    assert_eq!(
        (job.state, job.claim_seq, job.crash_count),
        (JobState::Succeeded, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_takes_no_claim_of_a_living_node() {
    for forward in [true, false] {
        for phase in 0..4 {
            let (world, clock) = world();
            let plain = long(&world, "plain", 400);
            let stalls = long(&world, "stalls", 400).stall_timeout(60 * SECOND);
            let times_out = long(&world, "times out", 400).timeout(600 * SECOND);
            let mut ids = Vec::new();
            for job in [plain, stalls, times_out] {
                ids.push(world.enqueue(job).await);
            }
            let nodes: Vec<Started> = (0..2)
                .map(|seed| start(world.builder().seed(seed)))
                .collect();
            sleep(50 * SECOND + phase * 1_700 * MILLI).await;
            step(&clock, forward, HOUR);
            for id in ids {
                assert_untouched(&world, id).await;
            }
            stop_all(nodes).await;
        }
    }
}

/// Starts two nodes and a job whose first body hangs; returns the job, its node and the other node.
async fn one_holds(world: &World) -> (JobId, Started, Started) {
    let first = Arc::new(AtomicBool::new(true));
    let job = world.job("hangs once", move |_| {
        let hangs = first.swap(false, Ordering::SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let id = world.enqueue(job).await;
    let (one, other) = (world.start(), world.start());
    world.until(id, |job| job.state == JobState::Running).await;
    sleep(60 * SECOND).await;
    match one.node.stats().claimed {
        1 => (id, one, other),
        _ => (id, other, one),
    }
}

/// The maximum time from the death of a node until its job is reclaimed, if the clock does not
/// step. It is the sum of three times: until the node counts as dead, until a leader is elected,
/// and until this leader makes its next pass.
const RECOVERY: Duration = Duration::from_secs(15 + 15 + 6);

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_after_a_step_is_followed_as_soon_as_ever() {
    for forward in [true, false] {
        let (world, clock) = world();
        let (id, holder, _other) = one_holds(&world).await;
        step(&clock, forward, HOUR);
        // The nodes notice the step with their next heartbeats. They then wait before they count a
        // node as silent. After 25 s, this wait is over.
        sleep(25 * SECOND).await;
        holder.kill().await;
        let died = monotonic();
        // After a step back, the reclaimed job becomes due only later. So the test waits for the
        // reclaim, and not for the end of the job.
        world.until(id, |job| job.crash_count == 1).await;
        assert!(died.elapsed() <= RECOVERY, "{:?}", died.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_at_a_step_forward_is_followed_after_the_wait() {
    let (world, clock) = world();
    let (id, holder, _other) = one_holds(&world).await;
    holder.kill().await;
    clock.advance(HOUR);
    let died = monotonic();
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    // The other node notices the step with its next heartbeat, at most 5 s later. Only then does
    // its wait begin.
    let bound = RECOVERY + 5 * SECOND;
    assert!(died.elapsed() <= bound, "{:?}", died.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_at_a_step_back_is_followed_late_by_the_step_at_most() {
    let (world, clock) = world();
    let (id, holder, _other) = one_holds(&world).await;
    holder.kill().await;
    clock.set_back(100 * SECOND);
    let died = monotonic();
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    let late = died.elapsed();
    assert!(
        late > 100 * SECOND && late <= 100 * SECOND + RECOVERY,
        "{late:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_step_forward_no_node_leads_beside_the_old_leader() {
    for phase in 0..30 {
        let (world, clock) = world();
        let mut nodes = Vec::new();
        for seed in 0..3 {
            // The nodes start at different times, so they try to be elected at different times.
            nodes.push(start(world.builder().seed(seed)));
            sleep(700 * MILLI).await;
        }
        sleep(20 * SECOND + phase * 100 * MILLI).await;
        let old = nodes.iter().position(|node| maintenance(node).is_leader());
        let old = maintenance(&nodes[old.unwrap()]);
        let term = old.term().unwrap();
        clock.advance(HOUR);
        for _ in 0..2_000 {
            sleep(10 * MILLI).await;
            let terms: Vec<_> = nodes
                .iter()
                .filter_map(|node| maintenance(node).term())
                .collect();
            assert!(terms.len() <= 1, "phase {phase}: {terms:?}");
        }
        let leaders = nodes.iter().filter(|node| maintenance(node).is_leader());
        assert_eq!(leaders.count(), 1);
        assert_ne!(old.term(), Some(term));
        stop_all(nodes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_step_back_the_leader_leads_on_alone() {
    for phase in 0..10 {
        let (world, clock) = world();
        let nodes: Vec<Started> = (0..3)
            .map(|seed| start(world.builder().seed(seed)))
            .collect();
        sleep(20 * SECOND + phase * 300 * MILLI).await;
        let leads = |node: &&Started| maintenance(node).is_leader();
        let term = maintenance(nodes.iter().find(leads).unwrap()).term();
        clock.set_back(HOUR);
        for _ in 0..600 {
            sleep(100 * MILLI).await;
            let mut terms = nodes.iter().filter_map(|node| maintenance(node).term());
            assert_eq!((terms.next(), terms.next()), (term, None));
        }
        stop_all(nodes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_at_a_step_back_is_followed_late_by_the_step_at_most() {
    let timings = LeaderTimings::default();
    let (world, clock) = world();
    let mut nodes = vec![world.start(), world.start()];
    sleep(20 * SECOND).await;
    let leader = nodes.iter().position(|node| maintenance(node).is_leader());
    nodes.remove(leader.unwrap()).kill().await;
    clock.set_back(100 * SECOND);
    let died = monotonic();
    while !maintenance(&nodes[0]).is_leader() {
        sleep(10 * MILLI).await;
    }
    let late = died.elapsed();
    let bound = 100 * SECOND + timings.ttl + timings.heartbeat;
    assert!(late > 100 * SECOND && late <= bound, "{late:?}");
}
