use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, Job, Leader};

/// The cluster at a glance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Overview {
    /// The time by the database's clock.
    pub at: At,
    /// When the nodes were read, from which the live nodes, bodies, rates and leaders are.
    pub read_at: At,
    /// Whether that is longer ago than it should be, because the database does not answer.
    pub stale: bool,
    /// Nodes that have not ended and are not silent for too long.
    pub live_nodes: usize,
    /// Bodies that they run.
    pub running: u64,
    /// Bodies that they may run at once.
    pub capacity: u64,
    /// Jobs by state, when they were last counted; null: they were not counted yet.
    pub counts: Option<Counts>,
    /// When that was; null: they were not.
    pub counts_at: Option<At>,
    /// For how long the longest-overdue job that may be claimed has been due; null: none is due,
    /// or it is not known.
    pub oldest_due_ms: Option<u64>,
    /// When it was read what is due; null: it is not known, and what is stranded is not either.
    pub due_at: Option<At>,
    /// How much is done.
    pub rates: Rates,
    /// The same over the last two hours.
    pub series: Series,
    /// Due jobs that no node in the cluster can run.
    pub stranded: Vec<StrandedRoute>,
    /// Whether jobs of queues that are not paused are due while no node is live. Readiness and the
    /// gauge `ratchet_nothing_runs` follow it. While it is not known what is due, the
    /// last judgement stands until a node is live.
    pub nothing_runs: bool,
    /// One for each role.
    pub leaders: Vec<Leader>,
    /// The newest dead letters, equal ones as one, a few of them; null: they were not read yet.
    pub failures: Option<Vec<DeadLetters>>,
    /// When they were read; null: they were not.
    pub failures_at: Option<At>,
}

/// Dead letters of one kind and queue that failed with the same error.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DeadLetters {
    /// The newest of them.
    #[serde(flatten)]
    pub newest: Job,
    /// How many there are among the newest 200 dead letters.
    pub count: usize,
}

impl DeadLetters {
    /// One dead letter.
    #[must_use]
    pub const fn one(newest: Job) -> Self {
        Self { newest, count: 1 }
    }

    /// Whether a dead letter is equal to these.
    #[must_use]
    pub fn are_like(&self, job: &Job) -> bool {
        let Job {
            kind,
            queue,
            last_error,
            ..
        } = &self.newest;
        (kind, queue, last_error) == (&job.kind, &job.queue, &job.last_error)
    }
}

/// How much is done, over all nodes, between the last two heartbeats of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Rates {
    /// Jobs that succeeded or became dead letters, per second.
    pub finished_per_s: f64,
    /// Jobs that became dead letters, per second.
    pub failed_per_s: f64,
    /// Failed attempts that another is to follow, per second.
    pub retried_per_s: f64,
    /// How long jobs that began had been due, on average; null: none began.
    pub wait_ms: Option<u64>,
}

impl From<ratchet_core::throughput::Throughput> for Rates {
    /// To three places.
    fn from(done: ratchet_core::throughput::Throughput) -> Self {
        let round = |rate: f64| (rate * 1_000.0).round() / 1_000.0;
        Self {
            finished_per_s: round(done.finished_per_s),
            failed_per_s: round(done.failed_per_s),
            retried_per_s: round(done.retried_per_s),
            wait_ms: done.wait.map(super::millis),
        }
    }
}

/// A history, oldest first. Steps are missing while the database was away.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Series {
    /// The time from one point to the next.
    pub step_ms: u64,
    /// The points.
    pub points: Vec<Point>,
}

/// One point of a history.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Point {
    /// When, by the database's clock.
    pub at: At,
    /// How much was done.
    #[serde(flatten)]
    pub rates: Rates,
    /// The number of pending jobs at the last count; null before the first.
    pub pending: Option<u64>,
    /// Bodies running.
    pub running: u64,
    /// For how long the longest-overdue job had been due; 0: none was due; null: not known.
    pub overdue_ms: Option<u64>,
}

impl Point {
    /// A point at which nothing happens.
    #[must_use]
    pub fn new(at: At) -> Self {
        Self {
            at,
            rates: Rates::default(),
            pending: None,
            running: 0,
            overdue_ms: None,
        }
    }
}

/// Due jobs that no node in the cluster can run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StrandedRoute {
    /// Their queue.
    pub queue: String,
    /// Their kind.
    pub kind: String,
    /// The capability that they require.
    pub capability: Option<String>,
    /// For how long the first of them has been due.
    pub overdue_ms: u64,
}

impl From<&ratchet_core::DueRoute> for StrandedRoute {
    fn from(due: &ratchet_core::DueRoute) -> Self {
        Self {
            queue: due.route.queue.to_string(),
            kind: due.route.kind.to_string(),
            capability: due.route.capability.as_ref().map(ToString::to_string),
            overdue_ms: super::millis(due.overdue),
        }
    }
}
