//! Rates, percentiles and medians, and the result of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The result of a run of `ratchet-bench`, which prints it as one line of JSON. Percentiles are
/// milliseconds; a figure that a scenario does not measure is 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// The library that was measured, or the floor.
    pub peer: String,
    /// The scenario.
    pub scenario: String,
    /// The scheme of the URL.
    pub backend: String,
    /// The number of jobs.
    pub jobs: usize,
    /// The time they took.
    pub seconds: f64,
    /// Their rate.
    pub jobs_per_s: f64,
    /// Half of the latencies are at most this.
    pub p50_ms: f64,
    /// 95 % of the latencies are at most this.
    pub p95_ms: f64,
    /// 99 % of the latencies are at most this.
    pub p99_ms: f64,
    /// The largest latency.
    pub max_ms: f64,
    /// Jobs that did not run.
    pub missing: usize,
    /// Jobs that ran more than once.
    pub duplicates: usize,
    /// Claims.
    pub claims: u64,
    /// Claims that came back empty though jobs were left, if the scenario counts them.
    pub empty_claims: Option<u64>,
    /// Calls of the store.
    pub store_calls: u64,
    /// The least number of live updates that a dashboard received, if any were open.
    pub events_per_dashboard: Option<usize>,
    /// The write-ahead log, if the server counts it.
    pub wal_bytes_per_job: Option<f64>,
    /// The statements, if the server counts them.
    pub statements_per_job: Option<f64>,
}

impl Outcome {
    /// Sets the number of jobs, the time they took, and their rate.
    pub fn timed(&mut self, jobs: usize, took: Duration) {
        self.jobs = jobs;
        self.seconds = took.as_secs_f64();
        self.jobs_per_s = per_second(jobs, took).round();
    }

    /// Sets the percentiles. Without any latency they stay 0.
    pub fn percentiles(&mut self, latencies: Vec<Duration>) {
        let millis = percentiles(latencies).unwrap_or_default();
        [self.p50_ms, self.p95_ms, self.p99_ms, self.max_ms] = millis;
    }
}

/// Returns the rate of `jobs` in this time.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn per_second(jobs: usize, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64().max(f64::EPSILON)
}

/// Returns the 50th, 95th and 99th percentile and the maximum, in milliseconds to the microsecond.
/// `None` without any latency.
#[must_use]
pub fn percentiles(mut latencies: Vec<Duration>) -> Option<[f64; 4]> {
    latencies.sort_unstable();
    let last = latencies.len().checked_sub(1)?;
    // The nearest rank: the smallest latency that this percentage of all do not exceed.
    let at = |percent: usize| {
        let rank = (latencies.len() * percent).div_ceil(100);
        let latency = latencies[rank.saturating_sub(1).min(last)];
        (latency.as_secs_f64() * 1e6).round() / 1e3
    };
    Some([50, 95, 99, 100].map(at))
}

/// Returns the median. `None` without any value.
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
