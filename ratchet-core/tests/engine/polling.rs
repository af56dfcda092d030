//! Tests of when a node polls, what wakes it, and how many jobs it claims.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::client::Wakes;
use ratchet_core::cluster::{ClusterCoordinator, InProcessCoordinator};
use ratchet_core::memory::Fault;
use ratchet_core::{JobState, MemoryStore, NewJob, Pool, Priority, Ratchet, time};
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

/// Returns a handle on the store that counts its calls, and these counts by operation.
fn counted(store: &MemoryStore) -> (MemoryStore, Arc<Mutex<BTreeMap<&'static str, usize>>>) {
    let calls = Arc::new(Mutex::new(BTreeMap::new()));
    let counted = store.clone().with_faults({
        let calls = Arc::clone(&calls);
        move |operation| {
            *calls.lock().unwrap().entry(operation).or_insert(0) += 1;
            Fault::None
        }
    });
    (counted, calls)
}

#[tokio::test(start_paused = true)]
async fn an_idle_pool_polls_rarely_while_a_leader_looks_also_while_jobs_are_not_due() {
    for (leads, claims) in [(true, 5..=9), (false, 90..=112)] {
        idle_pools_poll(leads, claims).await;
    }
}

/// Checks that each pool of a node without due jobs makes an `expected` number of claim calls in
/// 100 s, and that the node makes few other calls. `leads` is whether the node may lead.
async fn idle_pools_poll(leads: bool, expected: RangeInclusive<u64>) {
    let world = World::new();
    for number in 0..50 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        world.enqueue(job.delay(3_600 * SECOND)).await;
    }
    let (store, calls) = counted(&world.store);
    let node = world.builder_on(store).promotable(leads);
    let node = Started::new(node.build().unwrap());
    sleep(60 * SECOND).await;
    calls.lock().unwrap().clear();
    let before = node.node.pools();
    sleep(100 * SECOND).await;
    let calls = calls.lock().unwrap();
    let claims = calls["claim_next_batch"];
    let after = node.node.pools();
    assert_eq!(
        after.len(),
        2,
        "expected two pools: the default pool and the pool of the system queue"
    );
    for (before, after) in before.iter().zip(&after) {
        let claims = after.claim_calls - before.claim_calls;
        assert!(
            expected.contains(&claims),
            "unexpected number of claims in 100 s: {claims}"
        );
    }
    // The bound allows the other calls of an idle node that leads. Every five seconds, it makes a
    // reclaim pass: it reads the nodes, sends a heartbeat, reclaims claims and searches for overdue
    // signals. As often, it searches for due recurring definitions. Every three seconds, it renews
    // its leadership. Every second, it searches for due jobs. Every minute, it purges jobs of three
    // states, batches and rates.
    let others: usize = calls.values().sum::<usize>() - claims;
    assert!(
        others <= 20 + 3 * 23 + 5 * 2 + 34 + 101 + 2 * 23,
        "{calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_enqueue_through_the_node_is_run_without_waiting_for_the_poll() {
    let world = World::new();
    let node = world.start();
    sleep(60 * SECOND).await;
    let job = world.job("now", |_| async { Ok(()) });
    let id = node.node.enqueue(job).await.unwrap().id();
    sleep(Duration::from_millis(5)).await;
    assert_eq!(world.read(id).await.state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn without_any_wakeup_a_job_waits_one_poll_interval_at_most() {
    let world = World::new();
    let _node = world.start();
    sleep(60 * SECOND).await;
    let id = world
        .enqueue(world.job("found", |_| async { Ok(()) }))
        .await;
    sleep(Duration::from_millis(1_010)).await;
    assert_eq!(world.read(id).await.state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_wakes_the_other_nodes() {
    let world = World::new();
    let coordinator = InProcessCoordinator::new();
    let builder = world.builder().coordinator(coordinator.clone());
    let _node = Started::new(builder.build().unwrap());
    sleep(60 * SECOND).await;
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let client = client.with_coordinator(coordinator);
    let job = world.job("woken", |_| async { Ok(()) });
    let id = client.enqueue(job).await.unwrap().id();
    sleep(Duration::from_millis(5)).await;
    assert_eq!(world.read(id).await.state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn wakeups_about_other_queues_and_delayed_jobs_wake_no_node() {
    let world = World::new();
    let coordinator = InProcessCoordinator::new();
    let (store, calls) = counted(&world.store);
    let builder = world
        .builder_on(store)
        .coordinator(coordinator.clone())
        .queues(["mine"]);
    let _node = Started::new(builder.build().unwrap());
    sleep(60 * SECOND).await;
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let client = client.with_coordinator(coordinator);
    calls.lock().unwrap().clear();
    for _ in 0..100 {
        let job = world.job("elsewhere", |_| async { Ok(()) });
        client.enqueue(job.queue("theirs")).await.unwrap();
        let job = world.job("later", |_| async { Ok(()) });
        client
            .enqueue(job.queue("mine").delay(3_600 * SECOND))
            .await
            .unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    let claims = calls
        .lock()
        .unwrap()
        .get("claim_next_batch")
        .copied()
        .unwrap_or(0);
    assert!(
        claims <= 2,
        "expected at most 2 claims in one second, found {claims}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_bodies_run_than_there_are_slots_and_none_is_claimed_without_room() {
    let world = World::new();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut ids = Vec::new();
    for number in 0..60 {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        let job = world.job(&number.to_string(), move |_| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(SECOND).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        });
        ids.push(world.enqueue(job).await);
    }
    let builder = world.builder().concurrency(6).prefetch(0);
    let node = Started::new(builder.build().unwrap());
    let mut held_most = 0;
    for id in ids {
        loop {
            let stats = node.node.stats();
            held_most = held_most.max(stats.claimed - stats.settled);
            if world.read(id).await.state == JobState::Succeeded {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(most.load(Ordering::SeqCst), 6);
    assert_eq!(held_most, 6);
}

#[tokio::test(start_paused = true)]
async fn prefetched_claims_that_wait_too_long_go_to_other_nodes() {
    let world = World::new();
    let begun = Arc::new(AtomicUsize::new(0));
    for number in 0..2_000 {
        let begun = Arc::clone(&begun);
        let job = world.job(&number.to_string(), move |_| {
            let begun = Arc::clone(&begun);
            async move {
                if begun.fetch_add(1, Ordering::SeqCst) == 1_500 {
                    // From now on, this node's only slot is occupied.
                    sleep(3_600 * SECOND).await;
                }
                sleep(Duration::from_micros(100)).await;
                Ok(())
            }
        });
        world.enqueue(job).await;
    }
    let _stuck = Started::new(world.builder().concurrency(1).build().unwrap());
    while begun.load(Ordering::SeqCst) <= 1_500 {
        sleep(Duration::from_millis(1)).await;
    }
    let other = Started::new(world.builder().concurrency(8).build().unwrap());
    sleep(15 * SECOND).await;
    assert_eq!(begun.load(Ordering::SeqCst), 2_000);
    other.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn queues_and_capabilities_choose_the_node() {
    let world = World::new();
    let make = |name: &str| world.job(name, |_| async { Ok(()) });
    let gpu = world.enqueue(make("gpu").capability("gpu")).await;
    let mail = world.enqueue(make("mail").queue("mail")).await;
    let plain = world.enqueue(make("plain").queue("images")).await;
    let _node = Started::new(
        world
            .builder()
            .queues(["images", "default"])
            .build()
            .unwrap(),
    );
    sleep(5 * SECOND).await;
    assert_eq!(world.read(plain).await.state, JobState::Succeeded);
    assert_eq!(world.read(gpu).await.state, JobState::Pending);
    assert_eq!(world.read(mail).await.state, JobState::Pending);
    let _gpu_node = Started::new(world.builder().capabilities(["gpu"]).build().unwrap());
    sleep(5 * SECOND).await;
    assert_eq!(world.read(gpu).await.state, JobState::Succeeded);
    assert_eq!(world.read(mail).await.state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_node_can_leave_ordinary_jobs_to_others() {
    let world = World::new();
    let make = |name: &str| world.job(name, |_| async { Ok(()) });
    let gpu = world.enqueue(make("gpu").capability("gpu")).await;
    let plain = world.enqueue(make("plain")).await;
    let media = world.enqueue(make("media").queue("media")).await;
    let system = world.enqueue(make("system").queue("system")).await;
    let refusing = world.builder().capabilities(["gpu"]).untagged(false);
    let node = Started::new(refusing.build().unwrap());
    sleep(5 * SECOND).await;
    for done in [gpu, system] {
        assert_eq!(world.read(done).await.state, JobState::Succeeded);
    }
    for left in [plain, media] {
        assert_eq!(world.read(left).await.state, JobState::Pending);
    }
    node.stop().await.unwrap();
    // `untagged(false)` on a pool applies only to the queue of the pool: there, the node leaves
    // jobs without capabilities to other nodes.
    let pool = Pool::new("media").queues(["media"]).untagged(false);
    let builder = world.builder().capabilities(["gpu"]);
    let _node = Started::new(builder.pool(pool.concurrency(1)).build().unwrap());
    let gpu = world
        .enqueue(make("gpu").queue("media").capability("gpu"))
        .await;
    sleep(5 * SECOND).await;
    for done in [gpu, plain] {
        assert_eq!(world.read(done).await.state, JobState::Succeeded);
    }
    assert_eq!(world.read(media).await.state, JobState::Pending);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_for_half_a_minute_costs_no_attempt_and_no_node() {
    let world = World::new();
    let away = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (store, calls) = {
        let (away, calls) = (Arc::clone(&away), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&calls);
        let store = world.store.clone().with_faults(move |_| {
            seen.fetch_add(1, Ordering::SeqCst);
            match away.load(Ordering::SeqCst) {
                true => Fault::ErrorBeforeCommit,
                false => Fault::None,
            }
        });
        (store, calls)
    };
    let node = Started::new(world.builder_on(store).build().unwrap());
    sleep(SECOND).await;
    away.store(true, Ordering::SeqCst);
    let before = calls.load(Ordering::SeqCst);
    let id = world
        .enqueue(world.job("waits", |_| async { Ok(()) }))
        .await;
    sleep(30 * SECOND).await;
    let tries = calls.load(Ordering::SeqCst) - before;
    assert!(
        tries < 90,
        "expected fewer than 90 calls to an unavailable database in 30 s, found {tries}"
    );
    away.store(false, Ordering::SeqCst);
    let job = world.ended(id).await;
    assert_eq!(
        (job.state, job.attempts, job.crash_count),
        (JobState::Succeeded, 1, 0)
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_the_jobs_that_are_to_wake_a_node_do() {
    use Wakes::{Critical, Due, Never};
    let world = World::new();
    let coordinator = InProcessCoordinator::new();
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let client = client.with_coordinator(coordinator.clone());
    type Change = fn(NewJob) -> NewJob;
    let table: [(Change, &[Wakes]); 5] = [
        (|job| job, &[Due]),
        (|job| job.priority(Priority::High), &[Due]),
        (|job| job.priority(Priority::Critical), &[Due, Critical]),
        (|job| job.priority(Priority::Critical).delay(SECOND), &[]),
        (|job| job.delay(SECOND), &[]),
    ];
    for (change, wakers) in table {
        for wakes in [Due, Critical, Never] {
            let mut wakeups = coordinator.subscribe();
            let job = change(NewJob::new("kind", &1));
            client.with_wakes(wakes).enqueue(job).await.unwrap();
            let woken = tokio::time::timeout(SECOND, wakeups.next()).await.is_ok();
            assert_eq!(woken, wakers.contains(&wakes), "{wakes:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_of_the_same_store_wakes_the_node() {
    let world = World::new();
    let job = world.job("a", |_| async { Ok(()) });
    let node = Started::new(world.builder().build().unwrap());
    // The idle node now polls at its longest interval, one second or more.
    sleep(60 * SECOND).await;
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let began = time::monotonic();
    let id = client.enqueue(job).await.unwrap().id();
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    assert!(began.elapsed() < SECOND / 10, "{:?}", began.elapsed());
    node.stop().await.unwrap();
}
