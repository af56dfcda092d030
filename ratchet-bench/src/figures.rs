use serde::Serialize;

/// One line of output. Percentiles are milliseconds; what a scenario does not measure is 0.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) peer: &'static str,
    pub(crate) scenario: &'static str,
    pub(crate) backend: String,
    pub(crate) jobs: usize,
    pub(crate) seconds: f64,
    pub(crate) jobs_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    pub(crate) missing: usize,
    pub(crate) duplicates: usize,
    pub(crate) claims: u64,
    /// Claims that came back empty though jobs were left; of a scenario that counts them.
    pub(crate) empty_claims: Option<u64>,
    pub(crate) store_calls: u64,
    /// Live updates that each dashboard got at least, where some watched.
    pub(crate) events_per_dashboard: Option<usize>,
    /// Of a server that counts them.
    pub(crate) wal_bytes_per_job: Option<f64>,
    pub(crate) statements_per_job: Option<f64>,
}
