use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, Job, Leader};

/// A summary of the cluster: nodes, rates, job counts, leaders and the newest dead letters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Overview {
    /// Current time, by the database's clock.
    pub at: At,
    /// Time at which the nodes and leaders were last read. The fields `live_nodes`, `running`,
    /// `capacity`, `rates` and `leaders` are as of this time.
    pub read_at: At,
    /// Whether the data about nodes and leaders is out of date, because the database does not
    /// respond.
    pub stale: bool,
    /// Number of live nodes. A node is live if it has not stopped and its last heartbeat is recent
    /// enough.
    pub live_nodes: usize,
    /// Number of bodies that are running on the live nodes.
    pub running: u64,
    /// Maximum number of bodies that the live nodes can run at once.
    pub capacity: u64,
    /// Number of jobs in each state at the last count. Null before the first count.
    pub counts: Option<Counts>,
    /// Time at which the jobs were last counted. Null before the first count.
    pub counts_at: Option<At>,
    /// How long the longest-overdue job has been due, in milliseconds. Jobs of paused queues and
    /// kinds do not count. Null if no job is due, or if `due_at` is null.
    pub oldest_due_ms: Option<u64>,
    /// Time at which the due jobs were last read. Null while it is not known which jobs are due.
    pub due_at: Option<At>,
    /// Rates at which jobs end.
    pub rates: Rates,
    /// History of the cluster over the last two hours.
    pub series: Series,
    /// Due jobs that no node in the cluster can run.
    pub stranded: Vec<StrandedRoute>,
    /// Whether jobs are due while no node is live. Jobs of paused queues and kinds do not count.
    ///
    /// The readiness probe and the gauge `ratchet_nothing_runs` use the same value. While it is not
    /// known which jobs are due, the value does not change until a node is live.
    pub nothing_runs: bool,
    /// Leaders of the roles: one entry for each role.
    pub leaders: Vec<Leader>,
    /// Newest dead letters, grouped by kind, queue and error. Null before the dead letters are
    /// first read.
    pub failures: Option<Vec<DeadLetters>>,
    /// Time at which the dead letters were last read. Null before the first read.
    pub failures_at: Option<At>,
}

/// A group of dead letters that have the same kind, queue and error.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DeadLetters {
    /// Newest job of the group.
    #[serde(flatten)]
    pub newest: Job,
    /// Number of jobs in the group. Only the newest 200 dead letters are counted.
    pub count: usize,
}

impl DeadLetters {
    /// Creates a group that contains only this dead letter.
    #[must_use]
    pub const fn one(newest: Job) -> Self {
        Self { newest, count: 1 }
    }

    /// Returns whether a dead letter belongs to this group: whether it has the group's kind, queue
    /// and error.
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

/// Rates at which jobs end in the cluster. Each rate is the sum of the rates of all live nodes. The
/// rate of a node is measured between its last two heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Rates {
    /// Number of jobs per second that succeeded or became dead letters.
    pub finished_per_s: f64,
    /// Number of jobs per second that became dead letters.
    pub failed_per_s: f64,
    /// Number of failed attempts per second after which Ratchet retries the job.
    pub retried_per_s: f64,
    /// Average time from the due time of a job to its claim, in milliseconds, over the jobs whose
    /// bodies began. Null if no body began.
    pub wait_ms: Option<u64>,
}

impl From<ratchet_core::throughput::Throughput> for Rates {
    /// Converts the rates, and rounds them to three decimal places.
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

/// A history of the cluster, as a series of points. The history has no points for times at which
/// the database was unreachable.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Series {
    /// Time from one point to the next, in milliseconds.
    pub step_ms: u64,
    /// Points of the history, oldest first.
    pub points: Vec<Point>,
}

/// State of the cluster at one time in a [`Series`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Point {
    /// Time of the point, by the database's clock.
    pub at: At,
    /// Rates at which jobs ended at this time.
    #[serde(flatten)]
    pub rates: Rates,
    /// Number of pending jobs at the last count before this time. Null if that count was more than
    /// 5 minutes old.
    pub pending: Option<u64>,
    /// Number of bodies that were running at this time.
    pub running: u64,
    /// How long the longest-overdue job had been due, in milliseconds. 0 if no job was due. Null if
    /// it was not known which jobs were due.
    pub overdue_ms: Option<u64>,
}

impl Point {
    /// Creates a point with rates of 0, no running bodies, and unknown values for `pending` and
    /// `overdue_ms`.
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

/// Due jobs that no node in the cluster can run. The jobs have the same queue, kind and required
/// capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StrandedRoute {
    /// The queue of the jobs.
    pub queue: String,
    /// The kind of the jobs.
    pub kind: String,
    /// Capability that the jobs require. Null if the jobs require none.
    pub capability: Option<String>,
    /// How long the longest-overdue of these jobs has been due, in milliseconds.
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
