//! Actions on jobs: the selection of the jobs, and the outcome for each.

use serde::{Deserialize, Serialize};

use crate::error::{StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::limits;
use crate::model::JobFilter;
use crate::state::{JobAction, JobState};

/// Selects the jobs to which an action applies.
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
    /// The oldest `limit` jobs that match the filter and whose state allows the action.
    Matching {
        /// The filter that the jobs must match.
        filter: JobFilter,
        /// The last job of the previous selection. Only later jobs are selected. `None` to begin
        /// with the oldest job.
        after: Option<JobId>,
        /// The maximum number of jobs to select; at least 1.
        limit: usize,
    },
}

impl JobSelector {
    /// Selects the oldest `limit` jobs that match the filter and whose state allows the action.
    #[must_use]
    pub const fn matching(filter: JobFilter, limit: usize) -> Self {
        Self::Matching {
            filter,
            after: None,
            limit,
        }
    }

    /// Selects only jobs that come after `job`, such as the last job of the previous selection.
    /// This has no effect if the jobs are selected by their ids.
    #[must_use]
    pub fn after(mut self, job: Option<JobId>) -> Self {
        if let Self::Matching { after, .. } = &mut self {
            *after = job;
        }
        self
    }

    /// Checks the selection and the action. The limit must not be 0, the number of jobs must not be
    /// too high, and the store must be able to store the values of the action.
    ///
    /// # Errors
    /// Fails with [`StoreErrorKind::Invalid`] if a check fails.
    pub fn validate(&self, action: JobAction) -> Result<(), StoreError> {
        match self {
            Self::Ids(ids) => limits::check_batch("ids", ids.len()),
            Self::Matching { limit, .. } => limits::check_limit("limit", *limit),
        }
        .and_then(|()| action.validate())
        .map_err(|problem| StoreError::new(StoreErrorKind::Invalid, "act").with_source(problem))
    }
}

/// The outcome of an action for one of the selected jobs.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// The id of the job.
    pub job: JobId,
    /// The outcome of the action for this job.
    pub outcome: ActionOutcome,
}

/// The effect of an action on one job.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum ActionOutcome {
    /// The job now has this state.
    Became(JobState),
    /// The job is running. Its node was asked to cancel it.
    CancelRequested,
    /// The action changed the job, and the state of the job stayed the same.
    Changed,
    /// The action deleted the job.
    Deleted,
    /// The action does not apply to a job in this state. Nothing changed.
    Refused(JobState),
    /// The unfinished job with this id now holds the unique key of the selected job. Nothing
    /// changed.
    KeyTaken(JobId),
    /// No job with this id exists.
    NotFound,
}
