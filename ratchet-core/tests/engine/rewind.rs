//! Tests of a cluster whose database returns to an earlier state, as in a failover to a lagging
//! replica or in a restore.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::{AttemptOutcome, ClaimRequest, NodeStatus, Outcome, Settlement};
use ratchet_core::store::{IfKnown, JobStore, NodeStore, PermitStore};
use ratchet_core::time::monotonic;
use ratchet_core::{CancelReason, JobState, Name, NodeId};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::kit::{Started, World, stop_all};

const SECOND: Duration = Duration::from_secs(1);
/// The time within which a node must react to a rewind of the database: one heartbeat interval,
/// which is five seconds by default, and one second to act on the reply.
const BOUND: Duration = Duration::from_secs(6);

/// Counts the bodies that run, the most that ran at once, and all that have begun.
#[derive(Default)]
struct Bodies {
    running: AtomicUsize,
    most: AtomicUsize,
    begun: AtomicUsize,
}

/// Counts as one running body until it is dropped.
struct Body(Arc<Bodies>);

impl Bodies {
    fn begin(self: &Arc<Self>) -> Body {
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        Body(Arc::clone(self))
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_end_was_lost_is_handed_back_and_its_lane_goes_on() {
    let world = World::new();
    let finish = Arc::new(Notify::new());
    let first = world.job("first", {
        let finish = Arc::clone(&finish);
        move |ctx| {
            let finish = Arc::clone(&finish);
            async move {
                if ctx.checkpoint::<bool>()?.is_none() {
                    ctx.save_checkpoint(&true).await?;
                    finish.notified().await;
                }
                Ok(())
            }
        }
    });
    let first = world.enqueue(first.lane("orders")).await;
    let node = world.start();
    // The body saves a checkpoint, so the store knows that it began, and the start timeout no
    // longer applies.
    world
        .until(first, |job| {
            job.checkpoint.is_some() && job.state == JobState::Running
        })
        .await;
    let second = world.job("second", |_| async { Ok(()) });
    let second = world.enqueue(second.lane("orders")).await;
    let copy = world.store.snapshot();
    finish.notify_one();
    world.ended(second).await;
    world.store.rewind(&copy);
    let began = monotonic();
    let job = world.ended(first).await;
    world.ended(second).await;
    assert!(
        monotonic() - began < BOUND,
        "after {:?}",
        monotonic() - began
    );
    assert_eq!((job.attempts, job.crash_count), (1, 0));
    let outcomes: Vec<AttemptOutcome> = world
        .store_history(first)
        .await
        .iter()
        .map(|entry| entry.outcome)
        .collect();
    assert_eq!(
        outcomes,
        [AttemptOutcome::Undelivered, AttemptOutcome::Succeeded]
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_claim_was_lost_is_stopped_and_its_result_is_not_applied() {
    let world = World::new();
    let reasons = Arc::new(std::sync::Mutex::new(Vec::new()));
    let id = world.job("long", {
        let reasons = Arc::clone(&reasons);
        move |ctx| {
            let reasons = Arc::clone(&reasons);
            async move {
                let watch = ctx.clone();
                tokio::spawn(async move {
                    let reason = watch.cancelled().await;
                    reasons.lock().unwrap().push(reason);
                });
                sleep(600 * SECOND).await;
                Ok(())
            }
        }
    });
    let id = world.enqueue(id).await;
    let copy = world.store.snapshot();
    let node = world.start();
    let held = world.until(id, |job| job.node.is_some()).await;
    world.store.rewind(&copy);
    // Another node claims the job before the first node can. Its claim has the same `claim_seq` as
    // the claim that the rewind undid.
    let other = ClaimRequest::new(NodeId::new(), 1);
    let theirs = world.store.claim_next_batch(&other).await.unwrap();
    let theirs = theirs[0].claim.token;
    assert_eq!((theirs.job, theirs.seq), (id, held.claim_seq));
    sleep(BOUND).await;
    assert_eq!(*reasons.lock().unwrap(), [CancelReason::ClaimLost]);
    let job = world.read(id).await;
    assert_eq!((job.state, job.node), (JobState::Running, theirs.node));
    let end = [Settlement::new(theirs, Outcome::Released)];
    world.store.settle(&end).await.unwrap();
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_end_that_waits_to_be_stored_does_not_end_the_same_claim_of_the_new_history() {
    let world = World::new();
    let bodies = Arc::new(AtomicUsize::new(0));
    let job = world.job("counted", {
        let bodies = Arc::clone(&bodies);
        move |_| {
            let number = bodies.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(number) }
        }
    });
    let id = world.enqueue(job).await;
    let copy = world.store.snapshot();
    let away = Arc::new(AtomicBool::new(true));
    let store = world.store.clone().with_faults({
        let away = Arc::clone(&away);
        move |operation| match operation {
            "settle" if away.load(Ordering::SeqCst) => Fault::ErrorBeforeCommit,
            _ => Fault::None,
        }
    });
    let node = Started::new(world.builder_on(store).build().unwrap());
    for _ in 0..6_000 {
        if bodies.load(Ordering::SeqCst) == 0 {
            sleep(SECOND / 100).await;
        }
    }
    let before = world.read(id).await;
    assert_eq!(before.state, JobState::Running);
    world.store.rewind(&copy);
    // The node claims the job again with the same `claim_seq`. Only then can it send the settlement
    // of its first body.
    let after = world.until(id, |job| job.state == JobState::Running).await;
    assert_eq!(
        (after.claim_seq, after.node),
        (before.claim_seq, before.node)
    );
    away.store(false, Ordering::SeqCst);
    let job = world.ended(id).await;
    assert_eq!(
        job.result.unwrap().as_str(),
        "2",
        "expected the result of the first body"
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_never_runs_two_bodies_of_one_job() {
    let world = World::new();
    let printer = Name::new("permit", "printer").unwrap();
    world
        .store
        .set_permits(&printer, 1, IfKnown::Change)
        .await
        .unwrap();
    let bodies = Arc::new(Bodies::default());
    let job = world.job("long", {
        let bodies = Arc::clone(&bodies);
        move |_| {
            let body = bodies.begin();
            async move {
                sleep(3 * SECOND).await;
                drop(body);
                Ok(())
            }
        }
    });
    let id = world.enqueue(job.permit("printer")).await;
    let copy = world.store.snapshot();
    let node = world.start();
    world.until(id, |job| job.state == JobState::Running).await;
    world.store.rewind(&copy);
    let job = world.ended(id).await;
    assert_eq!((job.attempts, job.crash_count), (1, 0));
    assert_eq!(bodies.begun.load(Ordering::SeqCst), 2);
    assert_eq!(bodies.most.load(Ordering::SeqCst), 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rewind_buries_no_node_and_counts_no_crash() {
    for lag in [14, 16, 25, 40, 300] {
        let world = World::new();
        let nodes: Vec<Started> = (0..4)
            .map(|seed| Started::new(world.builder().seed(seed).build().unwrap()))
            .collect();
        let mut ids = Vec::new();
        for number in 0..9 {
            let job = world.job(&format!("long {number}"), |_| async {
                sleep(100 * SECOND).await;
                Ok(())
            });
            ids.push(world.enqueue(job).await);
        }
        sleep(40 * SECOND).await;
        let copy = world.store.snapshot();
        sleep(lag * SECOND).await;
        world.store.rewind(&copy);
        for _ in 0..24 {
            sleep(5 * SECOND).await;
            let rows = world.store.nodes().await.unwrap();
            let active = rows.iter().filter(|row| row.status == NodeStatus::Active);
            assert_eq!(
                active.count(),
                4,
                "copy of {lag} s ago: expected 4 active nodes, found \
                 {rows:#?}"
            );
        }
        for id in ids {
            assert_eq!(world.ended(id).await.crash_count, 0, "{lag} s ago");
        }
        stop_all(nodes).await;
    }
}
