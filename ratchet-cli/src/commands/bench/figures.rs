//! Rates and percentiles.

use std::time::Duration;

use serde::Serialize;

/// What one phase took. Percentiles are of calls, or of starts.
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
    pub(super) fn rate_of(phase: &'static str, jobs: usize, took: Duration) -> Self {
        let seconds = took.as_secs_f64().max(f64::EPSILON);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let count = jobs as f64;
        Self {
            phase,
            jobs,
            seconds,
            jobs_per_s: (count / seconds * 10.0).round() / 10.0,
            p50_ms: None,
            p95_ms: None,
            p99_ms: None,
            max_ms: None,
        }
    }

    pub(super) fn new(
        phase: &'static str,
        jobs: usize,
        took: Duration,
        mut waits: Vec<Duration>,
    ) -> Self {
        waits.sort_unstable();
        let at = |percent: usize| {
            let last = waits.len().checked_sub(1)?;
            let wait = waits[last * percent / 100];
            Some((wait.as_secs_f64() * 1e6).round() / 1e3)
        };
        Self {
            p50_ms: at(50),
            p95_ms: at(95),
            p99_ms: at(99),
            max_ms: at(100),
            ..Self::rate_of(phase, jobs, took)
        }
    }

    /// The percentiles for people.
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
    fn percentiles_are_of_what_was_measured() {
        let waits = (1..=100).rev().map(Duration::from_millis).collect();
        let figures = Figures::new("x", 50, Duration::from_secs(2), waits);
        assert_eq!(figures.rate(), "25");
        assert_eq!(figures.in_words(), ["50.00", "95.00", "99.00", "100.00"]);
        let none = Figures::rate_of("x", 1, Duration::ZERO);
        assert_eq!(none.in_words(), [""; 4].map(str::to_owned));
    }
}
