//! Tests of worker pools: which pool runs which job, and that no pool delays another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::cluster::InProcessCoordinator;
use ratchet_core::memory::Fault;
use ratchet_core::model::{Detail, NodeStatus};
use ratchet_core::store::{JobStore, NodeStore};
use ratchet_core::{
    Job, JobContext, JobId, JobResult, JobState, MemoryStore, NewJob, Node, NodeBuilder, Pool,
    PoolStats, Ratchet, Requires, SYSTEM_QUEUE,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);
const KINDS: [&str; 3] = ["encode", "render", "train"];

/// A job of the kind `KINDS[KIND]`. Its body records its start and its end in the [`Floor`].
#[derive(Serialize, Deserialize)]
struct Of<const KIND: usize>;

impl<const KIND: usize> Job for Of<KIND> {
    const KIND: &'static str = KINDS[KIND];
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let floor = ctx.state::<Arc<Floor>>();
        let place = (ctx.queue().to_string(), ctx.kind().to_string());
        floor.with(|bodies| {
            bodies.begun.push(ctx.job_id());
            bodies.now.push(place.clone());
            let together = bodies.now.clone();
            bodies.moments.push(together);
        });
        match ctx.queue().as_str() {
            "blocked" => drop(floor.gate.acquire().await),
            "quick" => sleep(Duration::from_micros(100)).await,
            "long" => sleep(10 * SECOND).await,
            _ => sleep(Duration::from_millis(20)).await,
        }
        floor.with(|bodies| {
            let left = bodies.now.iter().position(|other| *other == place).unwrap();
            bodies.now.swap_remove(left);
        });
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<Floor>>()
    }
}

/// Records which bodies began, and which ran at the same time.
struct Floor {
    bodies: Mutex<Bodies>,
    /// The semaphore for whose permit each body of the queue `blocked` waits.
    gate: Semaphore,
}

#[derive(Default)]
struct Bodies {
    begun: Vec<JobId>,
    /// The queue and kind of each running body.
    now: Vec<(String, String)>,
    /// One entry for each start of a body: the queue and kind of every body that ran then.
    moments: Vec<Vec<(String, String)>>,
}

impl Floor {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bodies: Mutex::default(),
            gate: Semaphore::new(0),
        })
    }

    fn with<T>(&self, what: impl FnOnce(&mut Bodies) -> T) -> T {
        what(&mut self.bodies.lock().unwrap())
    }

    /// Returns the largest number of bodies that ran at the same time, counting only the bodies for
    /// whose queue and kind `is` returns true.
    fn most(&self, is: impl Fn(&str, &str) -> bool) -> usize {
        let count = |moment: &Vec<(String, String)>| {
            let those = moment.iter().filter(|(queue, kind)| is(queue, kind));
            those.count()
        };
        self.with(|bodies| bodies.moments.iter().map(count).max().unwrap_or(0))
    }

    /// Waits until exactly this many bodies of the queue `blocked` run.
    async fn blocked(&self, bodies: usize) {
        for _ in 0..10_000 {
            let blocked = self.with(|bodies| {
                let those = bodies.now.iter().filter(|(queue, _)| queue == "blocked");
                those.count()
            });
            if blocked == bodies {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("expected {bodies} blocked bodies at some time");
    }
}

fn builder(store: &MemoryStore, floor: &Arc<Floor>) -> NodeBuilder {
    Ratchet::builder(Arc::new(store.clone()))
        .register::<Of<0>>()
        .register::<Of<1>>()
        .register::<Of<2>>()
        .state(Arc::clone(floor))
        .seed(7)
}

async fn enqueue(store: &MemoryStore, jobs: Vec<NewJob>) -> Vec<JobId> {
    let answers = store.enqueue(&jobs).await.unwrap();
    answers.iter().map(|answer| answer.id()).collect()
}

fn stats(node: &Node, pool: &str) -> PoolStats {
    let pools = node.pools();
    pools.into_iter().find(|one| one.name == pool).unwrap()
}

async fn states(store: &MemoryStore, ids: &[JobId]) -> BTreeMap<JobState, usize> {
    let mut states = BTreeMap::new();
    for job in store
        .get(ids, Detail::Whole)
        .await
        .unwrap()
        .into_iter()
        .flatten()
    {
        *states.entry(job.state).or_insert(0) += 1;
    }
    states
}

fn flood(jobs: usize) -> Vec<NewJob> {
    let job = |_| Of::<0>.into_job().queue("blocked");
    (0..jobs).map(job).collect()
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_queue_does_not_delay_another() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let media = enqueue(&store, flood(1_000)).await;
    let node = builder(&store, &floor)
        .concurrency(8)
        .queue_concurrency("gpu", 2);
    let node = Started::new(node.build().unwrap());
    floor.blocked(8).await;
    let mut gpu = Vec::new();
    for _ in 0..50 {
        let job = Of::<1>.into_job().queue("gpu");
        gpu.push(node.node.enqueue(job).await.unwrap().id());
    }
    // 50 jobs of 20 ms in two slots take half a second. If the slots also waited for polls between
    // the jobs, 900 ms would not suffice.
    sleep(Duration::from_millis(900)).await;
    assert_eq!(
        states(&store, &gpu).await,
        [(JobState::Succeeded, 50)].into()
    );
    assert_eq!(states(&store, &media).await[&JobState::Running], 8);
    assert_eq!(stats(&node.node, "default").finished, 0);
    floor.gate.add_permits(1_000);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_pool_exceeds_its_limit_and_every_job_runs_once_in_the_pool_it_belongs_to() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let mut random = fastrand::Rng::with_seed(11);
    let mut expected = BTreeMap::new();
    let mut jobs = Vec::new();
    for _ in 0..600 {
        let mut job = match random.usize(0..3) {
            0 => Of::<0>.into_job(),
            1 => Of::<1>.into_job(),
            _ => Of::<2>.into_job(),
        };
        let queue = ["a", "b", "slow", SYSTEM_QUEUE][random.usize(0..4)];
        job = job.queue(queue);
        let gpu = random.bool();
        if gpu {
            job = job.capability("gpu");
        }
        let kind = job.spec().route.kind.to_string();
        let pool = match (queue, &*kind, gpu) {
            (SYSTEM_QUEUE, _, _) => "system",
            ("slow", _, _) => "queue:slow",
            (_, "render", _) => "kind:render",
            (_, _, true) => "gpu",
            _ => "default",
        };
        *expected.entry(pool.to_owned()).or_insert(0) += 1;
        jobs.push(job);
    }
    let mut ids = enqueue(&store, jobs).await;
    let node = builder(&store, &floor)
        .capabilities(["gpu"])
        .queue_concurrency("slow", 2)
        .kind_concurrency::<Of<1>>(3)
        .pool(Pool::new("gpu").capabilities(["gpu"]).concurrency(1))
        .concurrency(5);
    let node = Started::new(node.build().unwrap());
    for _ in 0..6_000 {
        let ended = states(&store, &ids).await.get(&JobState::Succeeded) == Some(&600);
        match ended {
            true => break,
            false => sleep(Duration::from_millis(10)).await,
        }
    }
    let ran = node.node.pools().into_iter();
    let ran: BTreeMap<String, u64> = ran
        .map(|pool| (pool.name.to_string(), pool.finished))
        .collect();
    assert_eq!(ran, expected);
    ids.sort();
    let mut begun = floor.with(|bodies| bodies.begun.clone());
    begun.sort();
    assert_eq!(begun, ids);
    assert_eq!(floor.most(|queue, _| queue == "slow"), 2);
    assert_eq!(floor.most(|queue, _| queue == SYSTEM_QUEUE), 2);
    let elsewhere = |queue: &str| queue == "a" || queue == "b";
    assert_eq!(
        floor.most(|queue, kind| elsewhere(queue) && kind == "render"),
        3
    );
    assert_eq!(
        floor.most(|queue, kind| elsewhere(queue) && kind != "render"),
        5 + 1
    );
    assert_eq!(floor.most(|_, _| true), 13);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn system_jobs_run_while_every_slot_for_users_is_taken() {
    for queues in [vec![], vec!["blocked"]] {
        let (store, floor) = (MemoryStore::new(), Floor::new());
        enqueue(&store, flood(100)).await;
        let mut node = builder(&store, &floor).concurrency(4);
        if !queues.is_empty() {
            node = node.queues(queues);
        }
        let node = Started::new(node.build().unwrap());
        floor.blocked(4).await;
        let job = Of::<2>.into_job().queue(SYSTEM_QUEUE);
        let id = node.node.enqueue(job).await.unwrap().id();
        sleep(Duration::from_millis(100)).await;
        assert_eq!(
            states(&store, &[id]).await,
            [(JobState::Succeeded, 1)].into()
        );
        node.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_reserved_slots_the_system_queue_is_like_any_other() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let node = |queue| {
        let builder = builder(&store, &floor).system_concurrency(0);
        builder.queues([queue]).build().unwrap()
    };
    let job = Of::<0>.into_job().queue(SYSTEM_QUEUE);
    let ids = enqueue(&store, vec![job]).await;
    let other = Started::new(node("other"));
    sleep(5 * SECOND).await;
    assert_eq!(states(&store, &ids).await, [(JobState::Pending, 1)].into());
    let own = Started::new(node(SYSTEM_QUEUE));
    sleep(5 * SECOND).await;
    assert_eq!(
        states(&store, &ids).await,
        [(JobState::Succeeded, 1)].into()
    );
    assert_eq!(stats(&own.node, "default").finished, 1);
    own.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_pool_makes_no_claim_call_while_the_others_go_on() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    enqueue(&store, flood(100)).await;
    let node = builder(&store, &floor).queue_concurrency("blocked", 3);
    let node = Started::new(node.build().unwrap());
    floor.blocked(3).await;
    let before = node.node.pools();
    sleep(100 * SECOND).await;
    for (before, after) in before.iter().zip(node.node.pools()) {
        let calls = after.claim_calls - before.claim_calls;
        match after.name.as_str() {
            "queue:blocked" => assert_eq!(calls, 0),
            other => assert!(
                (5..=25).contains(&calls),
                "pool {other}: expected 5 to 25 calls, \
                 found {calls}"
            ),
        }
    }
    node.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_wakeup_wakes_the_pools_that_take_from_its_queue_and_no_others() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let coordinator = InProcessCoordinator::new();
    let node = builder(&store, &floor)
        .queue_concurrency("a", 2)
        .kind_concurrency::<Of<1>>(2)
        .poll_interval(3_600 * SECOND, 3_600 * SECOND)
        .coordinator(coordinator.clone());
    let node = Started::new(node.build().unwrap());
    sleep(SECOND).await;
    let elsewhere = Ratchet::client(Arc::new(store.clone())).with_coordinator(coordinator);
    for client in [node.node.client().clone(), elsewhere] {
        for (queue, woken) in [
            ("a", vec!["queue:a"]),
            ("b", vec!["kind:render", "default"]),
            (SYSTEM_QUEUE, vec!["system"]),
        ] {
            let before = node.node.pools();
            let id = client
                .enqueue(Of::<0>.into_job().queue(queue))
                .await
                .unwrap()
                .id();
            sleep(SECOND).await;
            assert_eq!(
                states(&store, &[id]).await,
                [(JobState::Succeeded, 1)].into()
            );
            let after = node.node.pools().into_iter().zip(before);
            let called = after.filter(|(after, before)| after.claim_calls > before.claim_calls);
            let called: Vec<String> = called.map(|(pool, _)| pool.name.to_string()).collect();
            assert_eq!(
                called, woken,
                "unexpected pools that polled after a wakeup for {queue}"
            );
        }
    }
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_call_that_hangs_holds_up_its_own_pool_only() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let hangs = Arc::new(AtomicBool::new(false));
    let slow = store.clone().with_faults({
        let hangs = Arc::clone(&hangs);
        move |operation| match operation {
            "claim_next_batch" if hangs.swap(false, Ordering::SeqCst) => Fault::Delay(5 * SECOND),
            _ => Fault::None,
        }
    });
    let node = builder(&slow, &floor)
        .queue_concurrency("a", 1)
        .queue_concurrency("b", 1)
        .poll_interval(3_600 * SECOND, 3_600 * SECOND);
    let node = Started::new(node.build().unwrap());
    sleep(SECOND).await;
    hangs.store(true, Ordering::SeqCst);
    let mut ids = Vec::new();
    for queue in ["a", "b"] {
        let job = Of::<0>.into_job().queue(queue);
        ids.push(node.node.enqueue(job).await.unwrap().id());
        sleep(SECOND).await;
    }
    assert_eq!(
        states(&store, &ids[..1]).await,
        [(JobState::Pending, 1)].into()
    );
    assert_eq!(
        states(&store, &ids[1..]).await,
        [(JobState::Succeeded, 1)].into()
    );
    sleep(5 * SECOND).await;
    assert_eq!(
        states(&store, &ids).await,
        [(JobState::Succeeded, 2)].into()
    );
    node.stop().await.unwrap();
}

/// Starts a node whose pool `media` has two slots, and lets it run quick jobs until it prefetches.
/// Then enqueues 300 jobs that block. Two of them occupy the slots, and the node holds claims of
/// others, whose bodies cannot begin. Returns the node and the ids of the 300 jobs.
async fn stuck(
    store: &MemoryStore,
    floor: &Arc<Floor>,
    on: MemoryStore,
    ttl: Duration,
) -> (Started, Vec<JobId>) {
    let quick = (0..2_000).map(|_| Of::<0>.into_job().queue("quick"));
    enqueue(store, quick.collect()).await;
    let node = builder(&on, floor).label("stuck").prefetch_ttl(ttl);
    let media = Pool::new("media").queues(["quick", "blocked"]);
    let node = Started::new(node.pool(media.concurrency(2)).build().unwrap());
    for _ in 0..60_000 {
        match stats(&node.node, "media").finished < 1_000 {
            true => sleep(Duration::from_millis(1)).await,
            false => break,
        }
    }
    let jobs = enqueue(store, flood(300)).await;
    floor.blocked(2).await;
    sleep(SECOND).await;
    let held = states(store, &jobs).await[&JobState::Running];
    assert!(held > 2, "nothing was prefetched");
    (node, jobs)
}

#[tokio::test(start_paused = true)]
async fn a_drain_hands_back_and_waits_in_every_pool() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let (node, jobs) = stuck(&store, &floor, store.clone(), 60 * SECOND).await;
    let long = enqueue(&store, vec![Of::<0>.into_job().queue("long")]).await;
    sleep(2 * SECOND).await;
    assert_eq!(states(&store, &long).await, [(JobState::Running, 1)].into());
    let open = tokio::spawn({
        let (store, floor, jobs) = (store.clone(), Arc::clone(&floor), jobs.clone());
        async move {
            sleep(SECOND).await;
            let waiting = [(JobState::Pending, 298), (JobState::Running, 2)];
            assert_eq!(states(&store, &jobs).await, waiting.into());
            floor.gate.add_permits(300);
        }
    });
    node.stop().await.unwrap();
    open.await.unwrap();
    let done = [(JobState::Pending, 298), (JobState::Succeeded, 2)];
    assert_eq!(states(&store, &jobs).await, done.into());
    assert_eq!(
        states(&store, &long).await,
        [(JobState::Succeeded, 1)].into()
    );
    for job in store
        .get(&jobs, Detail::Whole)
        .await
        .unwrap()
        .into_iter()
        .flatten()
    {
        assert_eq!(job.crash_count, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn claims_that_wait_in_one_pool_do_not_delay_the_ends_of_another() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let (node, _) = stuck(&store, &floor, store.clone(), 60 * SECOND).await;
    for _ in 0..20 {
        let job = Of::<0>.into_job().queue("gpu");
        let id = node.node.enqueue(job).await.unwrap().id();
        sleep(SECOND).await;
        let job = store
            .get(&[id], Detail::Whole)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        let took = job.finished_at.unwrap() - job.created_at;
        assert!(took.num_milliseconds() <= 21, "20 ms became {took}");
    }
    node.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_in_a_pool_can_be_cancelled() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let (node, jobs) = stuck(&store, &floor, store.clone(), 60 * SECOND).await;
    let begun = floor.with(|bodies| bodies.begun.clone());
    let records = store
        .get(&jobs, Detail::Whole)
        .await
        .unwrap()
        .into_iter()
        .flatten();
    let waits =
        |job: &ratchet_core::JobRecord| job.state == JobState::Running && !begun.contains(&job.id);
    let waiting = records.into_iter().find(waits).unwrap().id;
    node.node.client().cancel(waiting).await.unwrap();
    sleep(6 * SECOND).await;
    assert_eq!(
        states(&store, &[waiting]).await,
        [(JobState::Cancelled, 1)].into()
    );
    node.kill().await;
}

#[tokio::test(start_paused = true)]
async fn claims_that_wait_too_long_in_a_pool_are_handed_back() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let (node, jobs) = stuck(&store, &floor, store.clone(), 5 * SECOND).await;
    sleep(10 * SECOND).await;
    let blocked = [(JobState::Pending, 298), (JobState::Running, 2)];
    assert_eq!(states(&store, &jobs).await, blocked.into());
    node.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_taken_for_dead_has_its_room_back_in_every_pool() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    let away = Arc::new(AtomicBool::new(false));
    let cut = store.clone().with_faults({
        let away = Arc::clone(&away);
        move |_| match away.load(Ordering::SeqCst) {
            true => Fault::ErrorBeforeCommit,
            false => Fault::None,
        }
    });
    let (node, jobs) = stuck(&store, &floor, cut, 120 * SECOND).await;
    let witness = builder(&store, &floor)
        .queues(["elsewhere"])
        .system_concurrency(0);
    let witness = Started::new(witness.build().unwrap());
    away.store(true, Ordering::SeqCst);
    sleep(40 * SECOND).await;
    let nodes = store.nodes().await.unwrap();
    let dead = nodes.iter().find(|node| node.label == "stuck").unwrap();
    assert_eq!(dead.status, NodeStatus::Dead);
    away.store(false, Ordering::SeqCst);
    floor.gate.add_permits(300);
    sleep(60 * SECOND).await;
    assert_eq!(
        states(&store, &jobs).await,
        [(JobState::Succeeded, 300)].into()
    );
    node.stop().await.unwrap();
    witness.stop().await.unwrap();
}

#[test]
fn pools_that_cannot_work_are_refused_with_everything_else() {
    let world = World::new();
    let refused = world
        .builder()
        .queues(["images", "other"])
        .concurrency(0)
        .queue_concurrency("images", 0)
        .queue_concurrency("mail", 1)
        .kind_concurrency::<Of<0>>(1)
        .build()
        .unwrap_err();
    let expected = [
        "concurrency is 0",
        "concurrency of pool queue:images is 0; the minimum is 1",
        r#"queue mail of pool queue:mail is not among those of the node: ["images", "other"]"#,
        r#"kind encode of pool kind:encode is not among those of the node: ["scripted"]"#,
    ];
    assert_eq!(refused.problems(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_node_says_the_load_of_all_its_pools() {
    let (store, floor) = (MemoryStore::new(), Floor::new());
    enqueue(&store, flood(10)).await;
    let node = builder(&store, &floor)
        .concurrency(5)
        .queue_concurrency("blocked", 3);
    let node = Started::new(node.build().unwrap());
    enqueue(&store, flood(10)).await;
    sleep(10 * SECOND).await;
    let load = store.nodes().await.unwrap()[0].load;
    assert_eq!((load.running, load.capacity), (3, 2 + 3 + 5));
    node.kill().await;
}
