use ratchet_core::JobId;
use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, DeadLetters, Job, Overview, Rates, StrandedRoute};

/// The event `tick`, sent once a second to every listener of `/api/events`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Tick {
    /// The time of the event, by the database's clock.
    pub at: At,
    /// When the nodes were read, as in [`Overview::read_at`].
    pub read_at: At,
    /// Whether the data of the nodes is out of date, as in [`Overview::stale`].
    pub stale: bool,
    /// The number of live nodes, as in [`Overview::live_nodes`].
    pub live_nodes: usize,
    /// The number of bodies that the live nodes run, as in [`Overview::running`].
    pub running: u64,
    /// The maximum number of bodies that the live nodes run at once, as in [`Overview::capacity`].
    pub capacity: u64,
    /// The number of jobs by state at the last count, as in [`Overview::counts`].
    pub counts: Option<Counts>,
    /// When the jobs were last counted, as in [`Overview::counts_at`].
    pub counts_at: Option<At>,
    /// How long the longest-overdue job has been due, in milliseconds, as in
    /// [`Overview::oldest_due_ms`].
    pub oldest_due_ms: Option<u64>,
    /// When the due jobs were last read, as in [`Overview::due_at`].
    pub due_at: Option<At>,
    /// Due jobs that no node in the cluster can run, as in [`Overview::stranded`].
    pub stranded: Vec<StrandedRoute>,
    /// Whether jobs are due while no node is live, as in [`Overview::nothing_runs`].
    pub nothing_runs: bool,
    /// The rates at which jobs end, as in [`Overview::rates`].
    pub rates: Rates,
    /// The id of the newest job; null if there are no jobs or no job has been read yet.
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

/// The event `jobs`: jobs that are new, or that have changed since the last event that contained
/// them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ChangedJobs {
    /// The new and changed jobs in their current state; at most 1,000 jobs.
    pub jobs: Vec<Job>,
    /// How many changed jobs this event does not contain. The actual number may be higher.
    pub dropped: usize,
}

/// The event `failures`: the newest dead letters have changed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Failures {
    /// When the dead letters were read, by the database's clock.
    pub at: At,
    /// The newest dead letters, grouped as in [`Overview::failures`].
    pub jobs: Vec<DeadLetters>,
}

impl Failures {
    /// Creates the event from the dead letters that were read at the time `at`.
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
