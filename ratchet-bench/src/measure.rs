//! Measures a run, and shows its progress.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use ratchet_bench::figures::Outcome;
use ratchet_bench::load::Clock;

use crate::server::Counters;

/// Measures the duration of a run, and its cost for the database server.
pub(crate) struct Meter {
    counters: Option<Counters>,
    clock: Clock,
}

impl Meter {
    pub(crate) async fn start(url: &str) -> Result<Self> {
        let counters = Counters::start(url).await?;
        let clock = Clock::start();
        Ok(Self { counters, clock })
    }

    /// Ends the measurement of a run with `jobs` jobs, and stores the results in `outcome`.
    pub(crate) async fn stop(self, outcome: &mut Outcome, jobs: usize) -> Result<()> {
        outcome.timed(jobs, self.clock.elapsed());
        if let Some(counters) = self.counters {
            let cost = counters.stop().await?;
            #[expect(
                clippy::cast_precision_loss,
                reason = "the ratio is for display, so it does \
                    not need to be exact"
            )]
            let per_job = |count: i64| count as f64 / jobs as f64;
            outcome.wal_bytes_per_job = Some(per_job(cost.wal_bytes));
            outcome.statements_per_job = cost.statements.map(per_job);
        }
        Ok(())
    }
}

/// Returns a progress bar on stderr. The bar is hidden if stderr is not a terminal.
pub(crate) fn progress(what: &'static str, total: usize) -> ProgressBar {
    let bar = ProgressBar::new(total as u64);
    let style = ProgressStyle::with_template("{msg:10} {bar:40} {pos}/{len} {per_sec} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.with_message(what)
}
