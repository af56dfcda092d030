//! Clocks, percentiles and progress.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use crate::result::Outcome;
use crate::server::Counters;

/// Time since a common start.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// At least 1.
    pub(crate) fn nanos(self) -> u64 {
        u64::try_from(self.elapsed().as_nanos())
            .unwrap_or(u64::MAX)
            .max(1)
    }
}

/// The clock of a run, and the counters of its server.
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

    /// The run of so many jobs has ended.
    pub(crate) async fn stop(self, outcome: &mut Outcome, jobs: usize) -> Result<()> {
        rate(outcome, jobs, self.clock.elapsed());
        if let Some(counters) = self.counters {
            let cost = counters.stop().await?;
            #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
            let per_job = |count: i64| count as f64 / jobs as f64;
            outcome.wal_bytes_per_job = Some(per_job(cost.wal_bytes));
            outcome.statements_per_job = cost.statements.map(per_job);
        }
        Ok(())
    }
}

/// Latencies, for their percentiles.
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000, 3);
        Self(histogram.expect("the bounds are valid"))
    }
}

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(micros.max(1));
    }

    pub(crate) fn report(&self, outcome: &mut Outcome) {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1_000.0;
        outcome.p50_ms = at(0.50);
        outcome.p95_ms = at(0.95);
        outcome.p99_ms = at(0.99);
        outcome.max_ms = at(1.0);
    }
}

/// `jobs` in `seconds`.
pub(crate) fn rate(outcome: &mut Outcome, jobs: usize, seconds: Duration) {
    outcome.jobs = jobs;
    outcome.seconds = seconds.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let count = jobs as f64;
    outcome.jobs_per_s = (count / outcome.seconds).round();
}

/// A progress bar on stderr, if that is a terminal.
pub(crate) fn progress(what: &'static str, total: usize) -> ProgressBar {
    let bar = ProgressBar::new(total as u64);
    let style = ProgressStyle::with_template("{msg:10} {bar:40} {pos}/{len} {per_sec} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.with_message(what)
}
