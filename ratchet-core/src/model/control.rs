//! Acting on jobs from outside: which ones, and what became of it.

use crate::error::{StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::limits;
use crate::model::JobFilter;
use crate::state::{JobAction, JobState};

/// The jobs an action is meant for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{JobAction, JobFilter, JobSelector, JobState, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let dead = JobFilter::all().state(JobState::Failed);
/// // Up to 100 dead letters, the oldest first. `Client::bulk` has no such limit.
/// let selector = JobSelector::matching(dead, 100);
/// let acted = client.act(&selector, JobAction::Requeue).await?;
/// assert!(acted.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JobSelector {
    /// Exactly these.
    Ids(Vec<JobId>),
    /// The oldest `limit` jobs that match the filter and can take the action.
    Matching {
        /// Which jobs.
        filter: JobFilter,
        /// Only jobs after this one, so that a pass continues where the last one ended.
        after: Option<JobId>,
        /// The most to act on; at least 1.
        limit: usize,
    },
}

impl JobSelector {
    /// The oldest `limit` jobs that match the filter and can take the action.
    #[must_use]
    pub const fn matching(filter: JobFilter, limit: usize) -> Self {
        Self::Matching {
            filter,
            after: None,
            limit,
        }
    }

    /// Selects only those jobs that match the filter and come after this one. Ids stay as they are.
    #[must_use]
    pub fn after(mut self, job: Option<JobId>) -> Self {
        if let Self::Matching { after, .. } = &mut self {
            *after = job;
        }
        self
    }

    /// Refuses a limit of 0, too many jobs, and actions with values that cannot be stored.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`].
    pub fn validate(&self, action: JobAction) -> Result<(), StoreError> {
        match self {
            Self::Ids(ids) => limits::check_batch("ids", ids.len()),
            Self::Matching { limit, .. } => limits::check_limit("limit", *limit),
        }
        .and_then(|()| action.validate())
        .map_err(|problem| StoreError::new(StoreErrorKind::Invalid, "act").with_source(problem))
    }
}

/// The outcome of an action for one job.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// use ratchet::{JobAction, JobSelector};
///
/// let selected = JobSelector::Ids(vec![job]);
/// for acted in client.act(&selected, JobAction::Cancel).await? {
///     println!("{}: {:?}", acted.job, acted.outcome);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acted {
    /// The job.
    pub job: JobId,
    /// The outcome.
    pub outcome: ActionOutcome,
}

/// See [`Acted`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{ActionOutcome, JobState, NewJob, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let id = client.enqueue(NewJob::new("mail", &1)).await?.id();
/// assert_eq!(client.cancel(id).await?, ActionOutcome::Became(JobState::Cancelled));
/// assert_eq!(client.cancel(id).await?, ActionOutcome::Refused(JobState::Cancelled));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActionOutcome {
    /// The job now has this state.
    Became(JobState),
    /// The job runs; its node will be told to cancel it.
    CancelRequested,
    /// The job was changed, and its state stayed the same.
    Changed,
    /// The job is gone.
    Deleted,
    /// The action has no meaning in the job's state, this one; nothing changed.
    Refused(JobState),
    /// This other unfinished job has taken the unique key meanwhile; nothing changed.
    KeyTaken(JobId),
    /// There is no such job.
    NotFound,
}
