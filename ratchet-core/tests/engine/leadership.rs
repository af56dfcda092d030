use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use ratchet_core::cluster::{LeaderTimings, Wakeup};
use ratchet_core::memory::{Fault, ManualClock};
use ratchet_core::model::{NodeRecord, NodeStatus};
use ratchet_core::store::NodeStore;
use ratchet_core::time::{from_millis, monotonic};
use ratchet_core::{DaemonContext, JobState, MemoryStore, Name, NodeBuilder};
use tokio::time::sleep;

use crate::kit::{Started, World, stop_all};

const SECOND: Duration = Duration::from_secs(1);

fn start(builder: NodeBuilder) -> Started {
    Started::new(builder.build().unwrap())
}

fn leads(node: &Started, role: &str) -> bool {
    node.node
        .leadership(role)
        .is_some_and(|leadership| leadership.is_leader())
}

/// Waits until one of the nodes leads, and returns its index.
async fn leader(nodes: &[Started], role: &str) -> usize {
    for _ in 0..100_000 {
        let mut leaders = (0..nodes.len()).filter(|node| leads(&nodes[*node], role));
        if let Some(leader) = leaders.next() {
            assert_eq!(leaders.next(), None, "two lead");
            return leader;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("expected one node to lead in {role}, found none");
}

async fn rows(world: &World) -> Vec<NodeRecord> {
    let mut nodes = world.store.nodes().await.unwrap();
    nodes.retain(|node| node.status == NodeStatus::Active);
    nodes
}

#[tokio::test(start_paused = true)]
async fn who_stops_in_order_is_followed_within_one_heartbeat() {
    let world = World::new();
    let mut nodes: Vec<Started> = (0..3).map(|_| world.start()).collect();
    let first = leader(&nodes, "maintenance").await;
    // After this sleep, the candidates read the lock rarely, because they receive beacons.
    sleep(60 * SECOND).await;
    nodes.remove(first).stop().await.unwrap();
    let stopped = monotonic();
    leader(&nodes, "maintenance").await;
    assert!(stopped.elapsed() <= SECOND, "{:?}", stopped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_roles_are_distributed_over_the_nodes_also_after_a_failure() {
    let world = World::new();
    let roles: Vec<String> = (0..40).map(|role| format!("role-{role}")).collect();
    let node = |seed| {
        let mut node = world.builder().seed(seed);
        for role in &roles {
            node = node.role(role);
        }
        start(node)
    };
    let mut nodes: Vec<Started> = (0..4).map(node).collect();
    for _ in 0..2 {
        sleep(60 * SECOND).await;
        let led = |node: &Started| roles.iter().filter(|role| leads(node, role)).count();
        let led: Vec<usize> = nodes.iter().map(led).collect();
        assert_eq!(led.iter().sum::<usize>(), roles.len());
        assert!(led.iter().all(|led| (2..=24).contains(led)), "{led:?}");
        nodes.remove(0).kill().await;
    }
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn a_beacon_keeps_a_candidate_from_trusting_a_clock_that_stepped() {
    let mut world = World::new();
    let clock = ManualClock::running(from_millis(1_790_000_000_000));
    world.store = MemoryStore::with_clock(clock.clone());
    let away = Arc::new(AtomicBool::new(false));
    let store = world.store.clone().with_faults({
        let away = Arc::clone(&away);
        move |operation| match operation {
            "renew" | "acquire" if away.load(Ordering::SeqCst) => Fault::ErrorBeforeCommit,
            _ => Fault::None,
        }
    });
    let first = start(world.builder_on(store));
    sleep(SECOND).await;
    let second = world.start();
    // When this sleep ends, the candidate's last read of the lock is older than the TTL of the
    // lock.
    sleep(50 * SECOND).await;
    away.store(true, Ordering::SeqCst);
    // Simulates a failover to a server whose clock is ahead: connections are lost, and the nodes
    // are woken.
    clock.advance(60 * SECOND);
    let coordinator = ratchet_core::Store::coordinator(&world.store).unwrap();
    coordinator.notify(Wakeup::any()).await;
    let nodes = [first, second];
    while leads(&nodes[0], "maintenance") {
        assert!(!leads(&nodes[1], "maintenance"), "two lead");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(leader(&nodes, "maintenance").await, 1);
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn beacons_of_a_leader_that_cannot_renew_delay_no_takeover() {
    for crashes in [true, false] {
        let world = World::new();
        let renewed = Arc::new(Mutex::new(monotonic()));
        let is_broken = Arc::new(AtomicBool::new(false));
        let store = world.store.clone().with_faults({
            let (renewed, is_broken) = (Arc::clone(&renewed), Arc::clone(&is_broken));
            move |operation| match operation {
                "renew" | "acquire" | "inspect" if is_broken.load(Ordering::SeqCst) => {
                    Fault::ErrorBeforeCommit
                }
                "renew" => {
                    *renewed.lock().unwrap() = monotonic();
                    Fault::None
                }
                _ => Fault::None,
            }
        });
        let first = start(world.builder_on(store));
        sleep(SECOND).await;
        let second = world.start();
        sleep(50 * SECOND).await;
        let before = *renewed.lock().unwrap();
        while *renewed.lock().unwrap() == before {
            sleep(Duration::from_millis(10)).await;
        }
        // This sleep ends shortly before the leader's next renewal. The leader sends beacons until
        // then.
        sleep(SECOND * 5 / 2).await;
        let mut nodes = vec![second];
        if crashes {
            first.kill().await;
        } else {
            is_broken.store(true, Ordering::SeqCst);
            nodes.push(first);
        }
        while !leads(&nodes[0], "maintenance") {
            sleep(Duration::from_millis(10)).await;
        }
        let took = renewed.lock().unwrap().elapsed();
        let ttl = LeaderTimings::default().ttl;
        assert!(
            took >= ttl,
            "expected the next leader only after the ttl, found it after {took:?}"
        );
        assert!(
            took <= ttl + SECOND,
            "expected the next leader at most 1 s after the ttl, found \
             it after {took:?}"
        );
        stop_all(nodes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_taken_for_dead_is_followed_at_once() {
    let world = World::new();
    let nodes: Vec<Started> = (0..3).map(|_| world.start()).collect();
    sleep(60 * SECOND).await;
    let first = leader(&nodes, "maintenance").await;
    let leadership = nodes[first].node.leadership("maintenance").unwrap();
    let id = leadership.guard().unwrap().owner.as_str().parse().unwrap();
    let store = &world.store;
    store.set_node_status(id, NodeStatus::Dead).await.unwrap();
    while leads(&nodes[first], "maintenance") {
        sleep(Duration::from_millis(10)).await;
    }
    let resigned = monotonic();
    leader(&nodes, "maintenance").await;
    assert!(resigned.elapsed() <= SECOND, "{:?}", resigned.elapsed());
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_reclaim_is_helped_by_the_other_nodes() {
    let world = World::new();
    let store = world
        .store
        .clone()
        .with_faults(|operation| match operation {
            "reclaim" => Fault::ErrorBeforeCommit,
            _ => Fault::None,
        });
    let first = start(world.builder_on(store));
    sleep(SECOND).await;
    let (second, dying) = (world.start(), world.start());
    sleep(60 * SECOND).await;
    assert!(leads(&first, "maintenance"));
    let hanging = Arc::new(AtomicBool::new(true));
    let job = world.job("hangs once", move |_| {
        let hangs = hanging.swap(false, Ordering::SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let id = dying.node.enqueue(job).await.unwrap().id();
    world.until(id, |job| job.state == JobState::Running).await;
    let running = dying.node.stats().claimed == 1;
    dying.kill().await;
    let died = monotonic();
    assert!(running);
    world.ended(id).await;
    // A node that does not lead makes a reclaim pass every 50 s, plus jitter. A pass reclaims the
    // claim only once the dead node has been silent for 15 s.
    assert!(died.elapsed() <= 75 * SECOND, "{:?}", died.elapsed());
    stop_all([first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn who_crashes_is_followed_within_the_ttl_and_its_jobs_come_back() {
    let world = World::new();
    let mut nodes: Vec<Started> = (0..3).map(|_| world.start()).collect();
    let first = leader(&nodes, "maintenance").await;
    sleep(60 * SECOND).await;
    let hanging = Arc::new(AtomicBool::new(true));
    let job = world.job("hangs once", move |_| {
        let hangs = hanging.swap(false, Ordering::SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let dying = nodes.remove(first);
    stop_all(nodes.drain(..)).await;
    let id = dying.node.enqueue(job).await.unwrap().id();
    world.until(id, |job| job.state == JobState::Running).await;
    nodes.extend((0..2).map(|_| world.start()));
    sleep(20 * SECOND).await;
    dying.kill().await;
    let died = monotonic();
    leader(&nodes, "maintenance").await;
    let timings = LeaderTimings::default();
    assert!(
        died.elapsed() <= timings.ttl + timings.heartbeat,
        "{:?}",
        died.elapsed()
    );
    let job = world.ended(id).await;
    assert_eq!(job.state, JobState::Succeeded);
    assert!(died.elapsed() <= 2 * timings.ttl, "{:?}", died.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nodes_say_what_they_are_there_for_and_only_the_promotable_lead() {
    let world = World::new();
    let worker = start(world.builder().promotable(false).capabilities(["gpu"]));
    sleep(60 * SECOND).await;
    assert!(worker.node.leadership("maintenance").is_none());
    let names = |texts: &[&str]| -> Vec<Name> {
        texts
            .iter()
            .map(|text| Name::new("n", text).unwrap())
            .collect()
    };
    let row = rows(&world).await.remove(0);
    assert_eq!(row.profile.roles, names(&["worker"]));
    assert_eq!(row.profile.capabilities, names(&["gpu"]));
    assert!(row.load.memory_bytes.is_some_and(|bytes| bytes > 0));
    let keeper = start(world.builder().role("pricing").roles(["pricing"]));
    sleep(5 * SECOND).await;
    assert!(leads(&keeper, "pricing"));
    assert!(keeper.node.leadership("maintenance").is_none());
    let row = rows(&world).await.remove(0);
    assert_eq!(row.profile.roles, names(&["pricing"]));
    // `keeper` runs no jobs, so the job stays pending.
    let ran = world.job("ran", |_| async { Ok(()) });
    worker.stop().await.unwrap();
    let id = world.enqueue(ran).await;
    sleep(10 * SECOND).await;
    assert_eq!(world.read(id).await.state, JobState::Pending);
}

#[tokio::test(start_paused = true)]
async fn a_node_at_rest_beats_seldom_and_hurries_when_it_claims() {
    let world = World::new();
    let first = world.start();
    let second = world.start();
    sleep(300 * SECOND).await;
    let now = rows(&world).await;
    let mut intervals: Vec<Duration> = now.iter().map(|row| row.interval).collect();
    intervals.sort();
    // The leader never uses the long idle interval.
    assert_eq!(intervals, [5 * SECOND, 30 * SECOND]);
    // A third node joins. The other nodes do not send heartbeats more often because of this.
    let third = world.start();
    sleep(36 * SECOND).await;
    let now = rows(&world).await;
    assert!(now.iter().any(|row| row.interval == 30 * SECOND));
    sleep(300 * SECOND).await;
    // A node that has claimed a job sends a heartbeat at once, so that others notice its death
    // soon.
    let standing_by = [&first, &second, &third]
        .into_iter()
        .find(|node| !leads(node, "maintenance"));
    let job = world.job("long", |_| async {
        sleep(100 * SECOND).await;
        Ok(())
    });
    let before = rows(&world)
        .await
        .iter()
        .filter(|row| row.interval == 5 * SECOND)
        .count();
    let id = standing_by.unwrap().node.enqueue(job).await.unwrap().id();
    world.until(id, |job| job.state == JobState::Running).await;
    sleep(SECOND).await;
    let after = rows(&world)
        .await
        .iter()
        .filter(|row| row.interval == 5 * SECOND)
        .count();
    assert_eq!(after, before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_shows_in_the_statistics() {
    let mut world = World::new();
    world.store = MemoryStore::with_clock(ManualClock::new(from_millis(0)));
    let node = world.start();
    sleep(SECOND).await;
    assert!(node.node.stats().clock_skew_millis.unsigned_abs() > 60_000);
}

#[tokio::test(start_paused = true)]
async fn one_node_works_and_the_others_stand_by() {
    let world = World::new();
    let standby = || start(world.builder().active_passive("active"));
    let mut nodes: Vec<Started> = (0..3).map(|_| standby()).collect();
    let active = leader(&nodes, "active").await;
    for number in 0..20 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        let id = world.enqueue(job).await;
        world.ended(id).await;
    }
    for (index, node) in nodes.iter().enumerate() {
        let expected = if index == active { 20 } else { 0 };
        assert_eq!(node.node.stats().settled, expected);
    }
    nodes.remove(active).kill().await;
    let id = world
        .enqueue(world.job("after", |_| async { Ok(()) }))
        .await;
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
}

/// Counts the running instances of a daemon.
#[derive(Clone, Default)]
struct Instances {
    started: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    terms: Arc<Mutex<Vec<u64>>>,
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Instances {
    fn start(&self, context: &DaemonContext) -> Running {
        self.started.fetch_add(1, Ordering::SeqCst);
        self.terms.lock().unwrap().push(context.term().0);
        let others = self.running.fetch_add(1, Ordering::SeqCst);
        assert_eq!(others, 0, "expected no second instance of the daemon");
        assert_eq!(context.guard().unwrap().fence, context.term());
        Running(Arc::clone(&self.running))
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

fn with_daemon(world: &World, instances: &Instances) -> NodeBuilder {
    let instances = instances.clone();
    world.builder().daemon("feed", move |context| {
        let instances = instances.clone();
        async move {
            let _running = instances.start(&context);
            context.stopped().await;
            Ok(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_stood_still_knows_at_once_that_it_is_stopped() {
    let world = World::new();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let node = start(world.builder().daemon("feed", move |context| {
        let tell = tell.clone();
        async move {
            let before = context.is_stopped();
            // Simulates a process that is suspended until it no longer trusts its lock. No other
            // task runs during the `advance`, so neither a renewal nor the watchdog runs first.
            let trust = LeaderTimings::default().fence_timeout;
            let _ = tokio::time::advance(trust).now_or_never();
            tell.send((before, context.is_stopped()))?;
            context.stopped().await;
            Ok(())
        }
    }));
    assert_eq!(told.recv().await, Some((false, true)));
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_daemon_runs_once_in_the_cluster_and_moves_with_its_role() {
    let (world, instances) = (World::new(), Instances::default());
    let mut nodes: Vec<Started> = (0..3)
        .map(|_| start(with_daemon(&world, &instances)))
        .collect();
    let first = leader(&nodes, "feed").await;
    sleep(60 * SECOND).await;
    assert_eq!(instances.running(), 1);
    nodes.remove(first).stop().await.unwrap();
    let second = leader(&nodes, "feed").await;
    sleep(SECOND).await;
    assert_eq!(instances.running(), 1);
    nodes.remove(second).kill().await;
    assert_eq!(instances.running(), 0);
    leader(&nodes, "feed").await;
    sleep(SECOND).await;
    assert_eq!(instances.running(), 1);
    let terms = instances.terms.lock().unwrap().clone();
    assert!(terms.is_sorted_by(|one, other| one < other), "{terms:?}");
    assert_eq!(terms.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_fails_is_started_again_and_at_last_left_to_another_node() {
    let world = World::new();
    let failures = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&failures);
    let bad = start(world.builder().daemon("feed", move |_| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(
                number.is_multiple_of(2),
                "planned panic of every second start"
            );
            Err("it fails".into())
        }
    }));
    sleep(3_600 * SECOND).await;
    let tried = failures.load(Ordering::SeqCst);
    assert!(
        (20..=5 * 14).contains(&tried),
        "expected 20 to 70 starts in an hour, found {tried}"
    );
    let instances = Instances::default();
    let good = start(with_daemon(&world, &instances));
    sleep(600 * SECOND).await;
    assert!(leads(&good, "feed"));
    assert!(!leads(&bad, "feed"));
    assert_eq!(instances.running(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_does_not_stop_is_dropped() {
    let (world, instances) = (World::new(), Instances::default());
    let stubborn = instances.clone();
    let node = start(world.builder().daemon("feed", move |context| {
        let instances = stubborn.clone();
        async move {
            let _running = instances.start(&context);
            std::future::pending().await
        }
    }));
    sleep(10 * SECOND).await;
    assert_eq!(instances.running(), 1);
    let stopping = monotonic();
    node.stop().await.unwrap();
    assert_eq!(instances.running(), 0);
    assert!(stopping.elapsed() <= LeaderTimings::default().teardown + SECOND);
}

#[tokio::test(start_paused = true)]
async fn watches_see_the_present_version_and_every_bump() {
    let world = World::new();
    let node = world.start();
    let client = node.node.client().clone();
    let mut watch = client.watch("config").unwrap();
    assert_eq!(watch.changed().await, 0);
    let first = client.bump("config").await.unwrap();
    let bumped = monotonic();
    assert_eq!(watch.changed().await, first);
    assert!(bumped.elapsed() <= SECOND);
    client.bump("other").await.unwrap();
    let second = client.bump("config").await.unwrap();
    let third = client.bump("config").await.unwrap();
    assert!(first < second && second < third);
    assert_eq!(watch.changed().await, third);
    client.watch("").unwrap_err();
}

#[tokio::test]
async fn roles_and_timings_that_cannot_work_are_refused() {
    let world = World::new();
    let mut timings = LeaderTimings::default();
    timings.heartbeat = timings.fence_timeout;
    let error = world
        .builder()
        .role("a")
        .role("a")
        .roles(["b"])
        .leader_timings(timings)
        .heartbeat_max(3_601 * SECOND)
        .capabilities_from_file("/no such file")
        .build()
        .unwrap_err();
    for part in [
        "role a is declared twice",
        "role b",
        "heartbeat 8s",
        "3601s",
        "/no such file",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(error.problems().len(), 5, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_may_finish_before_the_next_begins() {
    let (world, instances) = (World::new(), Instances::default());
    let builder = || {
        let instances = instances.clone();
        world.builder().daemon("feed", move |context| {
            let instances = instances.clone();
            async move {
                let _running = instances.start(&context);
                context.stopped().await;
                // The daemon stops within the teardown time of 2 s.
                sleep(Duration::from_millis(1_500)).await;
                Ok(())
            }
        })
    };
    let first = start(builder());
    leader(std::slice::from_ref(&first), "feed").await;
    let second = start(builder());
    sleep(60 * SECOND).await;
    let stopping = monotonic();
    first.stop().await.unwrap();
    assert!(stopping.elapsed() >= Duration::from_millis(1_500));
    leader(std::slice::from_ref(&second), "feed").await;
    sleep(SECOND).await;
    assert_eq!(instances.started.load(Ordering::SeqCst), 2);
    assert_eq!(instances.running(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_has_stopped_before_a_node_with_a_new_id_gives_its_role_up() {
    let world = World::new();
    let lasting = Arc::new(AtomicUsize::new(0));
    let overlaps = Arc::new(AtomicUsize::new(0));
    let builder = || {
        let (lasting, overlaps) = (Arc::clone(&lasting), Arc::clone(&overlaps));
        world.builder().daemon("feed", move |context| {
            let (lasting, overlaps) = (Arc::clone(&lasting), Arc::clone(&overlaps));
            async move {
                overlaps.fetch_add(lasting.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                context.stopped().await;
                sleep(Duration::from_millis(1_900)).await;
                lasting.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        })
    };
    let nodes = [start(builder()), start(builder())];
    for _ in 0..20 {
        let first = leader(&nodes, "feed").await;
        sleep(SECOND).await;
        let leads = nodes[first]
            .node
            .leadership("feed")
            .unwrap()
            .guard()
            .unwrap();
        let id = leads.owner.as_str().parse().unwrap();
        let store = &world.store;
        store.set_node_status(id, NodeStatus::Dead).await.unwrap();
        sleep(30 * SECOND).await;
    }
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    assert_eq!(lasting.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_dead_nodes_come_back_even_where_no_node_may_lead() {
    let world = World::new();
    let worker = || start(world.builder().promotable(false));
    let (dying, living) = (worker(), worker());
    let stuck = Arc::new(AtomicBool::new(true));
    let job = world.job("hangs once", move |_| {
        let hangs = stuck.swap(false, Ordering::SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let id = dying.node.enqueue(job).await.unwrap().id();
    let running = world.until(id, |job| job.state == JobState::Running).await;
    let rows = world.store.nodes().await.unwrap();
    assert_eq!(rows.len(), 2);
    // Either of the two nodes may hold the job.
    let on_dying = dying.node.stats().claimed == 1;
    let (killed, _left) = match on_dying {
        true => (dying, living),
        false => (living, dying),
    };
    killed.kill().await;
    assert_eq!(running.state, JobState::Running);
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_leads_no_more_and_its_watchers_hear_of_it() {
    let world = World::new();
    let node = world.start();
    leader(std::slice::from_ref(&node), "maintenance").await;
    let leadership = node.node.leadership("maintenance").unwrap();
    let mut watch = leadership.watch();
    let term = leadership.term().unwrap();
    node.kill().await;
    assert!(!leadership.is_leader());
    tokio::time::timeout(SECOND, watch.lost(term))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_active_node_that_may_not_lead_is_refused() {
    let world = World::new();
    let builder = || world.builder().active_passive("active");
    for wrong in [
        builder().promotable(false),
        builder().roles(["worker"]),
        world.builder().roles([]),
    ] {
        let error = wrong.build().unwrap_err();
        assert_eq!(error.problems().len(), 1, "{error}");
    }
    builder().roles(["worker", "active"]).build().unwrap();
    builder().roles(["maintenance"]).build().unwrap();
}
