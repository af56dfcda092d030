//! Measures how late recurring definitions start their jobs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet::store_api::time::wall_clock;
use ratchet::{Job, JobContext, JobResult, Ratchet, Recurring, Requires, SharedStore};
use ratchet_bench::figures::Outcome;
use serde::{Deserialize, Serialize};

use crate::Options;
use crate::measure::progress;

/// How long the definitions fire before the measurement.
const WARMUP: Duration = Duration::from_secs(5);

/// The job of a definition: records how late it starts.
#[derive(Debug, Serialize, Deserialize)]
struct Slot {}

/// The delay from each slot to the start of the job's body.
type Delays = Arc<Mutex<Vec<Duration>>>;

impl Job for Slot {
    const KIND: &'static str = "ratchet-bench-slot";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let late = ctx
            .slot()
            .and_then(|slot| (wall_clock() - slot).to_std().ok());
        let delays = ctx.state::<Delays>();
        let mut delays = delays.lock().unwrap_or_else(PoisonError::into_inner);
        delays.extend(late);
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Delays>()
    }
}

fn name(n: usize) -> String {
    format!("every second {n}")
}

/// Runs one node with `--jobs` recurring definitions that fire every second. After the warm-up,
/// measures for `--seconds` seconds.
pub(crate) async fn run(store: SharedStore, options: &Options) -> Result<Outcome> {
    let delays = Delays::default();
    let mut node = Ratchet::builder(store)
        .register::<Slot>()
        .state(Arc::clone(&delays))
        .concurrency(options.concurrency);
    for n in 0..options.jobs {
        let second = Recurring::every(Duration::from_secs(1)).job(Slot {}.into_job());
        node = node.recurring(second.named(&name(n)));
    }
    let node = node.build()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let node = node.clone();
        async move { node.run_until(stopped).await }
    });
    let bar = progress("recurring", options.seconds as usize);
    let definitions = node.client().recurring();
    while definitions.get(&name(options.jobs - 1)).await?.is_none() {
        ensure!(!running.is_finished(), "the node stopped");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(WARMUP).await;
    delays
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
    for _ in 0..options.seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let late = std::mem::take(&mut *delays.lock().unwrap_or_else(PoisonError::into_inner));
    drop(stop);
    running.await??;
    let mut outcome = Outcome::default();
    outcome.timed(late.len(), Duration::from_secs(options.seconds.into()));
    outcome.percentiles(late);
    Ok(outcome)
}
