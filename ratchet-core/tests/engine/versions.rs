//! Tests of jobs that were stored under an earlier kind, or with an older or newer payload version.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::{
    BoxError, Job, JobContext, JobResult, JobState, NewJob, NodeBuilder, Ratchet, Requires,
    RetryPolicy,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

/// The versions from which [`Resize`] has upcast payloads.
static UPCASTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A job type whose payload is at version 3. Version 1 had only `width`, version 2 added `unit`,
/// and version 3 renamed `width` to `pixels`.
#[derive(Deserialize, Serialize)]
struct Resize {
    pixels: u32,
    unit: String,
}

impl Job for Resize {
    const KIND: &'static str = "resize_image";
    const ALIASES: &'static [&'static str] = &["resize", "scale"];
    const VERSION: u32 = 3;
    type Output = String;

    fn upcast(version: u32, mut payload: Value) -> Result<Value, BoxError> {
        if payload["width"] == 13 {
            panic!("thirteen");
        }
        if version < 2 {
            payload["unit"] = json!("px");
        }
        if version < 3 {
            let width = payload["width"]
                .as_u64()
                .ok_or("the payload has no field `width`")?;
            UPCASTS.lock().unwrap().push(version);
            payload["pixels"] = json!(width);
        }
        Ok(payload)
    }

    async fn run(self, ctx: JobContext) -> JobResult<String> {
        Ok(format!("{} {}{}", ctx.kind(), self.pixels, self.unit))
    }
}

fn resizer(world: &World) -> NodeBuilder {
    Ratchet::builder(Arc::new(world.store.clone())).register::<Resize>()
}

#[tokio::test(start_paused = true)]
async fn jobs_run_that_were_stored_under_an_earlier_name() {
    let world = World::new();
    let payload = json!({"pixels": 7, "unit": "px"});
    let mut jobs = Vec::new();
    for kind in ["resize_image", "resize", "scale"] {
        let job = NewJob::new(kind, &payload).payload_version(3);
        jobs.push((kind, world.enqueue(job).await));
    }
    let node = Started::new(
        resizer(&world)
            .kind_concurrency::<Resize>(1)
            .build()
            .unwrap(),
    );
    for (kind, id) in jobs {
        let result = world.ended(id).await.result.unwrap();
        assert_eq!(result.decode::<String>().unwrap(), format!("{kind} 7px"));
    }
    // The pool of the kind also runs jobs stored under the aliases of the kind.
    let pools = node.node.pools();
    let claimed = |name: &str| pools.iter().find(|pool| pool.name == name).unwrap().claimed;
    assert_eq!(claimed("kind:resize_image"), 3);
    node.stop().await.unwrap();
}

#[test]
fn jobs_are_stored_under_the_present_name_with_the_present_version() {
    let job = Resize {
        pixels: 1,
        unit: String::new(),
    };
    let spec = job.into_job().spec().clone();
    assert_eq!(
        (spec.route.kind.as_str(), spec.payload_version),
        ("resize_image", 3)
    );
}

/// Declares a job type with this kind, these aliases and this payload version. It has no payload.
macro_rules! named {
    ($type:ident, $kind:literal, $aliases:expr, $version:literal) => {
        #[derive(Deserialize, Serialize)]
        struct $type;

        impl Job for $type {
            const KIND: &'static str = $kind;
            const ALIASES: &'static [&'static str] = &$aliases;
            const VERSION: u32 = $version;
            type Output = ();

            async fn run(self, _ctx: JobContext) -> JobResult<()> {
                Ok(())
            }
        }
    };
}

named!(Scale, "scale", [], 1);
named!(Shrink, "shrink", ["resize"], 1);
named!(Twice, "twice", ["once", "twice", "once"], 1);
named!(Unversioned, "unversioned", [], 0);
named!(Nameless, "nameless", [""], 1);

#[test]
fn names_that_two_types_claim_are_refused_with_both_types() {
    let world = World::new();
    let problems = |builder: NodeBuilder| builder.build().unwrap_err().problems().to_vec();
    assert_eq!(
        problems(resizer(&world).register::<Scale>()),
        [
            "the kind or alias scale belongs to both engine::versions::Resize and \
             engine::versions::Scale"
        ]
    );
    assert_eq!(
        problems(resizer(&world).register::<Shrink>()),
        [
            "the kind or alias resize belongs to both engine::versions::Resize and \
             engine::versions::Shrink"
        ]
    );
    assert_eq!(
        problems(resizer(&world).register::<Resize>()),
        ["kind resize_image is registered twice"]
    );
    assert_eq!(
        problems(resizer(&world).register::<Twice>()),
        [
            "engine::versions::Twice uses the name twice twice",
            "engine::versions::Twice uses the name once twice"
        ]
    );
    assert_eq!(
        problems(resizer(&world).register::<Unversioned>()),
        ["the payload version of engine::versions::Unversioned is invalid: payload_version is 0"]
    );
    assert_eq!(
        problems(resizer(&world).register::<Nameless>()),
        ["engine::versions::Nameless cannot be registered: alias is empty"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_older_payload_is_upcast_once_from_the_version_that_is_stored() {
    let world = World::new();
    let first = NewJob::new("resize", &json!({"width": 5}));
    let second = NewJob::new("resize", &json!({"width": 6, "unit": "cm"})).payload_version(2);
    let third = NewJob::new("resize", &json!({"pixels": 7, "unit": "mm"})).payload_version(3);
    let mut ids = Vec::new();
    for job in [first, second, third] {
        ids.push(world.enqueue(job).await);
    }
    let _node = Started::new(resizer(&world).concurrency(1).build().unwrap());
    for (id, expected) in ids.iter().zip(["resize 5px", "resize 6cm", "resize 7mm"]) {
        let job = world.ended(*id).await;
        assert_eq!(job.result.unwrap().decode::<String>().unwrap(), expected);
    }
    assert_eq!(*UPCASTS.lock().unwrap(), [1, 2]);
    // The stored jobs are unchanged.
    let stored = world.read(ids[0]).await.spec;
    assert_eq!(
        (stored.payload_version, stored.payload.as_str()),
        (1, r#"{"width":5}"#)
    );
}

named!(Forgetful, "forgetful", [], 2);

#[tokio::test(start_paused = true)]
async fn an_upcast_that_fails_makes_a_dead_letter_at_no_attempt() {
    let world = World::new();
    let bad = world.enqueue(NewJob::new("resize", &json!({}))).await;
    let shape = NewJob::new("resize", &json!({"width": -1, "pixels": -1}));
    let shape = world.enqueue(shape.payload_version(3)).await;
    let forgotten = world.enqueue(NewJob::new("forgetful", &())).await;
    let _node = Started::new(resizer(&world).register::<Forgetful>().build().unwrap());
    for (id, error) in [
        (
            bad,
            "the payload could not be upcast from version 1: the payload has no field `width`",
        ),
        (shape, "the payload does not decode as a resize_image: "),
        (
            forgotten,
            "the payload could not be upcast from version 1: engine::versions::Forgetful has no \
             upcast from payload version 1",
        ),
    ] {
        let job = world.ended(id).await;
        assert_eq!((job.state, job.attempts), (JobState::Failed, 0));
        let told = job.last_error.unwrap();
        assert!(told.starts_with(error), "{told}");
        let history = world.store_history(id).await;
        assert_eq!((history.len(), history[0].ran_for), (1, None));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upcast_that_panics_is_a_failed_attempt_of_its_job() {
    let world = World::new();
    let panics = NewJob::new("resize", &json!({"width": 13})).retry(RetryPolicy::never());
    let panics = world.enqueue(panics).await;
    let _node = Started::new(resizer(&world).build().unwrap());
    let job = world.ended(panics).await;
    assert_eq!((job.state, job.attempts), (JobState::Failed, 1));
    assert_eq!(job.last_error.as_deref(), Some("panicked: thirteen"));
    // The upcast panicked before the body began.
    assert_eq!(world.store_history(panics).await[0].ran_for, None);
}

/// Declares the job type `report` as one release of a program has it, with this payload version.
macro_rules! release {
    ($type:ident, $version:literal) => {
        #[derive(Deserialize, Serialize)]
        struct $type;

        impl Job for $type {
            const KIND: &'static str = "report";
            const VERSION: u32 = $version;
            type Output = u32;

            fn requires() -> Requires {
                Requires::nothing().state::<Arc<AtomicU32>>()
            }

            async fn run(self, ctx: JobContext) -> JobResult<u32> {
                ctx.state::<Arc<AtomicU32>>().fetch_add(1, Ordering::SeqCst);
                Ok($version)
            }
        }
    };
}

release!(Old, 1);
release!(New, 2);

#[tokio::test(start_paused = true)]
async fn a_newer_payload_waits_for_a_newer_node_and_is_never_failed() {
    let world = World::new();
    let runs: Arc<AtomicU32> = Arc::default();
    let builder = || Ratchet::builder(Arc::new(world.store.clone())).state(Arc::clone(&runs));
    let new = New.into_job().retry(RetryPolicy::never());
    let in_lane = new.another().lane("l");
    let ids = [world.enqueue(new).await, world.enqueue(in_lane).await];
    let behind = world.enqueue(Old.into_job().lane("l")).await;
    let old = Started::new(
        builder()
            .register::<Old>()
            .lazy_payloads(true)
            .build()
            .unwrap(),
    );
    sleep(3_600 * SECOND).await;
    for id in ids {
        let job = world.read(id).await;
        assert_eq!((job.state, job.attempts), (JobState::Pending, 0));
        assert_eq!(job.last_error, None);
        // The node claims the job six times while the delay grows, and then once every 30 to 61 s.
        assert!(
            (60..=130).contains(&job.claim_seq),
            "{} claims",
            job.claim_seq
        );
    }
    assert_eq!(world.read(behind).await.state, JobState::Blocked);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    let newer = Started::new(builder().register::<New>().build().unwrap());
    for id in ids {
        // The old node may claim and snooze the job a few more times before the new node claims it.
        let job = world.ended(id).await;
        assert_eq!((job.state, job.attempts), (JobState::Succeeded, 1));
    }
    // Either node may claim this job. On the new node it fails, because `New` has no upcast from
    // version 1.
    world.ended(behind).await;
    newer.stop().await.unwrap();
    old.stop().await.unwrap();
}
