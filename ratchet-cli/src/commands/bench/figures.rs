//! The figures of one phase of a measurement.

use std::time::Duration;

use ratchet_bench::figures::{per_second, percentiles};
use serde::Serialize;

/// The results of one phase of a benchmark. The percentiles describe the durations of the calls, or
/// the start latencies of the jobs.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) phase: &'static str,
    pub(super) jobs: usize,
    seconds: f64,
    jobs_per_s: f64,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
}

impl Figures {
    pub(super) fn new(
        phase: &'static str,
        jobs: usize,
        took: Duration,
        waits: Vec<Duration>,
    ) -> Self {
        let [p50_ms, p95_ms, p99_ms, max_ms] = match percentiles(waits) {
            Some(millis) => millis.map(Some),
            None => [None; 4],
        };
        Self {
            phase,
            jobs,
            seconds: took.as_secs_f64().max(f64::EPSILON),
            jobs_per_s: (per_second(jobs, took) * 10.0).round() / 10.0,
            p50_ms,
            p95_ms,
            p99_ms,
            max_ms,
        }
    }

    /// Returns the percentiles and the maximum as texts, in milliseconds. The texts are empty if
    /// nothing was measured.
    pub(super) fn in_words(&self) -> [String; 4] {
        let word = |millis: Option<f64>| millis.map_or(String::new(), |it| format!("{it:.2}"));
        [self.p50_ms, self.p95_ms, self.p99_ms, self.max_ms].map(word)
    }

    pub(super) fn rate(&self) -> String {
        format!("{:.0}", self.jobs_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_what_was_measured() {
        let waits = (1..=100).rev().map(Duration::from_millis).collect();
        let figures = Figures::new("x", 50, Duration::from_secs(2), waits);
        assert_eq!(figures.rate(), "25");
        assert_eq!(figures.in_words(), ["50.00", "95.00", "99.00", "100.00"]);
        let none = Figures::new("x", 1, Duration::ZERO, Vec::new());
        assert_eq!(none.in_words(), [""; 4].map(str::to_owned));
    }
}
