//! Claims: the request of a node, and the claimed jobs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{StoreError, StoreErrorKind};
use crate::id::{ClaimToken, NodeId};
use crate::json::Json;
use crate::limits;
use crate::model::{FIRST_VERSION, JobRecord};
use crate::name::Name;
use crate::priority::{Aging, ClaimRank, Priority};
use crate::retry::RetryPolicy;
use crate::route::{Route, Selection};
use crate::time::{Timestamp, duration_millis, to_millis};
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClaimRequest {
    /// The node that will hold the claims.
    pub node: NodeId,
    /// The maximum number of jobs to claim. If it is 0, the store claims no job and does not call
    /// the database.
    pub limit: usize,
    /// The queues from which jobs are claimed.
    pub queues: Selection,
    /// The kinds for which the node has handlers. Jobs of other kinds are not claimed.
    pub kinds: Selection,
    /// The capabilities that the node advertises.
    pub capabilities: Vec<Name>,
    /// Whether the node claims jobs that require no capability.
    pub untagged: bool,
    /// The rule that raises the effective priority of a job while it waits.
    pub aging: Aging,
    /// Whether the store returns the payloads and checkpoints of the claimed jobs.
    pub payloads: bool,
}

impl ClaimRequest {
    /// Creates a request for up to `limit` jobs for `node`, from all queues and of all kinds. It
    /// claims only jobs that require no capability. It uses the default aging, and the store
    /// returns the payloads.
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

    /// Sets the maximum number of jobs to claim.
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

    /// Sets the kinds of jobs that are claimed.
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

    /// Sets whether the node claims jobs that require no capability. The default is true.
    #[must_use]
    pub const fn untagged(mut self, taken: bool) -> Self {
        self.untagged = taken;
        self
    }

    /// Sets the rule that raises the effective priority of a job while it waits.
    #[must_use]
    pub const fn aging(mut self, aging: Aging) -> Self {
        self.aging = aging;
        self
    }

    /// Sets whether the store returns the payloads and checkpoints of the claimed jobs. The default
    /// is true.
    #[must_use]
    pub const fn payloads(mut self, payloads: bool) -> Self {
        self.payloads = payloads;
        self
    }

    /// Checks that the limit is at most [`limits::MAX_BATCH`]. No store has to support a higher
    /// limit.
    ///
    /// # Errors
    /// Fails with [`StoreErrorKind::Invalid`] if the limit is too high.
    pub fn validate(&self) -> Result<(), StoreError> {
        limits::check_batch("limit", self.limit).map_err(|problem| {
            StoreError::new(StoreErrorKind::Invalid, "claim").with_source(problem)
        })
    }
}

/// A claim of a job, with the job's settings and without its payload and checkpoint.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Claim {
    /// The token that every later write for this claim must carry.
    pub token: ClaimToken,
    /// The queue, the kind, the required capability and the required permit of the job.
    pub route: Route,
    /// The priority that is stored with the job. Aging does not change this priority.
    pub priority: Priority,
    /// When the job became due, by the database's clock.
    pub run_at: Timestamp,
    /// The number of attempts before this claim. Each ended body is an attempt, unless it snoozed
    /// the job.
    pub attempts: u32,
    /// The number of crashes before this claim. A crash is the loss of a claim for a reason that
    /// [counts as a crash](super::ReclaimReason::is_crash).
    pub crash_count: u32,
    /// The version of the payload's format.
    pub payload_version: u32,
    /// The policy that decides how often and after which delays a failed attempt is retried.
    pub retry: RetryPolicy,
    /// The maximum duration of the body. `None` for no limit.
    pub timeout: Option<Duration>,
    /// The maximum time during which the body may run without a report. `None` for no limit.
    pub stall_timeout: Option<Duration>,
    /// The lane of the job. A claimed job is the head of its lane. `None` if the job has no lane.
    pub lane: Option<Name>,
    /// Whether other jobs may wait for the end of this job, because they have links to the job or
    /// to its batch. Links that are added while the job runs do not count. A store may set this to
    /// true even if no job waits.
    pub awaited: bool,
    /// Whether another job of the same fair key may wait for the end of this claim, because the
    /// key has a limit. A store may set this to true even if no job waits.
    #[serde(default)]
    pub limited: bool,
    /// The trace context with which the job was enqueued. `None` if it was enqueued without a
    /// trace.
    pub trace: Option<TraceContext>,
    /// When the job expires if no body begins before. `None` if it never expires, such as a job
    /// that has begun. If the job was claimed only after this time, the node ends the job without
    /// running it ([`is_expired_after`](Self::is_expired_after)). Otherwise it first reports that
    /// the body begins (`[expiry.begun]`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl Claim {
    /// Creates a claim from its required parts. The other fields have default values; set them
    /// directly.
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
            limited: false,
            trace: None,
            expires_at: None,
        }
    }

    /// Returns the current claim of a running job, or the last claim of any other job.
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
            limited: false,
            trace: spec.trace.clone(),
            expires_at: job.expires_at,
        }
    }

    /// Returns whether the job has expired when the claim is this old, so that its body must not
    /// begin any more.
    #[must_use]
    pub fn is_expired_after(&self, age: Duration) -> bool {
        let now = to_millis(self.token.claimed_at).saturating_add(duration_millis(age));
        (self.expires_at).is_some_and(|expiry| is_expired(to_millis(expiry), now))
    }
}

/// Returns whether a job that expires at `expires_at` and has not begun has expired at `now`. Both
/// times are in milliseconds since 1970.
#[must_use]
pub const fn is_expired(expires_at: i64, now: i64) -> bool {
    expires_at <= now
}

/// The input of a body: the payload and the checkpoint of its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInput {
    /// The payload: the arguments of the handler.
    #[serde(with = "crate::json::text")]
    pub payload: Json,
    /// The last checkpoint that an earlier attempt saved. `None` if there is no checkpoint.
    #[serde(with = "crate::json::optional_text")]
    pub checkpoint: Option<Json>,
}

/// A claimed job: its claim and the input of its body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimedJob {
    /// The claim.
    pub claim: Claim,
    /// The input of the body. `None` if the request asked for no
    /// [payloads](ClaimRequest::payloads). In that case,
    /// [`JobStore::load_inputs`](crate::store::JobStore::load_inputs) loads the input later.
    pub input: Option<JobInput>,
}

impl ClaimedJob {
    /// Sorts jobs into claim order for the database time `now`, in milliseconds since 1970.
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
        // At 200 ms, the job that has been due since 0 comes before the others.
        let aging = Aging::every(Duration::from_millis(60));
        ClaimedJob::sort(&mut jobs, aging, 200);
        assert_eq!(jobs[0].claim.priority, Priority::Low);
    }
}
