//! A job as it is stored, and its history.

use std::time::Duration;

use crate::error::InvalidInput;
use crate::id::{JobId, NodeId};
use crate::json::Json;
use crate::model::{JobSpec, SignalRecord};
use crate::state::JobState;
use crate::time::Timestamp;

/// A stored job, as an operator sees it. All times are the database's.
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRecord {
    /// The job.
    pub id: JobId,
    /// Its specification, fixed at the enqueue.
    pub spec: JobSpec,
    /// Where it stands.
    pub state: JobState,
    /// When it is, or was, due.
    pub run_at: Timestamp,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it reached a terminal state.
    pub finished_at: Option<Timestamp>,
    /// Bodies that ended.
    pub attempts: u32,
    /// Claims lost with their node since the job was enqueued or requeued.
    pub crash_count: u32,
    /// Claims.
    pub claim_seq: u64,
    /// The node that holds the claim, while it runs.
    pub node: Option<NodeId>,
    /// When it was claimed, while it runs.
    pub claimed_at: Option<Timestamp>,
    /// Whether it runs and a client asked to cancel it.
    pub cancel_requested: bool,
    /// How far the body said it is.
    pub progress: Option<Progress>,
    /// The checkpoint from which the next attempt starts.
    pub checkpoint: Option<Json>,
    /// The result of the body.
    pub result: Option<Json>,
    /// Why the last failed attempt failed.
    pub last_error: Option<String>,
    /// How its waiting for a signal stands, if it is one that waits for a signal.
    pub signal: Option<SignalRecord>,
}

impl JobRecord {
    /// A pending job that was never claimed; the other fields are public.
    #[must_use]
    pub const fn new(id: JobId, spec: JobSpec, run_at: Timestamp, created_at: Timestamp) -> Self {
        Self {
            id,
            spec,
            state: JobState::Pending,
            run_at,
            created_at,
            finished_at: None,
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

    /// The same without what may be large: the payload is `null`, as is that of a signal that came,
    /// and there is no checkpoint and no result.
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

/// How far a body said it is.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// 0 to 100.
    pub percent: u8,
    /// For people.
    pub message: String,
}

/// One ended claim in a job's history.
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The claim's number.
    pub seq: u64,
    /// The node that held it.
    pub node: Option<NodeId>,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How long its body ran, as the node measured it; `None` if no body ran to its end.
    pub ran_for: Option<Duration>,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// Why it failed.
    pub error: Option<String>,
}

impl Attempt {
    /// An ended claim without a measured body and without an error; these are public.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The body succeeded.
    Succeeded = 0,
    /// It failed and was to be retried.
    Retried = 1,
    /// It failed for good.
    Failed = 2,
    /// It asked to be run later.
    Snoozed = 3,
    /// The claim was handed back.
    Released = 4,
    /// The job was cancelled.
    Cancelled = 5,
    /// The claim was taken back.
    Lost = 6,
    /// The claim was handed back because the store's answer to it never reached the node.
    Undelivered = 7,
}

impl AttemptOutcome {
    const ALL: [Self; 8] = [
        Self::Succeeded,
        Self::Retried,
        Self::Failed,
        Self::Snoozed,
        Self::Released,
        Self::Cancelled,
        Self::Lost,
        Self::Undelivered,
    ];

    /// The number a store keeps.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The outcome of a stored number.
    ///
    /// # Errors
    /// [`InvalidInput`] if no outcome has it.
    pub fn from_code(code: i64) -> Result<Self, InvalidInput> {
        usize::try_from(code)
            .ok()
            .and_then(|code| Self::ALL.get(code).copied())
            .ok_or_else(|| InvalidInput::new("outcome", format!("{code} is not an outcome")))
    }
}
