//! The job types of the cases.

use ratchet_core::{Job, JobContext, JobError, JobResult};
use serde::{Deserialize, Serialize};

/// Markup with a script that sets an attribute of the document if it runs.
pub(crate) const HOSTILE: &str = "\"'><img src=x onerror=\"document.documentElement.dataset.hacked=1\"><script>document.documentElement.dataset.hacked=1</script>";

/// A job that returns its payload as its result.
#[derive(Serialize, Deserialize)]
pub(crate) struct Echo {
    pub(crate) text: String,
}

impl Job for Echo {
    const KIND: &'static str = "echo";
    type Output = String;

    async fn run(self, _: JobContext) -> JobResult<String> {
        Ok(self.text)
    }
}

/// A job that becomes a dead letter with this error.
#[derive(Serialize, Deserialize)]
pub(crate) struct Broken {
    pub(crate) error: String,
}

impl Job for Broken {
    const KIND: &'static str = "broken";
    type Output = ();

    async fn run(self, _: JobContext) -> JobResult<()> {
        Err(JobError::discard(self.error))
    }
}

/// A job that reports progress and runs until it is cancelled.
#[derive(Serialize, Deserialize)]
pub(crate) struct Slow {
    pub(crate) message: String,
}

impl Job for Slow {
    const KIND: &'static str = "slow";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        ctx.save_checkpoint(&self.message).await?;
        ctx.progress(40, self.message.clone());
        ctx.cancelled().await;
        Err(JobError::cancel())
    }
}

/// A job that fails only in its first attempt.
#[derive(Serialize, Deserialize)]
pub(crate) struct Second {
    pub(crate) error: String,
}

impl Job for Second {
    const KIND: &'static str = "second";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        match ctx.attempt() {
            1 => Err(self.error.into()),
            _ => Ok(()),
        }
    }
}
