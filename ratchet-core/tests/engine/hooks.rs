//! Tests which events a node passes to its hooks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use ratchet_core::memory::Fault;
use ratchet_core::model::{Claim, ClaimRequest, Detail, Outcome, Settlement};
use ratchet_core::store::JobStore;
use ratchet_core::{
    JobError, JobId, JobState, MemoryStore, Name, NewJob, NodeHook, NodeId, RetryPolicy,
};
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

/// The recorded calls of a hook: the job, or `None` for calls about the node, and what happened.
type Heard = Vec<(Option<JobId>, String)>;

/// A hook that records its calls.
#[derive(Clone, Default)]
struct Recorder {
    heard: Arc<Mutex<Heard>>,
    /// If set, the hook reads the job of each call from this store.
    store: Option<MemoryStore>,
}

impl Recorder {
    fn keep(&self, job: impl Into<Option<JobId>>, what: impl Into<String>) {
        self.heard.lock().unwrap().push((job.into(), what.into()));
    }

    /// Returns the calls about a job, or about the node for `None`.
    fn of(&self, job: impl Into<Option<JobId>>) -> Vec<String> {
        let (heard, job) = (self.heard.lock().unwrap(), job.into());
        let of = heard.iter().filter(|(of, _)| *of == job);
        of.map(|(_, what)| what.clone()).collect()
    }
}

impl NodeHook for Recorder {
    fn node_joined(&self, _node: NodeId, label: &Name) {
        self.keep(None, format!("{label} joined"));
    }

    fn node_left(&self, _node: NodeId, label: &Name) {
        self.keep(None, format!("{label} left"));
    }

    fn job_started(&self, claim: &Claim) {
        self.keep(claim.token.job, format!("started {}", claim.token.seq));
    }

    fn job_ended(&self, claim: &Claim, end: &Settlement) {
        assert_eq!(claim.token, end.token);
        let how = match &end.outcome {
            Outcome::Succeeded { .. } => "succeeded".to_owned(),
            Outcome::Retry { error, .. } => format!("retry: {error}"),
            Outcome::Failed { error } => format!("failed: {error}"),
            Outcome::Snoozed { .. } => "snoozed".to_owned(),
            Outcome::Released => "released".to_owned(),
            Outcome::Cancelled => "cancelled".to_owned(),
            other => format!("{other:?}"),
        };
        let body = if end.ran_for.is_some() {
            ""
        } else {
            " without a body"
        };
        self.keep(claim.token.job, how + body);
        if let Some(store) = &self.store {
            let read = store
                .get(&[claim.token.job], Detail::Whole)
                .now_or_never()
                .unwrap();
            let job = read.unwrap().pop().flatten().unwrap();
            assert_eq!(job.state, end.effect(false).state);
            self.keep(claim.token.job, "and is so in the store");
        }
    }

    fn job_lost(&self, claim: &Claim) {
        self.keep(claim.token.job, "lost");
    }
}

impl Recorder {
    fn node(&self, world: &World) -> Started {
        let builder = world.builder().label("n").hook(self.clone());
        Started::new(builder.build().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn they_hear_of_every_body_how_it_ended() {
    let world = World::new();
    let hook = Recorder::default();
    let fine = world.enqueue(world.job("fine", |_| async { Ok(()) })).await;
    let fails = world.job("fails", |_| async { Err::<(), _>("no".into()) });
    let fails = fails.retry(RetryPolicy::fixed(2, SECOND));
    let fails = world.enqueue(fails).await;
    let snoozes = world.job("snoozes", |ctx| async move {
        if ctx.checkpoint::<bool>()?.is_some() {
            return Err(JobError::cancel());
        }
        ctx.save_checkpoint(&true).await?;
        Err::<(), _>(JobError::snooze(SECOND))
    });
    let snoozes = world.enqueue(snoozes).await;
    let discards = world.job("discards", |_| async {
        Err::<(), _>(JobError::discard("bad"))
    });
    let discards = world.enqueue(discards).await;
    let panics = world.job("panics", |_| async {
        if true {
            panic!("planned");
        }
        Ok(())
    });
    let panics = world.enqueue(panics.retry(RetryPolicy::never())).await;
    let late = world.job("late", |_| async {
        sleep(60 * SECOND).await;
        Ok(())
    });
    let late = late.timeout(SECOND).retry(RetryPolicy::never());
    let late = world.enqueue(late).await;
    let node = hook.node(&world);
    for id in [fine, fails, snoozes, discards, panics, late] {
        world.ended(id).await;
    }
    node.stop().await.unwrap();
    assert_eq!(hook.of(fine), ["started 1", "succeeded"]);
    assert_eq!(
        hook.of(fails),
        ["started 1", "retry: no", "started 2", "failed: no"]
    );
    assert_eq!(
        hook.of(snoozes),
        ["started 1", "snoozed", "started 2", "cancelled"]
    );
    assert_eq!(hook.of(discards), ["started 1", "failed: bad"]);
    assert_eq!(hook.of(panics), ["started 1", "failed: panicked: planned"]);
    assert_eq!(hook.of(late), ["started 1", "failed: timed out after 1s"]);
    assert_eq!(hook.of(None), ["n joined", "n left"]);
}

#[tokio::test(start_paused = true)]
async fn an_end_is_told_when_the_store_has_it_and_once_though_its_answer_was_lost() {
    let world = World::new();
    let hook = Recorder {
        store: Some(world.store.clone()),
        ..Recorder::default()
    };
    let fine = world.enqueue(world.job("fine", |_| async { Ok(()) })).await;
    let faults = Mutex::new(vec![Fault::ErrorAfterCommit, Fault::ErrorBeforeCommit]);
    let store = world
        .store
        .clone()
        .with_faults(move |operation| match operation {
            "settle" => faults.lock().unwrap().pop().unwrap_or_default(),
            _ => Fault::None,
        });
    let builder = world.builder_on(store).hook(hook.clone());
    let node = Started::new(builder.build().unwrap());
    world.ended(fine).await;
    node.stop().await.unwrap();
    assert_eq!(
        hook.of(fine),
        ["started 1", "succeeded", "and is so in the store"]
    );
}

#[tokio::test(start_paused = true)]
async fn they_hear_of_jobs_that_end_without_a_body() {
    let world = World::new();
    let hook = Recorder::default();
    let poison = world.enqueue(NewJob::new("scripted", &[1, 2, 3])).await;
    let kills = world.job("kills", |_| async {
        sleep(3_600 * SECOND).await;
        Ok(())
    });
    let kills = world.enqueue(kills).await;
    for claims in 1..=4 {
        let doomed = Started::new(world.builder().label("n").build().unwrap());
        world.until(kills, |job| job.claim_seq == claims).await;
        doomed.kill().await;
    }
    // The first of the killed nodes had already failed the job with the unreadable payload.
    world.ended(poison).await;
    let poison = world.enqueue(NewJob::new("scripted", &[1, 2, 3])).await;
    let node = hook.node(&world);
    world.ended(kills).await;
    world.ended(poison).await;
    node.stop().await.unwrap();
    let told = hook.of(poison);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("failed: the payload does not decode as a scripted"),
        "{told:?}"
    );
    assert!(told[0].ends_with("without a body"), "{told:?}");
    assert_eq!(
        hook.of(kills),
        ["failed: its node crashed or stopped 4 times while running the job without a body"]
    );
}

#[tokio::test(start_paused = true)]
async fn they_hear_that_a_claim_was_lost_or_handed_back() {
    let world = World::new();
    let hook = Recorder::default();
    let body = |_| async {
        sleep(3_600 * SECOND).await;
        Ok(())
    };
    let stalls = world
        .enqueue(world.job("stalls", body).stall_timeout(5 * SECOND))
        .await;
    let node = hook.node(&world);
    world
        .until(stalls, |job| job.state == JobState::Running)
        .await;
    sleep(6 * SECOND).await;
    assert_eq!(hook.of(stalls)[..2], ["started 1", "lost"]);
    let long = world.enqueue(world.job("long", body)).await;
    world
        .until(long, |job| job.state == JobState::Running)
        .await;
    node.stop().await.unwrap();
    assert_eq!(hook.of(long), ["started 1", "released"]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_body_whose_claim_was_taken_is_told_as_lost() {
    let world = World::new();
    let hook = Recorder::default();
    let store = world.store.clone();
    let robbed = world.job("robbed", move |ctx| {
        let store = store.clone();
        async move {
            if ctx.checkpoint::<bool>()?.is_none() {
                ctx.save_checkpoint(&true).await?;
                // Releases the claim of this body. Then claims and releases the job as another
                // node, which could happen while the body runs.
                let id = ctx.job_id();
                let ours = store.get(&[id], Detail::Whole).await?[0]
                    .as_ref()
                    .map(Claim::of);
                let ours = ours.expect("it runs").token;
                let released = |token| [Settlement::new(token, Outcome::Released)];
                store.settle(&released(ours)).await?;
                let other = ClaimRequest::new(NodeId::new(), 1);
                let theirs = store.claim_next_batch(&other).await?.remove(0);
                store.settle(&released(theirs.claim.token)).await?;
            }
            Ok(())
        }
    });
    let id = world.enqueue(robbed).await;
    let node = hook.node(&world);
    world.ended(id).await;
    node.stop().await.unwrap();
    assert_eq!(hook.of(id), ["started 1", "lost", "started 3", "succeeded"]);
}

/// A hook that panics at every call.
struct Panics;

impl NodeHook for Panics {
    fn node_joined(&self, _node: NodeId, _label: &Name) {
        panic!("planned");
    }

    fn node_left(&self, _node: NodeId, _label: &Name) {
        panic!("planned");
    }

    fn job_started(&self, _claim: &Claim) {
        panic!("planned");
    }

    fn job_ended(&self, _claim: &Claim, _end: &Settlement) {
        panic!("planned");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_panics_harms_neither_job_nor_node_nor_another() {
    let world = World::new();
    let hook = Recorder::default();
    let builder = world.builder().label("n").hook(Panics).hook(hook.clone());
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(world.enqueue(world.job(name, |_| async { Ok(1) })).await);
    }
    let node = Started::new(builder.build().unwrap());
    for id in ids {
        let job = world.ended(id).await;
        assert_eq!((job.state, job.attempts), (JobState::Succeeded, 1));
        assert_eq!(job.result.unwrap().decode::<u32>().unwrap(), 1);
        assert_eq!(hook.of(id), ["started 1", "succeeded"]);
    }
    let stats = node.node.stats();
    node.stop().await.unwrap();
    assert_eq!((stats.claimed, stats.settled), (3, 3));
    assert_eq!(hook.of(None), ["n joined", "n left"]);
}
