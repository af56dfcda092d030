//! Tests of undelivered claims, which the store made, but whose answer never reached the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::{AttemptOutcome, NodeStatus};
use ratchet_core::store::{IfKnown, NodeStore, PermitStore};
use ratchet_core::time::monotonic;
use ratchet_core::{JobId, JobState, MemoryStore, Name, NewJob, Pool};
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);
/// The default heartbeat interval.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Returns a handle on the store that injects `fault` into the first two claim calls. These are the
/// first calls of the node's two pools.
fn faulty_claim(world: &World, fault: Fault) -> MemoryStore {
    let met = AtomicUsize::new(0);
    world.store.clone().with_faults(move |operation| {
        let claims = operation.starts_with("claim_next_batch");
        match claims && met.fetch_add(1, Ordering::SeqCst) < 2 {
            true => fault,
            false => Fault::None,
        }
    })
}

fn counted(world: &World, name: &str, bodies: &Arc<AtomicUsize>) -> NewJob {
    let bodies = Arc::clone(bodies);
    world.job(name, move |_| {
        bodies.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }
    })
}

async fn outcomes(world: &World, id: JobId) -> Vec<AttemptOutcome> {
    let history = world.store_history(id).await;
    history.iter().map(|entry| entry.outcome).collect()
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_handed_back_within_one_heartbeat() {
    let world = World::new();
    let bodies = Arc::new(AtomicUsize::new(0));
    let id = world.enqueue(counted(&world, "lost", &bodies)).await;
    let due = world.read(id).await.run_at;
    let began = monotonic();
    let lossy = faulty_claim(&world, Fault::ErrorAfterCommit);
    let node = Started::new(world.builder_on(lossy).build().unwrap());
    let job = world.ended(id).await;
    assert!(monotonic() - began < HEARTBEAT);
    assert_eq!(
        outcomes(&world, id).await,
        [AttemptOutcome::Undelivered, AttemptOutcome::Succeeded]
    );
    assert_eq!((job.attempts, job.crash_count, job.run_at), (1, 0, due));
    assert_eq!(bodies.load(Ordering::SeqCst), 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_says_how_many_of_its_claims_it_does_not_hold() {
    let world = World::new();
    let id = world.enqueue(world.job("lost", |_| async { Ok(()) })).await;
    let refuses = Arc::new(AtomicBool::new(true));
    let claims = AtomicUsize::new(0);
    let lossy = world.store.clone().with_faults({
        let refuses = Arc::clone(&refuses);
        move |operation| match operation {
            "settle" if refuses.load(Ordering::SeqCst) => Fault::ErrorBeforeCommit,
            "claim_next_batch" if claims.fetch_add(1, Ordering::SeqCst) < 2 => {
                Fault::ErrorAfterCommit
            }
            _ => Fault::None,
        }
    });
    let node = Started::new(world.builder_on(lossy).build().unwrap());
    let unheld = async || {
        let nodes = world.store.nodes().await.unwrap();
        nodes.first().and_then(|node| node.load.unheld_claims)
    };
    let until = async |claims| {
        for _ in 0..600 {
            if unheld().await == Some(claims) {
                return;
            }
            sleep(SECOND).await;
        }
        panic!("expected {claims} claims without a holder at some time");
    };
    until(1).await;
    refuses.store(false, Ordering::SeqCst);
    world.ended(id).await;
    until(0).await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_undelivered_claim_keeps_neither_its_lane_nor_its_permit() {
    let world = World::new();
    let resource = Name::new("permit", "printer").unwrap();
    world
        .store
        .set_permits(&resource, 1, IfKnown::Change)
        .await
        .unwrap();
    let bodies = Arc::new(AtomicUsize::new(0));
    let mut ids = Vec::new();
    for name in ["first", "second"] {
        let job = counted(&world, name, &bodies);
        let job = job.lane("orders").permit("printer");
        ids.push(world.enqueue(job).await);
    }
    let began = monotonic();
    let lossy = faulty_claim(&world, Fault::ErrorAfterCommit);
    let node = Started::new(world.builder_on(lossy).build().unwrap());
    world.ended(ids[1]).await;
    assert!(monotonic() - began < HEARTBEAT);
    assert_eq!(
        outcomes(&world, ids[0]).await[0],
        AttemptOutcome::Undelivered
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_slow_is_not_handed_back() {
    let world = World::new();
    let bodies = Arc::new(AtomicUsize::new(0));
    let id = world.enqueue(counted(&world, "slow", &bodies)).await;
    let slow = faulty_claim(&world, Fault::DelayedAnswer(9 * SECOND));
    let node = Started::new(
        world
            .builder_on(slow)
            .heartbeat_interval(SECOND)
            .build()
            .unwrap(),
    );
    let job = world.ended(id).await;
    assert_eq!(outcomes(&world, id).await, [AttemptOutcome::Succeeded]);
    assert_eq!(job.claim_seq, 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_only_for_the_calls_that_could_deliver_it() {
    let world = World::new();
    let bodies = Arc::new(AtomicUsize::new(0));
    let mut ids = Vec::new();
    for queue in ["a", "b"] {
        let job = counted(&world, queue, &bodies).queue(queue);
        ids.push(world.enqueue(job).await);
    }
    // The answer to the first claim call is slow. The answer to the second one, which the other
    // pool makes, is lost.
    let calls = AtomicUsize::new(0);
    let store = world.store.clone().with_faults(move |operation| {
        match operation.starts_with("claim_next_batch") {
            true => match calls.fetch_add(1, Ordering::SeqCst) {
                0 => Fault::DelayedAnswer(2 * SECOND),
                1 => Fault::ErrorAfterCommit,
                _ => Fault::None,
            },
            false => Fault::None,
        }
    });
    // The node has two pools: `a`, and the default pool, which runs the jobs of queue `b`.
    let node = world.builder_on(store).system_concurrency(0);
    let node = node.pool(Pool::new("a").queues(["a"]).concurrency(1));
    let began = monotonic();
    let node = Started::new(node.build().unwrap());
    for id in &ids {
        world.ended(*id).await;
    }
    assert!(monotonic() - began < HEARTBEAT);
    let mut seen = Vec::new();
    for id in &ids {
        seen.extend(outcomes(&world, *id).await);
    }
    let count = |outcome| seen.iter().filter(|one| **one == outcome).count();
    assert_eq!(count(AttemptOutcome::Undelivered), 1, "{seen:?}");
    assert_eq!(count(AttemptOutcome::Succeeded), 2, "{seen:?}");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_beyond_its_deadline_is_handed_back() {
    let world = World::new();
    let bodies = Arc::new(AtomicUsize::new(0));
    let id = world.enqueue(counted(&world, "hung", &bodies)).await;
    let hung = faulty_claim(&world, Fault::DelayedAnswer(60 * SECOND));
    let began = monotonic();
    let node = Started::new(world.builder_on(hung).build().unwrap());
    world.ended(id).await;
    assert!(monotonic() - began < 60 * SECOND);
    assert_eq!(
        outcomes(&world, id).await,
        [AttemptOutcome::Undelivered, AttemptOutcome::Succeeded]
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_during_an_outage_is_handed_back_after_it() {
    let world = World::new();
    let bodies = Arc::new(AtomicUsize::new(0));
    let id = world.enqueue(counted(&world, "outage", &bodies)).await;
    let away = Arc::new(AtomicBool::new(true));
    let store = world.store.clone().with_faults({
        let away = Arc::clone(&away);
        move |operation| match away.load(Ordering::SeqCst) && operation != "heartbeat" {
            true if operation.starts_with("claim_next_batch") => Fault::ErrorAfterCommit,
            true => Fault::ErrorBeforeCommit,
            false => Fault::None,
        }
    });
    let node = Started::new(world.builder_on(store).build().unwrap());
    world.until(id, |job| job.state == JobState::Running).await;
    // The heartbeat replies list the claim, but the settlement that would hand it back still fails.
    sleep(3 * HEARTBEAT).await;
    assert_eq!(world.read(id).await.state, JobState::Running);
    away.store(false, Ordering::SeqCst);
    let job = world.ended(id).await;
    assert_eq!((job.attempts, job.crash_count), (1, 0));
    let first = outcomes(&world, id).await[0];
    assert_eq!(first, AttemptOutcome::Undelivered);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_settles_slowly_keeps_no_node_silent() {
    let world = World::new();
    let bodies = Arc::new(AtomicUsize::new(0));
    let id = world.enqueue(counted(&world, "lost", &bodies)).await;
    let (claims, settlements) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // The claim's answer is lost, and the first settlement, which hands it back, hangs until its
    // deadline.
    let store = world.store.clone().with_faults(move |operation| {
        let first = |calls: &AtomicUsize, most| calls.fetch_add(1, Ordering::SeqCst) < most;
        match operation {
            "claim_next_batch" if first(&claims, 2) => Fault::ErrorAfterCommit,
            "settle" if first(&settlements, 1) => Fault::Delay(3_600 * SECOND),
            _ => Fault::None,
        }
    });
    let node = world.builder_on(store).heartbeat_interval(SECOND);
    let node = Started::new(node.build().unwrap());
    world.until(id, |job| job.state == JobState::Running).await;
    // No heartbeat is late while the settlement hangs for 10 s.
    for _ in 0..20 {
        sleep(SECOND / 2).await;
        let nodes = world.store.nodes().await.unwrap();
        let now = world.store.database_time().await.unwrap();
        let silent = now - nodes[0].last_seen;
        assert!(silent.num_milliseconds() <= 1_500, "silent for {silent}");
    }
    let job = world.ended(id).await;
    assert_eq!((job.attempts, job.crash_count), (1, 0));
    let first = outcomes(&world, id).await[0];
    assert_eq!(first, AttemptOutcome::Undelivered);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_hands_back_what_it_never_received() {
    let world = World::new();
    let bodies = Arc::new(AtomicUsize::new(0));
    let id = world.enqueue(counted(&world, "leaving", &bodies)).await;
    // While the node drains, its claim call exceeds the deadline of 10 s, so the claim is never
    // received.
    let hung = faulty_claim(&world, Fault::DelayedAnswer(60 * SECOND));
    let node = Started::new(world.builder_on(hung).build().unwrap());
    world.until(id, |job| job.state == JobState::Running).await;
    node.stop().await.unwrap();
    let job = world.read(id).await;
    assert_eq!(
        (job.state, job.attempts, job.crash_count),
        (JobState::Pending, 0, 0)
    );
    assert_eq!(outcomes(&world, id).await, [AttemptOutcome::Undelivered]);
    let nodes = world.store.nodes().await.unwrap();
    assert_eq!(nodes[0].status, NodeStatus::Left);
    assert_eq!(bodies.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_counts_as_a_crash_and_not_as_undelivered() {
    let world = World::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let job = world.job("stalled", {
        let runs = Arc::clone(&runs);
        move |_| {
            let first = runs.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if first {
                    sleep(600 * SECOND).await;
                }
                Ok(())
            }
        }
    });
    let id = world.enqueue(job.stall_timeout(10 * SECOND)).await;
    let node = world.start();
    let job = world.ended(id).await;
    assert_eq!(
        outcomes(&world, id).await,
        [AttemptOutcome::Lost, AttemptOutcome::Succeeded]
    );
    assert_eq!(job.crash_count, 1);
    node.stop().await.unwrap();
}
