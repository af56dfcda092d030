//! Tests of permits: they limit how many bodies that need a resource run at once in the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::AttemptOutcome;
use ratchet_core::store::Store;
use ratchet_core::{
    Job, JobContext, JobError, JobResult, JobState, MemoryStore, NewJob, Ratchet, RetryPolicy,
    StoreErrorKind, Wakes,
};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::kit::{Started, World, stop_all};

const MILLI: Duration = Duration::from_millis(1);

/// Counts the running bodies, and records the highest count. A body counts until its [`Running`] is
/// dropped.
#[derive(Clone, Default)]
struct Gauge {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

struct Running(Gauge);

impl Gauge {
    fn enter(&self) -> Running {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Running(self.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_bodies_run_than_there_are_permits_though_a_node_is_killed() {
    const MAX: u32 = 3;
    let world = World::new();
    let nodes: Vec<Started> = (0..3)
        .map(|_| Started::new(world.builder().concurrency(8).build().unwrap()))
        .collect();
    let client = nodes[0].node.client().clone();
    client.set_permits("api", MAX).await.unwrap();
    let gauge = Gauge::default();
    let mut all = Vec::new();
    for number in 0..60_u32 {
        let job = world.job(&number.to_string(), {
            let gauge = gauge.clone();
            move |ctx| {
                let running = gauge.enter();
                async move {
                    sleep((20 + number % 7 * 40) * MILLI).await;
                    drop(running);
                    match number % 5 == 3 && ctx.attempt() == 1 {
                        true => Err(JobError::from("again")),
                        false => Ok(()),
                    }
                }
            }
        });
        let queue = if number % 2 == 0 { "default" } else { "q" };
        let retry = RetryPolicy::fixed(3, 50 * MILLI);
        all.push(
            world
                .enqueue(job.permit("api").queue(queue).retry(retry))
                .await,
        );
    }
    let mut nodes = nodes.into_iter();
    sleep(300 * MILLI).await;
    nodes.next().unwrap().kill().await;
    for id in all {
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
    assert_eq!(
        gauge.most.load(Ordering::SeqCst),
        3,
        "expected all three permits to be in use at once"
    );
    let listed = client.permits().await.unwrap();
    assert_eq!((listed.len(), listed[0].max, listed[0].held), (1, MAX, 0));
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_declares_permits_and_leaves_those_that_are_known() {
    let world = World::new();
    let declaring = |max| {
        world
            .builder()
            .permits("api", max)
            .permits("disk", 7)
            .build()
    };
    // A node that does not run yet declares its permits at its first enqueue.
    let before = declaring(4).unwrap();
    let job = world.job("before", |_| async { Ok(()) });
    before.enqueue(job.permit("disk")).await.unwrap();
    let first = Started::new(before);
    let client = first.node.client().clone();
    let known = || async {
        let listed = client.permits().await.unwrap();
        listed.iter().map(|info| info.max).collect::<Vec<_>>()
    };
    while known().await.len() < 2 {
        sleep(MILLI).await;
    }
    client.set_permits("api", 1).await.unwrap();
    first.stop().await.unwrap();
    let second = Started::new(declaring(9).unwrap());
    let job = world.job("job", |_| async { Ok(()) });
    let id = world.enqueue(job.permit("api")).await;
    world.ended(id).await;
    assert_eq!(known().await, [1, 7]);
    second.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn permits_are_declared_before_the_node_runs_if_it_is_asked_to() {
    let world = World::new();
    let node = world.builder().permits("api", 4).build().unwrap();
    let needing = || world.job("job", |_| async { Ok(()) }).permit("api");
    // `others` is a plain client. Unlike the client of a node, it declares no permits when it
    // enqueues.
    let others = Ratchet::client(Arc::new(world.store.clone()));
    let error = others.enqueue(needing()).await.unwrap_err();
    assert!(
        error.to_string().contains("Node::declare_permits"),
        "{error}"
    );
    node.declare_permits().await.unwrap();
    others.enqueue(needing()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_next_holder_of_a_permit_does_not_wait_for_a_poll() {
    let world = World::new();
    let node = world.start();
    node.node.client().set_permits("api", 1).await.unwrap();
    let mut last = None;
    for number in 0..100 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        last = Some(world.enqueue(job.permit("api")).await);
    }
    // If each of the 100 jobs waited for a poll, the test would take ten seconds.
    let ended = timeout(Duration::from_secs(1), world.ended(last.unwrap()));
    ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn more_permits_are_used_at_once() {
    let world = World::new();
    let poll = Duration::from_secs(3_600);
    let node = Started::new(world.builder().poll_interval(poll, poll).build().unwrap());
    let client = node.node.client();
    client.set_permits("api", 0).await.unwrap();
    let job = world.job("job", |_| async { Ok(()) });
    let id = client.enqueue(job.permit("api")).await.unwrap().id();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.read(id).await.state, JobState::Pending);
    client.set_permits("api", 1).await.unwrap();
    let ended = timeout(Duration::from_secs(1), world.ended(id));
    ended.await.unwrap();
}

/// The job type of the other program. Its jobs need the same permit as those of the busy program.
#[derive(Serialize, Deserialize)]
struct Other;

impl Job for Other {
    const KIND: &'static str = "other";
    type Output = ();

    async fn run(self, _: JobContext) -> JobResult<()> {
        sleep(20 * MILLI).await;
        Ok(())
    }
}

/// Checks that the other program gets the only permit regularly, although the busy program always
/// has jobs that need it. The busy program has `nodes` nodes with `concurrency` slots each.
async fn the_other_gets_its_turn(concurrency: usize, nodes: usize) {
    let world = World::new();
    let poll = Duration::from_secs(3_600);
    let busy = || {
        let builder = world.builder().concurrency(concurrency);
        Started::new(builder.poll_interval(poll, poll).build().unwrap())
    };
    let more: Vec<Started> = (1..nodes).map(|_| busy()).collect();
    let busy = busy();
    busy.node.client().set_permits("api", 1).await.unwrap();
    let body = world.job("busy", |_| async {
        sleep(20 * MILLI).await;
        Ok(())
    });
    let other = Ratchet::builder(Arc::new(world.store.clone())).register::<Other>();
    let other = Started::new(other.poll_interval(poll, poll).build().unwrap());
    // After this time, the nodes of each program know the nodes of the other program.
    sleep(Duration::from_secs(6)).await;
    for _ in 0..1_000 {
        world.enqueue(body.another().permit("api")).await;
    }
    let last_of_busy = body.another().permit("api");
    let last_of_busy = busy.node.enqueue(last_of_busy).await.unwrap().id();
    // In this time, the nodes of the busy program read the list of all nodes.
    sleep(Duration::from_secs(2)).await;
    let mut last = None;
    for _ in 0..5 {
        let job = Other.into_job().permit("api");
        last = Some(other.node.enqueue(job).await.unwrap().id());
    }
    // After a release of the permit, the busy program regularly pauses its claims and wakes the
    // other program, which then runs one job. So the five jobs end long before the next poll.
    let ended = timeout(Duration::from_secs(2), world.ended(last.unwrap()));
    assert_eq!(ended.await.unwrap().state, JobState::Succeeded);
    assert_eq!(world.read(last_of_busy).await.state, JobState::Pending);
    let busy = more.into_iter().chain([busy]);
    let busy: Vec<Started> = busy.collect();
    let finished: u64 = busy.iter().map(|node| node.node.stats().finished).sum();
    assert!(
        finished >= 1,
        "expected the busy program to finish at least 1 job, found {finished}"
    );
    other.stop().await.unwrap();
    stop_all(busy).await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_two_programs_share_starves_neither() {
    the_other_gets_its_turn(8, 1).await;
}

#[tokio::test(start_paused = true)]
async fn nor_where_a_node_has_one_slot_and_asks_as_soon_as_it_is_free() {
    the_other_gets_its_turn(1, 1).await;
}

#[tokio::test(start_paused = true)]
async fn nor_where_several_nodes_of_the_busy_program_could_get_every_hint() {
    the_other_gets_its_turn(8, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_always_has_jobs_leaves_permits_to_nodes_of_the_same_program() {
    let world = World::new();
    let poll = Duration::from_secs(3_600);
    let start = || {
        let builder = world.builder().poll_interval(poll, poll).concurrency(1);
        Started::new(builder.build().unwrap())
    };
    let second = start();
    let client = Ratchet::client(Arc::new(world.store.clone())).with_wakes(Wakes::Never);
    client.set_permits("api", 1).await.unwrap();
    let body = world.job("job", |_| async {
        sleep(20 * MILLI).await;
        Ok(())
    });
    let jobs: Vec<NewJob> = (0..50).map(|_| body.another().permit("api")).collect();
    client.enqueue_all(&jobs[..1]).await.unwrap();
    let first = start();
    // In this time, each node learns of the other one.
    sleep(Duration::from_secs(60)).await;
    client.enqueue_all(&jobs[1..]).await.unwrap();
    // The first node wakes itself when it enqueues a job. The second node must be woken by hints.
    let mine = body.another().permit("api");
    first.node.enqueue(mine).await.unwrap();
    for job in &jobs {
        world.ended(job.id()).await;
    }
    let ran = [&first, &second].map(|node| node.node.stats().finished);
    assert!(ran.iter().all(|ran| *ran >= 10), "{ran:?}");
    stop_all([first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_released_permit_wakes_at_most_two_other_nodes() {
    let world = World::new();
    let nodes: Vec<Started> = (0..10).map(|_| world.start()).collect();
    let other = Ratchet::builder(Arc::new(world.store.clone())).register::<Other>();
    let other = Started::new(other.build().unwrap());
    let client = nodes[0].node.client();
    client.set_permits("api", 20).await.unwrap();
    sleep(Duration::from_secs(6)).await;
    let body = world.job("job", |_| async { Ok(()) });
    // Only round 1 checks the number of wakeups. In round 0, each node first reads the list of all
    // nodes.
    for round in 0..2 {
        let mut wakeups = world.store.coordinator().unwrap().subscribe();
        for node in &nodes {
            let job = body.another().permit("api");
            world
                .ended(node.node.enqueue(job).await.unwrap().id())
                .await;
            // Only the node `other` runs jobs of type `Other`, so it can wake no second node for
            // this job type.
            let job = Other.into_job().permit("api");
            world
                .ended(other.node.enqueue(job).await.unwrap().id())
                .await;
            sleep(Duration::from_millis(300)).await;
        }
        let mut sent = 0;
        while let Ok(wakeup) = timeout(MILLI, wakeups.next()).await {
            let is_beacon = wakeup.leads_for_ms.is_some();
            assert!(round == 0 || wakeup.to.is_some(), "{wakeup:?}");
            sent += usize::from(!is_beacon);
        }
        // Each node causes two jobs. Each job causes at most two hints, and its enqueue wakes at
        // most one node.
        assert!(round == 0 || sent <= nodes.len() * 2 * 3, "{sent}");
    }
    stop_all(nodes.into_iter().chain([other])).await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_handed_back_unused_is_not_waited_for() {
    let world = World::new();
    let poll = Duration::from_secs(3_600);
    let node = Started::new(world.builder().poll_interval(poll, poll).build().unwrap());
    let client = node.node.client();
    client.set_permits("api", 1).await.unwrap();
    // Only a node of the next release can read the payload of the first job, so this node snoozes
    // it.
    let newer = world.job("newer", |_| async { Ok(()) }).payload_version(9);
    let plain = world.job("plain", |_| async { Ok(()) });
    let jobs = [newer.permit("api"), plain.permit("api")];
    client.enqueue_all(&jobs).await.unwrap();
    let ended = timeout(Duration::from_secs(60), world.ended(jobs[1].id()));
    assert_eq!(ended.await.unwrap().state, JobState::Succeeded);
    let first = world.store_history(jobs[0].id()).await;
    assert_eq!(first[0].outcome, AttemptOutcome::Snoozed);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_permit_whose_end_was_settled_by_itself_is_not_waited_for() {
    let world = World::new();
    let poll = Duration::from_secs(3_600);
    let calls = AtomicUsize::new(0);
    let store = MemoryStore::clone(&world.store).with_faults(move |operation| {
        let first = operation == "settle" && calls.fetch_add(1, Ordering::SeqCst) == 0;
        match first {
            true => Fault::Failure(StoreErrorKind::Other),
            false => Fault::None,
        }
    });
    let builder = world.builder_on(store).poll_interval(poll, poll);
    let node = Started::new(builder.build().unwrap());
    let client = node.node.client();
    client.set_permits("api", 1).await.unwrap();
    let job = || world.job("job", |_| async { Ok(()) }).permit("api");
    let jobs = [job(), job()];
    client.enqueue_all(&jobs).await.unwrap();
    let ended = timeout(Duration::from_secs(60), world.ended(jobs[1].id()));
    assert_eq!(ended.await.unwrap().state, JobState::Succeeded);
    node.stop().await.unwrap();
}
