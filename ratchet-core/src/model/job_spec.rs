//! The specification of a job: the properties that its enqueue sets.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::BatchId;
use crate::json::Json;
use crate::model::{After, FIRST_VERSION, FairKey, RecurringOrigin, SignalWait};
use crate::name::Name;
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::route::Route;
use crate::state::JobState;
use crate::trace::TraceContext;

/// The specification of a job: the properties that its enqueue sets. Later, only the priority can
/// change, and what [`OnConflict`](crate::OnConflict) changes: the payload of a waiting job, and
/// the unique key of a running job.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// if let Some(job) = client.job(job).await? {
///     println!("{} in {}", job.spec.route.kind, job.spec.route.queue);
///     if let Some(progress) = job.progress {
///         println!("{} %: {}", progress.percent, progress.message);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobSpec {
    /// The queue, the kind, and the required capability and permit.
    pub route: Route,
    /// The arguments of the handler.
    #[serde(with = "crate::json::text")]
    pub payload: Json,
    /// The version of the payload; see [`Job::VERSION`](crate::Job::VERSION).
    pub payload_version: u32,
    /// The stored priority. Aging does not change it.
    pub priority: Priority,
    /// How often and after which delays a failed attempt is retried.
    pub retry: RetryPolicy,
    /// The maximum run time of one body; `None` for no limit.
    pub timeout: Option<Duration>,
    /// The maximum time that a body may run without a sign of life (a report of progress, a
    /// checkpoint or a heartbeat); `None` for no limit.
    pub stall_timeout: Option<Duration>,
    /// The unique key; at most one unfinished job may have it.
    pub unique_key: Option<Name>,
    /// The idempotency key; at most one job may ever have it.
    pub idempotency_key: Option<Name>,
    /// The lane of its queue to which the job belongs. `None` if the job is in no lane.
    pub lane: Option<Name>,
    /// The key for which claims take turns. `None` if the job is claimed in order of its due time.
    pub fair_key: Option<FairKey>,
    /// The parents that the job waits for. All conditions must be met before the job may run.
    pub after: Vec<After>,
    /// The batch of which the job is a child; `None` if it is in no batch.
    pub batch: Option<BatchId>,
    /// The signal that the job waits for; `None` if it waits for no signal.
    pub signal: Option<SignalWait>,
    /// The trace context that the handler gets; `None` if the job has none.
    pub trace: Option<TraceContext>,
    /// The recurring definition that made the job; `None` if a client enqueued it.
    pub recurring: Option<RecurringOrigin>,
    /// The tags by which the job can be found.
    pub tags: BTreeSet<Name>,
}

impl JobSpec {
    /// Creates a spec with the defaults: payload version 1, normal priority, default retries, no
    /// timeouts, no keys, no lane, no tags.
    #[must_use]
    pub fn new(route: Route, payload: Json) -> Self {
        Self {
            route,
            payload,
            payload_version: FIRST_VERSION,
            priority: Priority::default(),
            retry: RetryPolicy::default(),
            timeout: None,
            stall_timeout: None,
            unique_key: None,
            idempotency_key: None,
            lane: None,
            fair_key: None,
            after: Vec::new(),
            batch: None,
            signal: None,
            trace: None,
            recurring: None,
            tags: BTreeSet::new(),
        }
    }

    /// Returns whether the job waits for other jobs, for batches or for a signal before it may run.
    #[must_use]
    pub const fn waits(&self) -> bool {
        !self.after.is_empty() || self.signal.is_some()
    }

    /// Returns whether the job has a unique key or an idempotency key.
    #[must_use]
    pub const fn has_keys(&self) -> bool {
        self.unique_key.is_some() || self.idempotency_key.is_some()
    }

    /// Returns the fair key of a job that needs a [turn](crate::fair). `None` if the job has no
    /// fair key, is not pending, or is due after `now`.
    #[must_use]
    pub fn due_fair_key(&self, state: JobState, run_at: i64, now: i64) -> Option<&FairKey> {
        let is_due = state == JobState::Pending && run_at <= now;
        self.fair_key.as_ref().filter(|_| is_due)
    }

    /// Returns whether the job waits for other jobs, for batches or for a signal, or is in a batch.
    #[must_use]
    pub const fn is_linked(&self) -> bool {
        self.waits() || self.batch.is_some()
    }

    /// Returns whether the job has a lane, waits for parents or a signal, or is in a batch. A store
    /// needs a transaction to enqueue such a job.
    #[must_use]
    pub const fn needs_transaction(&self) -> bool {
        self.lane.is_some() || self.is_linked()
    }
}
