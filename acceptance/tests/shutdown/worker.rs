//! A process that runs one node until it is asked to end.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use ratchet::{Job, JobContext, JobResult, Ratchet};
use serde::{Deserialize, Serialize};

/// The variables that make this program a worker: the URL of its database, and how many seconds a
/// drain waits.
const URL: &str = "RATCHET_SHUTDOWN_URL";
const GRACE: &str = "RATCHET_SHUTDOWN_GRACE";

/// The settings of a worker, passed to it in the environment.
pub(crate) struct Order {
    pub(crate) url: String,
    pub(crate) drain_grace: Duration,
}

impl Order {
    /// Returns the settings from the environment, if this process is a worker.
    pub(crate) fn of_environment() -> Option<Self> {
        let seconds = env::var(GRACE).ok()?.parse().unwrap();
        Some(Self {
            url: env::var(URL).unwrap(),
            drain_grace: Duration::from_secs(seconds),
        })
    }

    pub(crate) fn to_environment(&self) -> [(&'static str, String); 2] {
        let seconds = self.drain_grace.as_secs().to_string();
        [(URL, self.url.clone()), (GRACE, seconds)]
    }
}

/// A job whose body never ends by itself.
#[derive(Serialize, Deserialize)]
pub(crate) struct Endless;

impl Job for Endless {
    const KIND: &'static str = "endless";
    type Output = ();

    async fn run(self, _ctx: JobContext) -> JobResult<()> {
        std::future::pending().await
    }
}

#[tokio::main]
pub(crate) async fn run(order: &Order) -> ExitCode {
    match node(order).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker {}: {error:#}", std::process::id());
            ExitCode::FAILURE
        }
    }
}

async fn node(order: &Order) -> anyhow::Result<()> {
    let node = Ratchet::builder(ratchet::connect(&order.url).await?)
        .register::<Endless>()
        .drain_grace(order.drain_grace)
        .build()?;
    Ok(node.run().await?)
}
