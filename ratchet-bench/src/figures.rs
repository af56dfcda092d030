//! Rates, percentiles and medians, and the result of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The result of one benchmark run. The program `ratchet-bench` prints the result as one line of
/// JSON. A value that the scenario does not measure is 0 or `None`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// The program that was measured: `ratchet`, or `floor` for the hand-written loop.
    pub peer: String,
    /// The name of the scenario.
    pub scenario: String,
    /// The scheme of the database's URL, such as `postgres`.
    pub backend: String,
    /// The number of jobs in the run.
    pub jobs: usize,
    /// The duration of the run, in seconds.
    pub seconds: f64,
    /// The number of jobs per second.
    pub jobs_per_s: f64,
    /// The median latency, in milliseconds.
    pub p50_ms: f64,
    /// The 95th percentile of the latencies, in milliseconds.
    pub p95_ms: f64,
    /// The 99th percentile of the latencies, in milliseconds.
    pub p99_ms: f64,
    /// The largest latency, in milliseconds.
    pub max_ms: f64,
    /// The number of jobs that did not run. In the scenario `enqueue`, the number of jobs that were
    /// not stored.
    pub missing: usize,
    /// The number of jobs that ran more than once.
    pub duplicates: usize,
    /// The number of claim calls.
    pub claims: u64,
    /// The number of claims that returned no jobs although jobs were left. `None` if the scenario
    /// does not count such claims.
    pub empty_claims: Option<u64>,
    /// The number of calls to the store.
    pub store_calls: u64,
    /// The position of the single job among the claimed jobs, from 1. `None` in other scenarios.
    pub position: Option<usize>,
    /// The smallest number of live updates that any dashboard received. `None` if no dashboard was
    /// open.
    pub events_per_dashboard: Option<usize>,
    /// The number of bytes written to the write-ahead log, per job. `None` if the server does not
    /// count them.
    pub wal_bytes_per_job: Option<f64>,
    /// The number of statements per job. `None` if the server does not count them.
    pub statements_per_job: Option<f64>,
}

impl Outcome {
    /// Sets the number of jobs, the duration of the run, and the number of jobs per second.
    pub fn timed(&mut self, jobs: usize, took: Duration) {
        self.jobs = jobs;
        self.seconds = took.as_secs_f64();
        self.jobs_per_s = per_second(jobs, took).round();
    }

    /// Sets the percentiles and the maximum of `latencies`. Sets them to 0 if `latencies` is empty.
    pub fn percentiles(&mut self, latencies: Vec<Duration>) {
        let millis = percentiles(latencies).unwrap_or_default();
        [self.p50_ms, self.p95_ms, self.p99_ms, self.max_ms] = millis;
    }
}

/// Returns the number of jobs per second, if `jobs` jobs took the time `took`.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "the rate is for display, so it does not need to be \
        exact"
)]
pub fn per_second(jobs: usize, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64().max(f64::EPSILON)
}

/// Returns the 50th, 95th and 99th percentile and the maximum of `latencies`, in milliseconds. The
/// values are rounded to the microsecond. Returns `None` if `latencies` is empty.
#[must_use]
pub fn percentiles(mut latencies: Vec<Duration>) -> Option<[f64; 4]> {
    latencies.sort_unstable();
    let last = latencies.len().checked_sub(1)?;
    // Uses the nearest-rank method: returns the smallest latency `x` for which at least `percent`
    // percent of all latencies are at most `x`.
    let at = |percent: usize| {
        let rank = (latencies.len() * percent).div_ceil(100);
        let latency = latencies[rank.saturating_sub(1).min(last)];
        (latency.as_secs_f64() * 1e6).round() / 1e3
    };
    Some([50, 95, 99, 100].map(at))
}

/// Returns the median of `values`, or `None` if `values` is empty.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let latencies = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentiles(latencies), Some([50.0, 95.0, 99.0, 100.0]));
        let few = (1..=10).map(Duration::from_millis).collect();
        assert_eq!(percentiles(few), Some([5.0, 10.0, 10.0, 10.0]));
        assert_eq!(percentiles(Vec::new()), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
