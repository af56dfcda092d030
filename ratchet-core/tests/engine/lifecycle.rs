//! How a node is built, joins the cluster, dies, and returns after the cluster counted it as dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::cluster::LeaderTimings;
use ratchet_core::memory::Fault;
use ratchet_core::model::{Detail, NodeStatus, PurgeRequest};
use ratchet_core::store::{JobStore, NodeStore};
use ratchet_core::{CancelReason, JobState, Retain, Retention, RunError};
use tokio::time::sleep;

use crate::kit::{Scripted, Started, World};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_node_that_lacks_state_or_has_clashing_settings_does_not_build() {
    let world = World::new();
    let store = Arc::new(world.store.clone());
    let error = ratchet_core::Ratchet::builder(store)
        .register::<Scripted>()
        .register::<Scripted>()
        .queues(["", "fine"])
        .concurrency(0)
        .heartbeat_interval(10 * SECOND)
        .build()
        .unwrap_err();
    let text = error.to_string();
    assert_eq!(error.problems().len(), 5, "{text}");
    for part in [
        "needs state of type engine::kit::Scripts",
        "registered twice",
        "queue is empty",
        "concurrency is 0",
        "dead_after 15s",
    ] {
        assert!(
            text.contains(part),
            "expected a problem that contains {part:?}, found: {text}"
        );
    }
}

#[test]
fn what_cannot_work_is_refused_with_its_values() {
    let world = World::new();
    let timings = |change: fn(&mut LeaderTimings)| {
        let mut timings = LeaderTimings::default();
        change(&mut timings);
        world.builder().leader_timings(timings)
    };
    let table = [
        (
            world.builder().role("a").roles(["b"]),
            "the role b is not known; this node has the roles worker, maintenance, a",
        ),
        (
            world.builder().queue_concurrency("images", 0),
            "concurrency of pool queue:images is 0; the minimum is 1",
        ),
        (
            timings(|timings| timings.heartbeat = timings.fence_timeout),
            "leadership: heartbeat 8s + renew_timeout 2s must be shorter than fence_timeout 8s",
        ),
        (
            timings(|timings| timings.ttl = 9 * SECOND),
            "leadership: fence_timeout 8s + watchdog tick 800ms + teardown 2s must not be longer \
             than ttl 9s",
        ),
    ];
    for (builder, problem) in table {
        assert_eq!(builder.build().unwrap_err().problems(), [problem]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_runs_once_at_a_time_and_can_run_again() {
    let world = World::new();
    let node = world.builder().build().unwrap();
    let first = Started::new(node.clone());
    sleep(SECOND).await;
    assert!(matches!(node.run().await, Err(RunError::AlreadyRunning)));
    first.stop().await.unwrap();
    Started::new(node).stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_killed_node_are_back_when_it_is_taken_for_dead() {
    let world = World::new();
    let first = Arc::new(AtomicBool::new(true));
    let job = world.job("survives", move |_| {
        let hangs = first.swap(false, Ordering::SeqCst);
        async move {
            if hangs {
                sleep(3_600 * SECOND).await;
            }
            Ok(())
        }
    });
    let id = world.enqueue(job).await;
    let doomed = world.start();
    world.until(id, |job| job.state == JobState::Running).await;
    doomed.kill().await;
    let _other = world.start();
    let job = world.ended(id).await;
    assert_eq!(
        (job.state, job.crash_count, job.attempts),
        (JobState::Succeeded, 1, 1)
    );
    let waited = job.finished_at.unwrap() - job.created_at;
    assert!(waited.num_seconds() <= 15 + 6, "back after {waited}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_restarts_under_its_label_takes_back_its_own_at_once() {
    let world = World::new();
    let first = Arc::new(AtomicBool::new(true));
    let job = world.job("survives", move |_| {
        let hangs = first.swap(false, Ordering::SeqCst);
        async move {
            if hangs {
                sleep(3_600 * SECOND).await;
            }
            Ok(())
        }
    });
    let id = world.enqueue(job).await;
    let doomed = Started::new(world.builder().label("worker 1").build().unwrap());
    let claimed = world.until(id, |job| job.state == JobState::Running).await;
    doomed.kill().await;
    let _again = Started::new(world.builder().label("worker 1").build().unwrap());
    let job = world.ended(id).await;
    let waited = job.finished_at.unwrap() - claimed.claimed_at.unwrap();
    assert!(waited.num_seconds() <= 1, "back after {waited}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_its_process_again_and_again_is_a_dead_letter() {
    let world = World::new();
    let job = world.job("kills", |_| async {
        sleep(3_600 * SECOND).await;
        Ok(())
    });
    let id = world.enqueue(job).await;
    for claims in 1..=4 {
        let doomed = Started::new(world.builder().label("doomed").build().unwrap());
        world.until(id, |job| job.claim_seq == claims).await;
        doomed.kill().await;
    }
    let _last = Started::new(world.builder().label("doomed").build().unwrap());
    let job = world.ended(id).await;
    assert_eq!(
        (job.state, job.crash_count, job.attempts),
        (JobState::Failed, 4, 0)
    );
    assert_eq!(
        job.last_error.as_deref(),
        Some("its node crashed or stopped 4 times while running the job")
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_taken_for_dead_drops_what_it_held_and_goes_on() {
    let world = World::new();
    let lost = Arc::new(AtomicBool::new(false));
    let job = world.job("long", {
        let lost = Arc::clone(&lost);
        move |ctx| {
            let lost = Arc::clone(&lost);
            async move {
                tokio::select! {
                    reason = ctx.cancelled() => {
                        assert_eq!(reason, CancelReason::ClaimLost);
                        lost.store(true, Ordering::SeqCst);
                    }
                    () = sleep(60 * SECOND) => {}
                }
                Ok(())
            }
        }
    });
    let id = world.enqueue(job).await;
    let away = Arc::new(AtomicBool::new(false));
    let store = world.store.clone().with_faults({
        let away = Arc::clone(&away);
        move |_| match away.load(Ordering::SeqCst) {
            true => Fault::ErrorBeforeCommit,
            false => Fault::None,
        }
    });
    let slow = Started::new(world.builder_on(store).label("slow").build().unwrap());
    world.until(id, |job| job.state == JobState::Running).await;
    away.store(true, Ordering::SeqCst);
    let _other = world.start();
    world.until(id, |job| job.crash_count == 1).await;
    away.store(false, Ordering::SeqCst);
    sleep(10 * SECOND).await;
    assert!(
        lost.load(Ordering::SeqCst),
        "the old body should have learned that its claim is lost"
    );
    let nodes = world.store.nodes().await.unwrap();
    let slow_ones: Vec<NodeStatus> = nodes
        .iter()
        .filter(|node| node.label == "slow")
        .map(|node| node.status)
        .collect();
    assert_eq!(slow_ones, [NodeStatus::Active, NodeStatus::Dead]);
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    slow.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_may_have_been_taken_for_dead_begins_no_body() {
    let world = World::new();
    let begun = Arc::new(AtomicUsize::new(0));
    let job = world.job("once", {
        let begun = Arc::clone(&begun);
        move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        }
    });
    // The faults of the store have the same effect as a process that is stopped between its claim
    // and the body.
    let stopped = Arc::new(AtomicBool::new(false));
    let store = world.store.clone().with_faults({
        let stopped = Arc::clone(&stopped);
        move |operation| match operation {
            "claim_next_batch" if stopped.load(Ordering::SeqCst) => {
                Fault::DelayedAnswer(120 * SECOND)
            }
            "heartbeat" if stopped.load(Ordering::SeqCst) => Fault::ErrorBeforeCommit,
            // When the node finds that it was counted as dead, it reads which node has its label.
            "nodes" => Fault::DelayedAnswer(SECOND),
            _ => Fault::None,
        }
    });
    let builder = world
        .builder_on(store.with_deadline(200 * SECOND))
        .store_deadline(200 * SECOND);
    let node = Started::new(builder.build().unwrap());
    sleep(SECOND).await;
    stopped.store(true, Ordering::SeqCst);
    let id = world.enqueue(job).await;
    world.until(id, |job| job.state == JobState::Running).await;
    let other = world.start();
    world.ended(id).await;
    // After this sleep, the node has received the answer to its claim.
    sleep(120 * SECOND).await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    stopped.store(false, Ordering::SeqCst);
    sleep(60 * SECOND).await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    node.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_whose_answer_is_lost_may_end_the_trust_sooner() {
    let world = World::new();
    let begun = Arc::new(AtomicUsize::new(0));
    let long = world.job("long", |_| async {
        sleep(600 * SECOND).await;
        Ok(())
    });
    let once = world.job("once", {
        let begun = Arc::clone(&begun);
        move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        }
    });
    let (cut, slow) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let store = world.store.clone().with_faults({
        let (cut, slow, beats) = (Arc::clone(&cut), Arc::clone(&slow), AtomicUsize::new(0));
        move |operation| match operation {
            "claim_next_batch" if slow.load(Ordering::SeqCst) => Fault::DelayedAnswer(45 * SECOND),
            _ if !cut.load(Ordering::SeqCst) => Fault::None,
            // The first of these heartbeats takes effect, although its answer is lost. It announces
            // that the next heartbeat follows after a shorter interval.
            "heartbeat" if beats.fetch_add(1, Ordering::SeqCst) == 0 => Fault::ErrorAfterCommit,
            "heartbeat" => Fault::ErrorBeforeCommit,
            _ => Fault::None,
        }
    });
    // The other node leads, and at first its claims fail.
    let claims = Arc::new(AtomicBool::new(false));
    let leader = world.store.clone().with_faults({
        let claims = Arc::clone(&claims);
        move |operation| match operation {
            "claim_next_batch" if !claims.load(Ordering::SeqCst) => Fault::ErrorBeforeCommit,
            _ => Fault::None,
        }
    });
    let other = Started::new(world.builder_on(leader).build().unwrap());
    sleep(SECOND).await;
    let builder = world
        .builder_on(store.with_deadline(200 * SECOND))
        .store_deadline(200 * SECOND);
    let node = Started::new(builder.build().unwrap());
    // An idle node sends a heartbeat every 30 s, so the other nodes would count it as dead only
    // after 90 s.
    sleep(310 * SECOND).await;
    cut.store(true, Ordering::SeqCst);
    let long = world.enqueue(long).await;
    world
        .until(long, |job| job.state == JobState::Running)
        .await;
    sleep(SECOND).await;
    slow.store(true, Ordering::SeqCst);
    let id = world.enqueue(once).await;
    world.until(id, |job| job.state == JobState::Running).await;
    claims.store(true, Ordering::SeqCst);
    world.ended(id).await;
    sleep(120 * SECOND).await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    node.kill().await;
    other.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_stops_when_another_takes_its_label() {
    let world = World::new();
    let old = Started::new(world.builder().label("only one").build().unwrap());
    sleep(SECOND).await;
    let _new = Started::new(world.builder().label("only one").build().unwrap());
    let ended = old.ended().await;
    assert!(matches!(ended, Err(RunError::Displaced { label }) if label == "only one"));
}

#[tokio::test(start_paused = true)]
async fn a_node_waits_for_a_database_that_is_away_at_its_start() {
    let world = World::new();
    let away = Arc::new(AtomicBool::new(true));
    let store = world.store.clone().with_faults({
        let away = Arc::clone(&away);
        move |_| match away.load(Ordering::SeqCst) {
            true => Fault::ErrorBeforeCommit,
            false => Fault::None,
        }
    });
    let id = world
        .enqueue(world.job("waits", |_| async { Ok(()) }))
        .await;
    let node = Started::new(world.builder_on(store).build().unwrap());
    sleep(60 * SECOND).await;
    away.store(false, Ordering::SeqCst);
    assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn old_jobs_are_deleted_in_bounded_passes() {
    let world = World::new();
    let mut last = None;
    for number in 0..2_500 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        last = Some(world.enqueue(job).await);
    }
    let builder = world
        .builder()
        .retention(Retention::all(Retain::Delete(3_600 * SECOND)));
    let node = Started::new(builder.build().unwrap());
    world.ended(last.unwrap()).await;
    sleep(3_500 * SECOND).await;
    assert!(
        world
            .store
            .get(&[last.unwrap()], Detail::Whole)
            .await
            .unwrap()[0]
            .is_some()
    );
    sleep(200 * SECOND).await;
    assert!(
        world
            .store
            .get(&[last.unwrap()], Detail::Whole)
            .await
            .unwrap()[0]
            .is_none()
    );
    let left = PurgeRequest::new(JobState::Succeeded, Duration::ZERO, 10_000);
    assert_eq!(
        world.store.purge(&left).await.unwrap(),
        ratchet_core::model::Guarded::Done(0)
    );
    node.stop().await.unwrap();
}
