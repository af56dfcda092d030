//! Claims: the request of a node, and the claimed jobs.

use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};
use crate::id::{ClaimToken, NodeId};
use crate::json::Json;
use crate::limits;
use crate::model::{FIRST_VERSION, JobRecord};
use crate::name::Name;
use crate::priority::{Aging, ClaimRank, Priority};
use crate::retry::RetryPolicy;
use crate::route::{Route, Selection};
use crate::time::{Timestamp, to_millis};
use crate::trace::TraceContext;

/// A node's request for due jobs.
///
/// ```
/// use ratchet::{Name, NodeId, Route};
/// use ratchet_core::model::ClaimRequest;
/// use ratchet_core::route::Selection;
///
/// # fn main() -> Result<(), ratchet::InvalidInput> {
/// let mail = Selection::Only(vec![Name::new("queue", "mail")?]);
/// let request = ClaimRequest::new(NodeId::new(), 10).queues(mail);
/// assert!(Route::from_texts("mail", "welcome", "", "")?.matches(&request));
/// assert!(!Route::from_texts("images", "resize", "", "")?.matches(&request));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimRequest {
    /// The node that will hold the claims.
    pub node: NodeId,
    /// The maximum number of jobs to return; 0 returns none without calling the database.
    pub limit: usize,
    /// The queues from which jobs are claimed.
    pub queues: Selection,
    /// The kinds for which the node has handlers. Jobs of other kinds are not claimed.
    pub kinds: Selection,
    /// The capabilities the node advertises.
    pub capabilities: Vec<Name>,
    /// Whether jobs that require no capability are claimed.
    pub untagged: bool,
    /// How waiting raises the priority.
    pub aging: Aging,
    /// Whether payloads and checkpoints are returned with the jobs.
    pub payloads: bool,
}

impl ClaimRequest {
    /// Requests up to `limit` jobs for `node`: from all queues, of all kinds, only those that
    /// require no capability, with the default aging and with payloads.
    #[must_use]
    pub fn new(node: NodeId, limit: usize) -> Self {
        Self {
            node,
            limit,
            queues: Selection::All,
            kinds: Selection::All,
            capabilities: Vec::new(),
            untagged: true,
            aging: Aging::default(),
            payloads: true,
        }
    }

    /// Sets the maximum number of jobs to return.
    #[must_use]
    pub const fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the queues from which jobs are claimed.
    #[must_use]
    pub fn queues(mut self, queues: Selection) -> Self {
        self.queues = queues;
        self
    }

    /// Sets the kinds that are claimed.
    #[must_use]
    pub fn kinds(mut self, kinds: Selection) -> Self {
        self.kinds = kinds;
        self
    }

    /// Sets the capabilities that the node advertises.
    #[must_use]
    pub fn capabilities(mut self, capabilities: impl IntoIterator<Item = Name>) -> Self {
        self.capabilities = capabilities.into_iter().collect();
        self
    }

    /// Sets whether jobs that require no capability are claimed; true by default.
    #[must_use]
    pub const fn untagged(mut self, taken: bool) -> Self {
        self.untagged = taken;
        self
    }

    /// Sets how waiting raises the priority.
    #[must_use]
    pub const fn aging(mut self, aging: Aging) -> Self {
        self.aging = aging;
        self
    }

    /// Sets whether payloads and checkpoints are returned with the jobs; true by default.
    #[must_use]
    pub const fn payloads(mut self, payloads: bool) -> Self {
        self.payloads = payloads;
        self
    }

    /// Refuses a limit above [`limits::MAX_BATCH`], which no store has to support.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`].
    pub fn validate(&self) -> Result<(), StoreError> {
        limits::check_batch("limit", self.limit).map_err(|problem| {
            StoreError::new(StoreErrorKind::Invalid, "claim").with_source(problem)
        })
    }
}

/// One claim, without payload and checkpoint.
///
/// ```
/// use ratchet::{Claim, NodeHook};
///
/// struct Started;
///
/// impl NodeHook for Started {
///     fn job_started(&self, claim: &Claim) {
///         let attempt = claim.attempts + 1;
///         println!("{} in {}, attempt {attempt}", claim.route.kind, claim.route.queue);
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Claim {
    /// The token that every later write for this claim must carry.
    pub token: ClaimToken,
    /// Queue, kind, required capability and permit.
    pub route: Route,
    /// The stored priority.
    pub priority: Priority,
    /// When the job became due.
    pub run_at: Timestamp,
    /// The number of attempts before this claim: bodies that ended, except those that snoozed.
    pub attempts: u32,
    /// The number of crashes before this claim: lost claims of the job that [count as
    /// crashes](super::ReclaimReason::is_crash).
    pub crash_count: u32,
    /// The version of the payload.
    pub payload_version: u32,
    /// How often and after which delays a failed attempt is retried.
    pub retry: RetryPolicy,
    /// How long the body may run; `None` for no limit.
    pub timeout: Option<Duration>,
    /// How long the body may run without a sign of life; `None` for no limit.
    pub stall_timeout: Option<Duration>,
    /// The lane that the job is in; `None` if it is in none. A claimed job is the head of its lane.
    pub lane: Option<Name>,
    /// Whether other jobs may wait for the end of this job, because they are linked to it or to its
    /// batch. Jobs that are linked to it while it runs are not considered. A store may set this
    /// even if no job waits.
    pub awaited: bool,
    /// The trace in which the job was enqueued.
    pub trace: Option<TraceContext>,
}

impl Claim {
    /// Creates a claim with these required parts and defaults for the rest, which you set directly.
    #[must_use]
    pub fn new(token: ClaimToken, route: Route, priority: Priority, run_at: Timestamp) -> Self {
        Self {
            token,
            route,
            priority,
            run_at,
            attempts: 0,
            crash_count: 0,
            payload_version: FIRST_VERSION,
            retry: RetryPolicy::default(),
            timeout: None,
            stall_timeout: None,
            lane: None,
            awaited: false,
            trace: None,
        }
    }

    /// Returns the current claim of a job, or its last one.
    #[must_use]
    pub fn of(job: &JobRecord) -> Self {
        let spec = &job.spec;
        let claimed_at = job.claimed_at.unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            token: ClaimToken::new(job.id, job.claim_seq, job.node, claimed_at),
            route: spec.route.clone(),
            priority: spec.priority,
            run_at: job.run_at,
            attempts: job.attempts,
            crash_count: job.crash_count,
            payload_version: spec.payload_version,
            retry: spec.retry,
            timeout: spec.timeout,
            stall_timeout: spec.stall_timeout,
            lane: spec.lane.clone(),
            awaited: spec.batch.is_some(),
            trace: spec.trace.clone(),
        }
    }
}

/// The input of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInput {
    /// The payload: the arguments of the handler.
    pub payload: Json,
    /// The last checkpoint of an earlier attempt.
    pub checkpoint: Option<Json>,
}

/// A claimed job.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedJob {
    /// The claim.
    pub claim: Claim,
    /// The input of the body. `None` if the request asked for no
    /// [payloads](ClaimRequest::payloads);
    /// [`JobStore::load_inputs`](crate::store::JobStore::load_inputs) loads it later.
    pub input: Option<JobInput>,
}

impl ClaimedJob {
    /// Sorts jobs into claim order at the database time `now`, in milliseconds.
    pub fn sort(jobs: &mut [Self], aging: Aging, now: i64) {
        jobs.sort_by_cached_key(|job| {
            let claim = &job.claim;
            let run_at = to_millis(claim.run_at);
            ClaimRank::new(claim.priority, run_at, claim.token.job, aging, now)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;
    use crate::time::from_millis;

    #[test]
    fn claimed_jobs_are_sorted_by_their_rank_at_that_time() {
        let (first, second) = (JobId::new(), JobId::new());
        let job = |id, priority, run_at| {
            let route = Route::from_texts("queue", "kind", "", "").unwrap();
            let token = ClaimToken::new(id, 1, None, Timestamp::UNIX_EPOCH);
            let claim = Claim::new(token, route, priority, from_millis(run_at));
            ClaimedJob { claim, input: None }
        };
        let mut jobs = [
            job(second, Priority::Low, 0),
            job(second, Priority::High, 200),
            job(second, Priority::High, 100),
            job(first, Priority::High, 200),
        ];
        let order = [2, 3, 1, 0].map(|place: usize| jobs[place].clone());
        ClaimedJob::sort(&mut jobs, Aging::OFF, 200);
        assert_eq!(jobs, order);
        // At 200 ms, the job that has been due since 0 has overtaken the others.
        let aging = Aging::every(Duration::from_millis(60));
        ClaimedJob::sort(&mut jobs, aging, 200);
        assert_eq!(jobs[0].claim.priority, Priority::Low);
    }
}
