//! Actions on jobs: the selection of the jobs, and the outcome for each.

use crate::error::{StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::limits;
use crate::model::JobFilter;
use crate::state::{JobAction, JobState};

/// The jobs that an action applies to.
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
    /// Exactly these jobs.
    Ids(Vec<JobId>),
    /// The oldest `limit` jobs that match the filter and to which the action applies.
    Matching {
        /// The filter.
        filter: JobFilter,
        /// Only jobs after this one, so that a pass can continue where the last one ended.
        after: Option<JobId>,
        /// The maximum number of jobs; at least 1.
        limit: usize,
    },
}

impl JobSelector {
    /// Selects the oldest `limit` jobs that match the filter and to which the action applies.
    #[must_use]
    pub const fn matching(filter: JobFilter, limit: usize) -> Self {
        Self::Matching {
            filter,
            after: None,
            limit,
        }
    }

    /// Selects only matching jobs that come after this one. This has no effect on a selection by
    /// ids.
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

/// What an action did to a job.
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
    /// The job runs; its node is asked to cancel it.
    CancelRequested,
    /// The job was changed and kept its state.
    Changed,
    /// The job was deleted.
    Deleted,
    /// The action does not apply to a job in this state; nothing changed.
    Refused(JobState),
    /// Another unfinished job, this one, now has the job's unique key; nothing changed.
    KeyTaken(JobId),
    /// There is no such job.
    NotFound,
}
