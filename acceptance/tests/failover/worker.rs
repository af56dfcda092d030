//! A process that runs one node until its standard input ends.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ratchet::store_api::time;
use ratchet::{Job, JobContext, JobResult, LeaderTimings, Leadership, Ratchet, Requires};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

/// The variable that makes this program a worker.
const ROLE: &str = "RATCHET_FAILOVER_WORKER";
/// How often a worker notes whether it leads.
const SAMPLE: Duration = Duration::from_millis(5);

/// The settings of a worker, passed to it in the environment.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) url: String,
    pub(crate) ttl: Duration,
    /// How long a leader's lock lasts.
    pub(crate) lock: Duration,
    /// The file to which all workers append a line for every body that begins.
    pub(crate) bodies: PathBuf,
    /// The file to which this worker writes whether it leads.
    pub(crate) samples: PathBuf,
}

impl Order {
    /// Returns the settings from the environment, if this process is a worker.
    pub(crate) fn of_environment() -> Option<Self> {
        let order = std::env::var(ROLE).ok()?;
        Some(serde_json::from_str(&order).unwrap())
    }

    pub(crate) fn to_environment(&self) -> (&'static str, String) {
        (ROLE, serde_json::to_string(self).unwrap())
    }
}

/// A step of a lane: the job records that it began, and takes a moment.
#[derive(Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) lane: String,
    pub(crate) number: u64,
}

impl Job for Step {
    const KIND: &'static str = "step";
    type Output = ();

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<File>>()
    }

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        // A small write to a file that is opened for appending happens completely or not at all,
        // even if the process is killed.
        let mut bodies: &File = ctx.state::<Arc<File>>();
        let (id, process) = (ctx.job_id(), std::process::id());
        let line = format!("{id} {} {} {process}\n", self.lane, self.number);
        bodies.write_all(line.as_bytes())?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
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
    let beat = order.ttl / 8;
    let mut timings = LeaderTimings::of_ttl(order.ttl);
    timings.ttl = order.lock;
    let node = Ratchet::builder(ratchet::connect(&order.url).await?)
        .register::<Step>()
        .state(Arc::new(append(&order.bodies)?))
        .concurrency(8)
        .prefetch(8)
        .poll_interval(Duration::from_millis(10), Duration::from_millis(50))
        .heartbeat_interval(beat)
        .heartbeat_max(beat)
        .dead_after(order.ttl * 3 / 4)
        .reclaim_interval(beat)
        .store_deadline(order.ttl * 2)
        .leader_timings(timings)
        .build()?;
    let leadership = node.leadership("maintenance").unwrap();
    let samples = append(&order.samples)?;
    // The sampler has a separate thread, so that neither jobs nor the database delay it.
    std::thread::spawn(move || sample(&leadership, samples));
    let input_ends = async {
        let _ = tokio::io::stdin().read(&mut [0]).await;
    };
    Ok(node.run_until(input_ends).await?)
}

/// Repeatedly writes the term in which this process leads, or 0 if it does not lead, with the times
/// before and after reading the term.
fn sample(leadership: &Leadership, mut samples: File) {
    loop {
        let before = time::to_millis(time::wall_clock());
        let term = leadership.term().map_or(0, |term| term.0);
        let after = time::to_millis(time::wall_clock());
        if writeln!(samples, "{before} {after} {term}").is_err() {
            return;
        }
        std::thread::sleep(SAMPLE);
    }
}

fn append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}
