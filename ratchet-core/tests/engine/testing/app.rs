//! A small application with three job types, which the tests of the testing kit use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratchet_core::{
    BoxError, Job, JobContext, JobError, JobResult, Node, Ratchet, Requires, RetryPolicy,
    SharedStore,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Counts how often the body of [`Resize`] ran.
#[derive(Default)]
pub(crate) struct Runs(AtomicU32);

/// A job that returns a width, as if it had resized a picture, and that enqueues a [`Mail`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Resize {
    pub(crate) path: String,
    pub(crate) width: u32,
}

impl Job for Resize {
    const KIND: &'static str = "resize";
    const ALIASES: &'static [&'static str] = &["scale"];
    const VERSION: u32 = 2;
    type Output = u32;

    fn upcast(_version: u32, mut payload: Value) -> Result<Value, BoxError> {
        payload["width"] = json!(640);
        Ok(payload)
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<Runs>>()
    }

    async fn run(self, ctx: JobContext) -> JobResult<u32> {
        ctx.state::<Arc<Runs>>().0.fetch_add(1, Ordering::SeqCst);
        ctx.progress(50, format!("reading {}", self.path));
        if self.width == 0 {
            return Err(JobError::discard("no width"));
        }
        ctx.enqueue(Mail(self.path).into_job()).await?;
        Ok(self.width * ctx.attempt())
    }
}

/// A job whose first two attempts fail.
#[derive(Deserialize, Serialize)]
pub(crate) struct Mail(pub(crate) String);

impl Job for Mail {
    const KIND: &'static str = "mail";
    type Output = ();

    fn defaults(job: ratchet_core::NewJob) -> ratchet_core::NewJob {
        job.queue("mail")
            .retry(RetryPolicy::fixed(3, Duration::from_secs(60)))
    }

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        match ctx.attempt() {
            1 | 2 => Err("the server is busy".into()),
            _ => Ok(()),
        }
    }
}

/// A job that enqueues itself again forever.
#[derive(Deserialize, Serialize)]
pub(crate) struct Tick;

impl Job for Tick {
    const KIND: &'static str = "tick";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        ctx.enqueue(Self.into_job()).await?;
        Ok(())
    }
}

pub(crate) fn node(store: SharedStore) -> Node {
    Ratchet::builder(store)
        .register::<Resize>()
        .register::<Mail>()
        .register::<Tick>()
        .state(Arc::new(Runs::default()))
        .queue_concurrency("mail", 2)
        .build()
        .unwrap()
}

pub(crate) fn cat(width: u32) -> Resize {
    let path = "cat.png".to_owned();
    Resize { path, width }
}
