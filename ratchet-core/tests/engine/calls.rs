//! How many store calls the loops of a node make.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::cluster::InProcessCoordinator;
use ratchet_core::memory::Fault;
use ratchet_core::model::{Heartbeat, NodeProfile, NodeStatus, PoolProfile};
use ratchet_core::store::{NodeStore, Store};
use ratchet_core::{
    Client, JobState, MemoryStore, Name, NewJob, NodeBuilder, NodeId, Ratchet, RetryPolicy, time,
};
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep, timeout};

use crate::kit::{Started, World, stop_all};

/// The number of store calls by operation.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<BTreeMap<&'static str, usize>>>);

impl Calls {
    fn counted(&self) -> World {
        let mut world = World::new();
        let calls = self.clone();
        world.store = MemoryStore::clone(&world.store).with_faults(move |operation| {
            *calls.0.lock().unwrap().entry(operation).or_default() += 1;
            Fault::None
        });
        world
    }

    /// Returns how many calls of the operation there were since the last call of `take`.
    fn take(&self, operation: &'static str) -> usize {
        self.0.lock().unwrap().remove(operation).unwrap_or(0)
    }
}

#[tokio::test(start_paused = true)]
async fn short_jobs_add_no_heartbeats_to_those_of_the_interval() {
    let calls = Calls::default();
    let world = calls.counted();
    // The node may not lead, because a leader never uses the long idle interval.
    let node = world.builder().promotable(false).build().unwrap();
    let node = Started::new(node);
    let job = world.job("short", |_| async { Ok(()) });
    world.ended(world.enqueue(job.clone()).await).await;
    calls.take("heartbeat");
    for _ in 0..600 {
        node.node.enqueue(job.another()).await.unwrap();
        sleep(Duration::from_millis(100)).await;
    }
    // The node sends a heartbeat every five seconds of the minute, and up to one more at each end.
    let during = calls.take("heartbeat");
    assert!((12..=14).contains(&during), "{during} heartbeats");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn candidates_write_nothing_while_another_node_leads() {
    let calls = Calls::default();
    let world = calls.counted();
    let leader = world.start();
    sleep(Duration::from_secs(1)).await;
    assert!(calls.take("acquire") > 0);
    let others: Vec<Started> = (0..9).map(|_| world.start()).collect();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(calls.take("acquire"), 0);
    assert!(calls.take("inspect") > 0);
    stop_all(others.into_iter().chain([leader])).await;
}

/// A poll interval long enough that a job is found soon only if its node is woken.
const RARE: Duration = Duration::from_secs(24 * 3_600);

/// Enqueues twenty jobs, each after the previous one has ended.
async fn run_twenty(world: &World, client: &Client, job: &NewJob) {
    for _ in 0..20 {
        let id = client.enqueue(job.another()).await.unwrap().id();
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn one_enqueue_wakes_one_of_any_number_of_nodes() {
    for count in [1, 10, 100] {
        let calls = Calls::default();
        let world = calls.counted();
        let nodes: Vec<Started> = (0..count)
            .map(|_| Started::new(world.builder().poll_interval(RARE, RARE).build().unwrap()))
            .collect();
        sleep(Duration::from_secs(30)).await;
        let client = Ratchet::client(Arc::new(world.store.clone()));
        let job = world.job("short", |_| async { Ok(()) });
        // The first enqueue wakes all nodes, because its client does not know them yet.
        calls.take("claim_next_batch");
        let first = client.enqueue(job.another()).await.unwrap().id();
        world.ended(first).await;
        assert_eq!(calls.take("claim_next_batch"), count);
        for client in [&client, nodes[0].node.client()] {
            run_twenty(&world, client, &job).await;
            assert_eq!(calls.take("claim_next_batch"), 20, "{count} nodes");
        }
        stop_all(nodes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_was_there_before_the_nodes_soon_wakes_one_of_them() {
    let calls = Calls::default();
    let world = calls.counted();
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let job = world.job("short", |_| async { Ok(()) });
    client.enqueue(job.another()).await.unwrap();
    let start = |_| Started::new(world.builder().poll_interval(RARE, RARE).build().unwrap());
    let nodes: Vec<Started> = (0..10).map(start).collect();
    sleep(Duration::from_millis(1_100)).await;
    client.enqueue(job.another()).await.unwrap();
    // The leader searches for due jobs one second after the job was settled. Wait until this search
    // is over.
    sleep(Duration::from_millis(1_500)).await;
    calls.take("claim_next_batch");
    world.ended(client.enqueue(job).await.unwrap().id()).await;
    assert_eq!(calls.take("claim_next_batch"), 1);
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn more_jobs_than_one_node_can_run_wake_all_nodes() {
    let world = World::new();
    let nodes = [0, 1].map(|_| {
        let node = world.builder().concurrency(4).prefetch(0);
        Started::new(node.poll_interval(RARE, RARE).build().unwrap())
    });
    sleep(Duration::from_secs(30)).await;
    let together = Arc::new(Barrier::new(8));
    let job = world.job("together", move |_| {
        let together = Arc::clone(&together);
        async move {
            together.wait().await;
            Ok(())
        }
    });
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let jobs: Vec<NewJob> = (0..8).map(|_| job.another()).collect();
    // In the second round, the client knows the nodes and chooses which of them to wake.
    for _ in 0..2 {
        let jobs: Vec<NewJob> = jobs.iter().map(NewJob::another).collect();
        for answer in client.enqueue_all(&jobs).await.unwrap() {
            world.ended(answer.id()).await;
        }
    }
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_node_wakes_another_for_what_it_enqueues() {
    let world = World::new();
    let nodes = [0, 1].map(|_| {
        let node = world.builder().concurrency(1).prefetch(0);
        Started::new(node.poll_interval(RARE, RARE).build().unwrap())
    });
    sleep(Duration::from_secs(30)).await;
    let together = Arc::new(Barrier::new(2));
    let job = world.job("together", move |_| {
        let together = Arc::clone(&together);
        async move {
            together.wait().await;
            Ok(())
        }
    });
    for _ in 0..3 {
        let client = nodes[0].node.client();
        let first = client.enqueue(job.another()).await.unwrap().id();
        world
            .until(first, |job| job.state == JobState::Running)
            .await;
        let second = client.enqueue(job.another()).await.unwrap().id();
        world.ended(second).await;
        world.ended(first).await;
    }
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_only_woken_for_jobs_that_it_can_claim() {
    let world = World::new();
    let builder = || world.builder().poll_interval(RARE, RARE);
    // The last node claims nothing, because the other node with its role leads.
    let builders = [
        builder().concurrency(50).queues(["other"]),
        builder()
            .concurrency(50)
            .capabilities(["gpu"])
            .untagged(false),
        builder().active_passive("twins"),
        builder().concurrency(50).active_passive("twins"),
    ];
    let mut nodes = Vec::new();
    for builder in builders {
        nodes.push(Started::new(builder.build().unwrap()));
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(60)).await;
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let job = world.job("short", |_| async { Ok(()) });
    run_twenty(&world, &client, &job).await;
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn without_wakeups_between_processes_a_client_wakes_the_nodes_of_its_own() {
    let world = World::new();
    let processes = [0, 1].map(|_| InProcessCoordinator::new());
    let nodes = processes.clone().map(|process| {
        let node = world.builder().coordinator(process);
        Started::new(node.poll_interval(RARE, RARE).build().unwrap())
    });
    sleep(Duration::from_secs(30)).await;
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let client = client.with_coordinator(processes[0].clone());
    let job = world.job("short", |_| async { Ok(()) });
    run_twenty(&world, &client, &job).await;
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_node_has_died_is_found_by_the_second_look() {
    let calls = Calls::default();
    let world = calls.counted();
    // This node never polls, but the cluster still believes that it is alive.
    let name = |text| Name::new("name", text).unwrap();
    let mut profile = NodeProfile::new(vec![], vec![]).kinds(vec![name("scripted")]);
    profile.pools = Some(vec![PoolProfile::new(10, 10)]);
    let silent = Heartbeat::new(NodeId::new(), name("silent"), NodeStatus::Active, RARE);
    let silent = silent.profile(profile);
    world.store.heartbeat(&silent).await.unwrap();
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let job = world.job("short", |_| async { Ok(()) });
    client.enqueue(job.another()).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    let node = world.start();
    sleep(Duration::from_secs(20)).await;
    let began = time::monotonic();
    // The job is enqueued between two of the leader's searches for due jobs, which run every
    // second.
    let between = Duration::from_millis(5_500);
    calls.take("claim_next_batch");
    sleep(between).await;
    // The node polls rarely, so it finds the job only if it is woken.
    let polls = calls.take("claim_next_batch");
    assert!(polls <= 2, "{polls} polls");
    let id = client.enqueue(job.another()).await.unwrap().id();
    world.ended(id).await;
    let waited = began.elapsed() - between;
    // The leader's first search may wake only the dead node. The second one wakes all nodes.
    let bound = Duration::from_millis(2_100);
    assert!(
        waited > Duration::from_millis(20) && waited < bound,
        "{waited:?}"
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_woken_for_its_jobs_polls_no_more_often_for_that() {
    let calls = Calls::default();
    let world = calls.counted();
    // Without slots for system jobs, the node has only one poller.
    let node = world.builder().system_concurrency(0).build().unwrap();
    let node = Started::new(node);
    // The leader searches for due jobs at the full seconds. This sleep ends halfway between two
    // searches, so the first job is not enqueued during a search.
    sleep(Duration::from_millis(30_500)).await;
    let job = world.job("short", |_| async { Ok(()) });
    calls.take("claim_next_batch");
    for _ in 0..100 {
        node.node.enqueue(job.another()).await.unwrap();
        // The leader's searches, which run every second, would find the job too. So the pause is
        // not a multiple of their interval.
        sleep(Duration::from_millis(777)).await;
    }
    assert_eq!(calls.take("claim_next_batch"), 100);
    node.stop().await.unwrap();
}

/// The maximum number of calls in two idle minutes. Each entry has an operation, a number for the
/// whole cluster, and a number that is added for each node.
const IDLE: &[(&str, usize, usize)] = &[
    // Each of the two pools polls every 15 s.
    ("claim_next_batch", 0, 18),
    ("due_routes", 122, 0),
    // The leader sends a heartbeat every 5 s, usually before it searches for lost claims. The other
    // nodes send one every 30 s.
    ("heartbeat", 40, 5),
    // Only the leader makes the next five calls: `renew` every 3 s, the others every 5 s.
    ("nodes", 28, 0),
    ("reclaim", 28, 0),
    ("expire", 28, 0),
    ("expire_jobs", 28, 0),
    ("renew", 42, 0),
    // Each candidate reads the lock only once a minute, because it receives the leader's beacons.
    ("inspect", 0, 2),
    // The leader searches for due definitions every 30 s, and each other node every minute.
    ("claim_due_recurring", 3, 3),
    ("purge", 9, 0),
    ("purge_batches", 3, 0),
    ("forget_idle", 3, 0),
    ("separate_queues", 3, 0),
];

#[tokio::test(start_paused = true)]
async fn what_an_idle_node_costs_does_not_grow_with_the_number_of_nodes() {
    for count in [1, 10, 100, 1_000] {
        let calls = Calls::default();
        let world = calls.counted();
        let nodes: Vec<Started> = (0..count).map(|_| world.start()).collect();
        sleep(Duration::from_secs(120)).await;
        calls.0.lock().unwrap().clear();
        sleep(Duration::from_secs(120)).await;
        let mut calls = std::mem::take(&mut *calls.0.lock().unwrap());
        for (operation, cluster, node) in IDLE {
            let made = calls.remove(operation).unwrap_or(0);
            let bound = cluster + node * count;
            assert!(
                made <= bound,
                "{count} nodes: expected fewer calls of {operation}, found \
                 {made}"
            );
            // Less than half of the maximum means that a loop has stopped. A single node is an
            // exception: it makes fewer calls while it is idle.
            let least = if count == 1 { 0 } else { bound / 2 };
            assert!(
                made >= least,
                "{count} nodes: expected more calls of {operation}, found \
                 {made}"
            );
        }
        assert_eq!(calls, BTreeMap::new());
        stop_all(nodes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_reads_of_a_candidate_do_not_grow_with_the_number_of_roles() {
    let mut reads = Vec::new();
    for roles in [20, 200] {
        let calls = Calls::default();
        let world = calls.counted();
        let start = |_| {
            let roles = (0..roles).map(|role| format!("role {role}"));
            let builder = roles.fold(world.builder(), |builder, role| builder.role(&role));
            Started::new(builder.build().unwrap())
        };
        let nodes: Vec<Started> = (0..3).map(start).collect();
        sleep(Duration::from_secs(60)).await;
        calls.0.lock().unwrap().clear();
        sleep(Duration::from_secs(60)).await;
        // A candidate reads the list of locks at most ten times in each leader heartbeat of 3 s. It
        // reads a single lock only for the role `maintenance`, or when the lock may be free.
        let (all, one) = (calls.take("list_locks"), calls.take("inspect"));
        assert!(
            all <= 3 * 205 && one <= 10,
            "{roles} roles: expected at most 615 calls of \
             list_locks and 10 of inspect, found {all} and {one}"
        );
        reads.push(all);
        stop_all(nodes).await;
    }
    assert!(reads[1] <= reads[0] * 2, "{reads:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_other_nodes_sends_no_beacons() {
    let world = World::new();
    let mut wakeups = world.store.coordinator().unwrap().subscribe();
    let first = world.start();
    sleep(Duration::from_secs(30)).await;
    wakeups.clear();
    let mut arrives = async || {
        let beacon = async {
            loop {
                let wakeup = wakeups.next().await;
                if wakeup.to.is_some() && wakeup.to == wakeup.source {
                    return;
                }
            }
        };
        timeout(Duration::from_secs(30), beacon).await.is_ok()
    };
    assert!(
        !arrives().await,
        "expected no beacon while there is only one node"
    );
    let second = world.start();
    assert!(
        arrives().await,
        "expected a beacon after the second node started"
    );
    stop_all([first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_with_an_idle_interval_lets_the_database_rest() {
    let mut world = World::new();
    let calls: Arc<Mutex<Vec<(Instant, &str)>>> = Arc::default();
    let made = Arc::clone(&calls);
    world.store = MemoryStore::clone(&world.store).with_faults(move |operation| {
        made.lock().unwrap().push((time::monotonic(), operation));
        Fault::None
    });
    let interval = Duration::from_secs(600);
    let node = world.builder().idle_interval(interval).build().unwrap();
    // The node is elected between two multiples of the interval.
    sleep(Duration::from_secs(100)).await;
    let node = Started::new(node);
    sleep(Duration::from_secs(502)).await;
    // The test enqueues jobs with different delays between two multiples of the interval. The node
    // runs each job as soon as it is due, and once more when its retry is due. Then the node makes
    // no calls until the next multiple.
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let job = world.job("twice", move |_| {
        let failed = counted.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        async move {
            sleep(Duration::from_secs(5)).await;
            match failed {
                true => Err("the first run fails".into()),
                false => Ok(()),
            }
        }
    });
    let job = job.retry(RetryPolicy::fixed(2, Duration::from_secs(20)));
    for delay in [0, 30, 90] {
        let began = time::monotonic();
        let id = node
            .node
            .enqueue(job.another().delay(Duration::from_secs(delay)));
        let id = id.await.unwrap().id();
        world.ended(id).await;
        let took = began.elapsed().as_secs();
        assert!((delay + 30..delay + 33).contains(&took), "{delay}: {took}");
        sleep(Duration::from_secs(10)).await;
    }
    sleep(5 * interval).await;
    let calls = calls.lock().unwrap().clone();
    let rests: Vec<u64> = calls
        .windows(2)
        .map(|two| (two[1].0 - two[0].0).as_secs())
        .filter(|rest| *rest > 60)
        .collect();
    assert_eq!(rests.len(), 6, "{rests:?}");
    assert!(rests.iter().skip(1).all(|rest| *rest > 300), "{rests:?}");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_delayed_job_starts_when_it_is_due_on_nodes_that_poll_rarely() {
    let world = World::new();
    let nodes: Vec<Started> = (0..10).map(|_| world.start()).collect();
    sleep(Duration::from_secs(60)).await;
    let delay = Duration::from_millis(20_300);
    let job = world.job("later", |_| async { Ok(()) }).delay(delay);
    let began = time::monotonic();
    let id = world.enqueue(job).await;
    world.ended(id).await;
    let late = began.elapsed() - delay;
    assert!(late < Duration::from_millis(50), "{late:?} late");
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn the_leader_wakes_a_node_for_each_kind_that_comes_due() {
    let mut world = World::new();
    // The client's first read of the nodes is slow, so the client chooses the nodes to wake before
    // the read ends.
    world.store = MemoryStore::clone(&world.store).with_faults(|operation| match operation {
        "nodes" => Fault::Delay(Duration::from_millis(20)),
        _ => Fault::None,
    });
    let nodes: Vec<Started> = (0..3).map(|_| world.start()).collect();
    sleep(Duration::from_secs(60)).await;
    let delay = Duration::from_secs(90);
    let began = time::monotonic();
    let mut ids = Vec::new();
    for kind in ["a", "b", "c", "d", "e"] {
        let job = world
            .job(kind, |_| async { Ok(()) })
            .queue(kind)
            .delay(delay);
        ids.push(world.enqueue(job).await);
    }
    for id in ids {
        world.ended(id).await;
        let late = began.elapsed() - delay;
        assert!(late < Duration::from_millis(100), "{late:?} late");
    }
    stop_all(nodes).await;
}

/// Starts a leader with these settings, and another node. The leader's store calls fail or wait as
/// `fault` returns. The function returns the number of claim calls of the other node in a minute.
async fn claims_beside(
    settings: impl FnOnce(NodeBuilder) -> NodeBuilder,
    fault: impl Fn(&str) -> Fault + Send + Sync + 'static,
) -> usize {
    let calls = Calls::default();
    let world = calls.counted();
    let leader = MemoryStore::clone(&world.store).with_faults(fault);
    let leader = settings(world.builder_on(leader)).build().unwrap();
    let leader = Started::new(leader);
    let follower = world.builder().promotable(false).system_concurrency(0);
    let follower = Started::new(follower.build().unwrap());
    sleep(Duration::from_secs(60)).await;
    calls.take("claim_next_batch");
    sleep(Duration::from_secs(60)).await;
    let claims = calls.take("claim_next_batch");
    stop_all([follower, leader]).await;
    claims
}

#[tokio::test(start_paused = true)]
async fn nodes_poll_as_seldom_while_the_looks_of_their_leader_are_slow() {
    let slow = |operation: &str| match operation {
        "due_routes" => Fault::Delay(Duration::from_millis(500)),
        _ => Fault::None,
    };
    let claims = claims_beside(|leader| leader, slow).await;
    assert!((3..=6).contains(&claims), "{claims} claims");
}

#[tokio::test(start_paused = true)]
async fn nodes_poll_every_second_while_the_leader_cannot_look() {
    let blind = |operation: &str| match operation {
        "due_routes" => Fault::ErrorBeforeCommit,
        _ => Fault::None,
    };
    let claims = claims_beside(|leader| leader, blind).await;
    assert!((54..=67).contains(&claims), "{claims} claims");
}

#[tokio::test(start_paused = true)]
async fn nodes_poll_every_second_if_their_leader_looks_more_seldom() {
    let seldom = Duration::from_secs(10);
    let leader = |leader: NodeBuilder| leader.poll_interval(seldom, seldom);
    let claims = claims_beside(leader, |_| Fault::None).await;
    assert!((54..=67).contains(&claims), "{claims} claims");
}

#[tokio::test(start_paused = true)]
async fn nodes_whose_leader_died_poll_every_second_again() {
    let calls = Calls::default();
    let world = calls.counted();
    let leader = world.start();
    let follower = world.builder().promotable(false).system_concurrency(0);
    let follower = Started::new(follower.build().unwrap());
    sleep(Duration::from_secs(60)).await;
    leader.kill().await;
    calls.take("claim_next_batch");
    // The last beacon of the leader is valid for 5 s, so the node still polls rarely.
    sleep(Duration::from_secs(3)).await;
    let claims = calls.take("claim_next_batch");
    assert!(
        claims <= 1,
        "expected at most 1 claim while the beacon counts, found {claims}"
    );
    sleep(Duration::from_secs(3)).await;
    calls.take("claim_next_batch");
    sleep(Duration::from_secs(60)).await;
    let claims = calls.take("claim_next_batch");
    assert!(
        (54..=67).contains(&claims),
        "expected 54 to 67 claims after the beacon expired, found \
         {claims}"
    );
    follower.stop().await.unwrap();
}
