//! Tests of `perform` and `TestContext`, which run a body without a store.

use std::sync::Arc;

use ratchet_core::testing::{TestContext, assert_enqueued, perform};
use ratchet_core::{CancelReason, Job, JobContext, JobResult, NewJob, Priority, Verdict};
use serde::{Deserialize, Serialize, Serializer};

use super::app::{Mail, Resize, Runs, cat};

fn runs() -> Arc<Runs> {
    Arc::default()
}

#[tokio::test]
async fn a_body_is_performed_with_state_attempt_and_client() {
    let test = TestContext::of::<Resize>();
    let performed = perform(cat(7))
        .state(runs())
        .attempt(3)
        .with_client(test.client());
    assert_eq!(performed.await.unwrap(), 21);
    assert_enqueued!(test, Mail(path) if path == "cat.png", count = 1);
    let error = perform(cat(0)).state(runs()).await.unwrap_err();
    assert_eq!(
        (error.verdict(), error.to_string().as_str()),
        (Verdict::Discard, "no width")
    );
}

#[tokio::test]
#[should_panic(
    expected = "the job resize needs state of type alloc::sync::Arc<engine::testing::app::Runs>"
)]
async fn state_that_is_missing_is_named() {
    let _ = perform(cat(7)).await;
}

/// A job that returns what its context contains.
#[derive(Serialize, Deserialize)]
struct Tell;

impl Job for Tell {
    const KIND: &'static str = "tell";
    type Output = String;

    fn defaults(job: NewJob) -> NewJob {
        job.queue("q").priority(Priority::High).lane("l")
    }

    async fn run(self, ctx: JobContext) -> JobResult<String> {
        let saved: Option<u32> = ctx.checkpoint()?;
        ctx.heartbeat();
        ctx.save_checkpoint(&9).await?;
        Ok(format!(
            "{} {} {:?} {:?} {} {:?} {:?}",
            ctx.kind(),
            ctx.queue(),
            ctx.lane().map(ToString::to_string),
            ctx.priority(),
            ctx.attempt(),
            saved,
            ctx.cancel_reason()
        ))
    }
}

#[tokio::test]
async fn a_context_made_by_hand_shows_the_job_and_keeps_what_is_said() {
    let test = TestContext::of::<Tell>().attempt(4).checkpoint(&3);
    let told = Tell.run(test.context()).await.unwrap();
    assert_eq!(told, r#"tell q Some("l") High 4 Some(3) None"#);
    assert_eq!((test.heartbeats(), test.saved_checkpoint()), (1, Some(9)));
    assert_eq!(test.progress(), None);
    assert!(!test.context().is_last_attempt());
    assert!(
        TestContext::of::<Tell>()
            .attempt(10)
            .context()
            .is_last_attempt()
    );
    assert_eq!(
        test.saved_checkpoint::<String>(),
        None,
        "expected no checkpoint of type String, because the stored checkpoint is a number"
    );

    let ctx = test.context();
    ctx.progress(200, "x".repeat(2_000));
    let progress = test.progress().unwrap();
    assert_eq!((progress.percent, progress.message.len()), (100, 1_024));
    let large = ctx.save_checkpoint(&"x".repeat(70_000)).await.unwrap_err();
    assert!(
        large.to_string().contains("at most 65536 are allowed"),
        "{large}"
    );
}

#[tokio::test]
async fn a_body_can_be_told_to_stop() {
    let test = TestContext::of::<Tell>();
    let ctx = test.context();
    let waits = tokio::spawn(async move { ctx.cancelled().await });
    test.cancel(CancelReason::Requested);
    assert_eq!(waits.await.unwrap(), CancelReason::Requested);
    test.cancel(CancelReason::SoftTimeout);
    assert_eq!(
        test.context().cancel_reason(),
        Some(CancelReason::Requested)
    );
    // Once the claim is lost, its reports are discarded.
    test.cancel(CancelReason::ClaimLost);
    test.context().save_checkpoint(&1).await.unwrap();
    assert_eq!(test.saved_checkpoint::<u32>(), None);
}

/// A job type whose field `name` is not serialized, so a stored job loses its value.
#[derive(Serialize, Deserialize)]
struct Forgets {
    #[serde(skip)]
    name: String,
    returns: u32,
}

struct Unserializable;

impl Serialize for Unserializable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("cannot be written"))
    }
}

impl Job for Forgets {
    const KIND: &'static str = "forgets";
    type Output = (String, Option<Unserializable>);

    async fn run(self, _ctx: JobContext) -> JobResult<Self::Output> {
        Ok(match self.returns {
            0 => (self.name, None),
            1 => ("x".repeat(70_000), None),
            _ => (String::new(), Some(Unserializable)),
        })
    }
}

#[tokio::test]
async fn what_cannot_be_stored_shows() {
    let forgets = |returns| Forgets {
        name: "Ada".to_owned(),
        returns,
    };
    let (forgotten, _) = perform(forgets(0))
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        forgotten, "",
        "expected an empty name, because the field is not stored"
    );
    for (returns, problem) in [(1, "65536 are allowed"), (2, "cannot be written")] {
        let error = perform(forgets(returns)).await.map(drop).unwrap_err();
        assert_eq!(error.verdict(), Verdict::Discard);
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
#[should_panic(expected = "the job mail would be refused by an enqueue: payload has")]
fn a_job_that_could_not_be_enqueued_is_not_performed() {
    let _ = perform(Mail("x".repeat(300_000)));
}
