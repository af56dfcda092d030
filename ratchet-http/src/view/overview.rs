use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, Job, Leader};

/// A summary of the cluster: nodes, rates, job counts, leaders and the newest dead letters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Overview {
    /// The present time by the database's clock.
    pub at: At,
    /// When the nodes were read. The live nodes, running bodies, rates and leaders are as of this
    /// time.
    pub read_at: At,
    /// Whether the data of the nodes is out of date, because the database does not respond.
    pub stale: bool,
    /// The number of live nodes: those that have not ended and have not been silent for too long.
    pub live_nodes: usize,
    /// The number of bodies that the live nodes run.
    pub running: u64,
    /// The maximum number of bodies that the live nodes run at once.
    pub capacity: u64,
    /// The number of jobs by state at the last count; null before the first count.
    pub counts: Option<Counts>,
    /// When the jobs were last counted; null before the first count.
    pub counts_at: Option<At>,
    /// How long the longest-overdue job has been due, without jobs in paused queues; null if no job
    /// is due or if `due_at` is null.
    pub oldest_due_ms: Option<u64>,
    /// When the due jobs were last read; null if it is not known which jobs are due or stranded.
    pub due_at: Option<At>,
    /// The rates at which jobs end.
    pub rates: Rates,
    /// The history of the last two hours.
    pub series: Series,
    /// Due jobs that no node in the cluster can run.
    pub stranded: Vec<StrandedRoute>,
    /// Whether jobs are due in queues that are not paused while no node is live. Readiness and the
    /// gauge `ratchet_nothing_runs` use the same value. While it is not known which jobs are due,
    /// the last value is kept until a node is live.
    pub nothing_runs: bool,
    /// One entry for each role.
    pub leaders: Vec<Leader>,
    /// The newest groups of equal dead letters; null before the first read.
    pub failures: Option<Vec<DeadLetters>>,
    /// When the dead letters were last read; null before the first read.
    pub failures_at: Option<At>,
}

/// A group of equal dead letters: they have the same kind, queue and error.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DeadLetters {
    /// The newest job of the group.
    #[serde(flatten)]
    pub newest: Job,
    /// The size of the group among the newest 200 dead letters.
    pub count: usize,
}

impl DeadLetters {
    /// Creates a group of one dead letter.
    #[must_use]
    pub const fn one(newest: Job) -> Self {
        Self { newest, count: 1 }
    }

    /// Returns whether a dead letter belongs to this group.
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

/// The rates at which jobs end, summed over all live nodes. The rate of a node is measured between
/// its last two heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Rates {
    /// Jobs that succeeded or became dead letters, per second.
    pub finished_per_s: f64,
    /// Jobs that became dead letters, per second.
    pub failed_per_s: f64,
    /// Failed attempts after which the job is tried again, per second.
    pub retried_per_s: f64,
    /// How long jobs whose bodies began had been due when they were claimed, on average; null if no
    /// body began.
    pub wait_ms: Option<u64>,
}

impl From<ratchet_core::throughput::Throughput> for Rates {
    /// Rounds the rates to three decimal places.
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

/// A history of the cluster. Points are missing for times at which the database was unreachable.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Series {
    /// The time from one point to the next.
    pub step_ms: u64,
    /// The points, oldest first.
    pub points: Vec<Point>,
}

/// One point of a history.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Point {
    /// The time of the point, by the database's clock.
    pub at: At,
    /// The rates at that time.
    #[serde(flatten)]
    pub rates: Rates,
    /// The number of pending jobs at the last count; null if there was no count in the last 5
    /// minutes.
    pub pending: Option<u64>,
    /// The number of bodies that were running.
    pub running: u64,
    /// How long the longest-overdue job had been due; 0 if no job was due, null if not known.
    pub overdue_ms: Option<u64>,
}

impl Point {
    /// Creates a point without running bodies, at which the numbers of jobs are not known.
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

/// Due jobs of one queue, kind and capability that no node in the cluster can run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StrandedRoute {
    /// The queue of the jobs.
    pub queue: String,
    /// The kind of the jobs.
    pub kind: String,
    /// The capability that the jobs require.
    pub capability: Option<String>,
    /// How long the longest-overdue job has been due.
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
