//! Acting on jobs from outside: which ones, and what became of it.

use crate::error::{StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::limits;
use crate::model::JobFilter;
use crate::state::JobState;

/// The jobs an action is meant for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JobSelector {
    /// Exactly these.
    Ids(Vec<JobId>),
    /// The oldest `limit` jobs that match the filter and can take the action.
    Matching {
        /// Which jobs.
        filter: JobFilter,
        /// The most to act on; at least 1.
        limit: usize,
    },
}

impl JobSelector {
    /// Refuses a limit of 0 and too many jobs, as every store does first.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`].
    pub fn validate(&self) -> Result<(), StoreError> {
        match self {
            Self::Ids(ids) => limits::check_batch("ids", ids.len()),
            Self::Matching { limit, .. } => limits::check_limit("limit", *limit),
        }
        .map_err(|problem| StoreError::new(StoreErrorKind::Invalid, "act").with_source(problem))
    }
}

/// What an action did to one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acted {
    /// The job.
    pub job: JobId,
    /// What became of it.
    pub outcome: ActionOutcome,
}

/// See [`Acted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActionOutcome {
    /// The job now has this state.
    Became(JobState),
    /// The job runs; its node will be told to cancel it.
    CancelRequested,
    /// The action has no meaning in the job's state, this one; nothing changed.
    Refused(JobState),
    /// Another unfinished job, this one, took the unique key meanwhile; nothing changed.
    KeyTaken(JobId),
    /// There is no such job.
    NotFound,
}
