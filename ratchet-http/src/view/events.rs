use ratchet_core::JobId;
use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, DeadLetters, Job, Overview, Rates, StrandedRoute};

/// The event `tick`: the sign of life of `/api/events`, once a second.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Tick {
    /// The time by the database's clock.
    pub at: At,
    /// See [`Overview`].
    pub read_at: At,
    /// See [`Overview`].
    pub stale: bool,
    /// See [`Overview`].
    pub live_nodes: usize,
    /// See [`Overview`].
    pub running: u64,
    /// See [`Overview`].
    pub capacity: u64,
    /// See [`Overview`].
    pub counts: Option<Counts>,
    /// See [`Overview`].
    pub counts_at: Option<At>,
    /// See [`Overview`].
    pub oldest_due_ms: Option<u64>,
    /// See [`Overview`].
    pub due_at: Option<At>,
    /// See [`Overview`].
    pub stranded: Vec<StrandedRoute>,
    /// See [`Overview`].
    pub nothing_runs: bool,
    /// How much is done.
    pub rates: Rates,
    /// The newest job; null if there is none, or none was seen yet.
    pub newest: Option<String>,
}

impl Tick {
    pub(crate) fn new(overview: &Overview, newest: Option<JobId>) -> Self {
        Self {
            at: overview.at,
            read_at: overview.read_at,
            stale: overview.stale,
            live_nodes: overview.live_nodes,
            running: overview.running,
            capacity: overview.capacity,
            counts: overview.counts.clone(),
            counts_at: overview.counts_at,
            oldest_due_ms: overview.oldest_due_ms,
            due_at: overview.due_at,
            stranded: overview.stranded.clone(),
            nothing_runs: overview.nothing_runs,
            rates: overview.rates,
            newest: newest.map(|job| job.to_string()),
        }
    }
}

/// The event `jobs`: jobs that are new, or have changed since their last update.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ChangedJobs {
    /// Each as it is now; at most 1,000.
    pub jobs: Vec<Job>,
    /// How many more there were, at least.
    pub dropped: usize,
}

/// The event `failures`: the newest dead letters have changed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Failures {
    /// When they were read, by the database's clock.
    pub at: At,
    /// See [`Overview::failures`].
    pub jobs: Vec<DeadLetters>,
}

impl Failures {
    /// These, as they were at this time.
    #[must_use]
    pub const fn new(at: At, jobs: Vec<DeadLetters>) -> Self {
        Self { at, jobs }
    }
}

/// The event `nodes`: nodes came or went, changed their status, or another leads.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ChangedNodes {
    /// When it was so, by the database's clock.
    pub at: At,
    /// Nodes that live now.
    pub live_nodes: usize,
}

/// The event `lagged`: the client was too slow to hear everything.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Lagged {
    /// How many events it missed.
    pub missed: u64,
}
