use ratchet_core::JobId;
use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, DeadLetters, Job, Overview, Rates, StrandedRoute};

/// The event `tick`, sent once a second to every listener of `/api/events`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Tick {
    /// The time by the database's clock.
    pub at: At,
    /// See [`Overview::read_at`].
    pub read_at: At,
    /// See [`Overview::stale`].
    pub stale: bool,
    /// See [`Overview::live_nodes`].
    pub live_nodes: usize,
    /// See [`Overview::running`].
    pub running: u64,
    /// See [`Overview::capacity`].
    pub capacity: u64,
    /// See [`Overview::counts`].
    pub counts: Option<Counts>,
    /// See [`Overview::counts_at`].
    pub counts_at: Option<At>,
    /// See [`Overview::oldest_due_ms`].
    pub oldest_due_ms: Option<u64>,
    /// See [`Overview::due_at`].
    pub due_at: Option<At>,
    /// See [`Overview::stranded`].
    pub stranded: Vec<StrandedRoute>,
    /// See [`Overview::nothing_runs`].
    pub nothing_runs: bool,
    /// See [`Overview::rates`].
    pub rates: Rates,
    /// The id of the newest job; null if there are no jobs or none has been read yet.
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

/// The event `jobs`: jobs that are new, or have changed since the last event with them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ChangedJobs {
    /// The jobs as they are now; at most 1,000.
    pub jobs: Vec<Job>,
    /// A lower bound of the number of further jobs that have changed.
    pub dropped: usize,
}

/// The event `failures`: the newest dead letters have changed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Failures {
    /// When the dead letters were read, by the database's clock.
    pub at: At,
    /// See [`Overview::failures`].
    pub jobs: Vec<DeadLetters>,
}

impl Failures {
    /// Creates the event from the dead letters that were read at this time.
    #[must_use]
    pub const fn new(at: At, jobs: Vec<DeadLetters>) -> Self {
        Self { at, jobs }
    }
}

/// The event `nodes`: a node joined, left or changed its status, or the leader of a role changed.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ChangedNodes {
    /// When the nodes were read, by the database's clock.
    pub at: At,
    /// The number of live nodes.
    pub live_nodes: usize,
}

/// The event `lagged`: the client read too slowly and missed events.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Lagged {
    /// The number of missed events.
    pub missed: u64,
}
