//! A stored job and its history.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::id::{JobId, NodeId};
use crate::json::Json;
use crate::model::{JobSpec, SignalRecord};
use crate::state::JobState;
use crate::time::Timestamp;

/// A stored job with its current state. All times are from the database's clock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{JobState, NewJob, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let id = client.enqueue(NewJob::new("mail", &1).tag("tenant:7")).await?.id();
/// let job = client.job(id).await?.expect("it was just stored");
/// assert_eq!(job.state, JobState::Pending);
/// assert!(job.spec.tags.iter().any(|tag| tag.as_str() == "tenant:7"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobRecord {
    /// The id of the job.
    pub id: JobId,
    /// The specification of the job, as it was enqueued.
    pub spec: JobSpec,
    /// The state of the job.
    pub state: JobState,
    /// The due time of the job: the earliest time at which a node may claim the job.
    pub run_at: Timestamp,
    /// When the job was enqueued.
    pub created_at: Timestamp,
    /// When the job reached a terminal state; `None` before that.
    pub finished_at: Option<Timestamp>,
    /// When the job expires ([`NewJob::expires_in`](crate::NewJob::expires_in)). `None` if it never
    /// does, such as a job that has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The number of attempts since the job was enqueued or requeued. A body that succeeds, fails
    /// or is cancelled counts as an attempt. A body that snoozes does not.
    pub attempts: u32,
    /// The number of crashes since the job was enqueued or requeued.
    /// [`ReclaimReason::is_crash`](super::ReclaimReason::is_crash) defines which lost claims count
    /// as crashes.
    pub crash_count: u32,
    /// The number of times that the job was claimed.
    pub claim_seq: u64,
    /// The node that holds the job's claim; `None` if no node holds the claim.
    pub node: Option<NodeId>,
    /// When the current claim was made; `None` if the job is not running.
    pub claimed_at: Option<Timestamp>,
    /// Whether the job is running and its cancellation was requested.
    pub cancel_requested: bool,
    /// The latest progress that the body reported.
    pub progress: Option<Progress>,
    /// The latest checkpoint of the body. The next attempt starts from this checkpoint.
    #[serde(with = "crate::json::optional_text")]
    pub checkpoint: Option<Json>,
    /// The result that the body returned, if any.
    #[serde(with = "crate::json::optional_text")]
    pub result: Option<Json>,
    /// The error of the last failed attempt.
    pub last_error: Option<String>,
    /// The state of the job's wait for a signal; `None` if the job waits for no signal.
    pub signal: Option<SignalRecord>,
}

impl JobRecord {
    /// Creates the record of a pending job that was never claimed. Set the other fields directly.
    #[must_use]
    pub const fn new(id: JobId, spec: JobSpec, run_at: Timestamp, created_at: Timestamp) -> Self {
        Self {
            id,
            spec,
            state: JobState::Pending,
            run_at,
            created_at,
            finished_at: None,
            expires_at: None,
            attempts: 0,
            crash_count: 0,
            claim_seq: 0,
            node: None,
            claimed_at: None,
            cancel_requested: false,
            progress: None,
            checkpoint: None,
            result: None,
            last_error: None,
            signal: None,
        }
    }

    /// Returns whether the job ended as [`Cancelled`](JobState::Cancelled) because it had not begun
    /// before its expiry. This is also true if it was cancelled after its expiry and before a pass
    /// ended it.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        let expired = |expiry| self.finished_at.is_some_and(|end| end >= expiry);
        self.state == JobState::Cancelled && self.expires_at.is_some_and(expired)
    }

    /// Removes data that may be large. The payload of the job and the payload of a delivered signal
    /// become `null`. The checkpoint and the result become `None`.
    #[must_use]
    pub fn outline(mut self) -> Self {
        self.spec.payload = Json::null();
        self.checkpoint = None;
        self.result = None;
        if let Some(delivery) = self.signal.as_mut().and_then(|it| it.delivered.as_mut()) {
            delivery.payload = Json::null();
        }
        self
    }
}

/// The progress that a body reported.
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
pub struct Progress {
    /// The completed part of the work in percent, 0 to 100.
    pub percent: u8,
    /// A message for operators.
    pub message: String,
}

/// An entry in a job's history: one claim that has ended.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// use ratchet::AttemptOutcome;
///
/// for attempt in client.history(job).await? {
///     if attempt.outcome == AttemptOutcome::Lost {
///         println!("attempt {} was lost with its node", attempt.seq);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// The sequence number of the claim. The first claim of a job has the number 1.
    pub seq: u64,
    /// The node that held the claim; `None` if the claim had no owner when it ended.
    pub node: Option<NodeId>,
    /// When the claim was made.
    pub claimed_at: Timestamp,
    /// When the claim ended.
    pub ended_at: Timestamp,
    /// The running time of the body, measured by the node; `None` if no body ran to its end.
    pub ran_for: Option<Duration>,
    /// How the claim ended.
    pub outcome: AttemptOutcome,
    /// The error, if the attempt failed.
    pub error: Option<String>,
}

impl Attempt {
    /// Creates the history entry of an ended claim. Set the fields `ran_for` and `error` directly.
    #[must_use]
    pub const fn new(
        seq: u64,
        node: Option<NodeId>,
        claimed_at: Timestamp,
        ended_at: Timestamp,
        outcome: AttemptOutcome,
    ) -> Self {
        Self {
            seq,
            node,
            claimed_at,
            ended_at,
            ran_for: None,
            outcome,
            error: None,
        }
    }
}

/// How a claim in the history ended.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// use ratchet::AttemptOutcome;
///
/// for attempt in client.history(job).await? {
///     if attempt.outcome == AttemptOutcome::Lost {
///         println!("attempt {} was lost with its node", attempt.seq);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// The body succeeded.
    Succeeded = 0,
    /// The attempt failed, and another attempt was scheduled.
    Retried = 1,
    /// The attempt failed, and the job became a dead letter.
    Failed = 2,
    /// The body asked to be run again later.
    Snoozed = 3,
    /// The node gave the claim back. This did not count as an attempt.
    Released = 4,
    /// The job was cancelled.
    Cancelled = 5,
    /// The claim was reclaimed, because the node or the body had stopped.
    Lost = 6,
    /// The node gave the claim back, because the store's reply with the claim never reached the
    /// node.
    Undelivered = 7,
    /// The job was claimed only after its expiry, so it was cancelled without running.
    Expired = 8,
}

impl AttemptOutcome {
    const ALL: [Self; 9] = [
        Self::Succeeded,
        Self::Retried,
        Self::Failed,
        Self::Snoozed,
        Self::Released,
        Self::Cancelled,
        Self::Lost,
        Self::Undelivered,
        Self::Expired,
    ];

    /// Returns the number with which stores save the outcome.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the outcome with this stored number.
    ///
    /// # Errors
    /// [`InvalidInput`] if no outcome has this number.
    pub fn from_code(code: i64) -> Result<Self, InvalidInput> {
        usize::try_from(code)
            .ok()
            .and_then(|code| Self::ALL.get(code).copied())
            .ok_or_else(|| InvalidInput::new("outcome", format!("{code} is not an outcome")))
    }
}
