//! Acting on jobs from outside: which ones, and what became of it.

use crate::error::{StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::limits;
use crate::model::{JobFilter, JobOrder, PageRequest};
use crate::state::{JobAction, JobState, Response};

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
        /// Only jobs behind this one, so that passes go on where the last one ended.
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

    /// Of the jobs that match a filter only those behind this one. Ids stay as they are.
    #[must_use]
    pub fn after(mut self, job: Option<JobId>) -> Self {
        if let Self::Matching { after, .. } = &mut self {
            *after = job;
        }
        self
    }

    /// Refuses a limit of 0, too many jobs, and actions with values that cannot be stored, as every
    /// store does first.
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

/// Which jobs of a [`JobSelector::Matching`] a store tries to act on: a page at a time, the oldest first,
/// until it has acted on one.
#[derive(Clone, Debug)]
pub struct ActSelection {
    /// The states that the filter lets through and that can take the action.
    pub states: Vec<JobState>,
    /// The page to select.
    pub page: PageRequest,
}

impl ActSelection {
    /// Builds the selection of the first page.
    #[must_use]
    pub fn new(filter: &JobFilter, after: Option<JobId>, limit: usize, action: JobAction) -> Self {
        let mut states = filter.wanted_states();
        states.retain(|state| state.respond(action) != Response::Refuse);
        let page = PageRequest::first(limit).order(JobOrder::OldestFirst);
        Self {
            states,
            page: page.after(after),
        }
    }

    /// Returns the answer to the call, given what became of the jobs of the page. `None` if other calls
    /// changed or deleted all of them first: an empty answer would say that no job matches, so the
    /// selection moves on to the next page.
    pub fn finish(&mut self, mut acted: Vec<Acted>) -> Option<Vec<Acted>> {
        let last = acted.iter().map(|one| one.job).max();
        acted.retain(|one| {
            !matches!(
                one.outcome,
                ActionOutcome::Refused(_) | ActionOutcome::NotFound
            )
        });
        if acted.is_empty() && last.is_some() {
            self.page.after = last;
            return None;
        }
        Some(acted)
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
    /// The job has what the action gives it, and its state as before.
    Changed,
    /// The job is gone.
    Deleted,
    /// The action has no meaning in the job's state, this one; nothing changed.
    Refused(JobState),
    /// Another unfinished job, this one, took the unique key meanwhile; nothing changed.
    KeyTaken(JobId),
    /// There is no such job.
    NotFound,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_states_that_can_take_the_action_are_selected() {
        let states = |filter: &JobFilter, action| ActSelection::new(filter, None, 5, action).states;
        let all = JobFilter::all();
        for action in [JobAction::Cancel, JobAction::Requeue, JobAction::Delete] {
            let expected = JobState::ALL
                .into_iter()
                .filter(|state| state.respond(action) != Response::Refuse);
            assert_eq!(
                states(&all, action),
                expected.collect::<Vec<_>>(),
                "{action:?}"
            );
        }
        let filter = all.state(JobState::Failed).state(JobState::Running);
        assert_eq!(states(&filter, JobAction::Requeue), [JobState::Failed]);
    }

    #[test]
    fn a_page_that_other_calls_took_is_followed_by_the_next() {
        let after = Some(JobId::new());
        let filter = JobFilter::all();
        let mut selection = ActSelection::new(&filter, after, 5, JobAction::Cancel);
        assert_eq!((selection.page.after, selection.page.limit), (after, 5));
        assert_eq!(selection.page.order, JobOrder::OldestFirst);
        let acted = |outcome| Acted {
            job: JobId::new(),
            outcome,
        };
        let refused = acted(ActionOutcome::Refused(JobState::Succeeded));
        let gone = acted(ActionOutcome::NotFound);
        let done = acted(ActionOutcome::Became(JobState::Cancelled));
        assert_eq!(selection.finish(vec![refused, gone]), None);
        assert_eq!(selection.page.after, Some(gone.job));
        assert_eq!(
            selection.finish(vec![refused, done, gone]),
            Some(vec![done])
        );
        assert_eq!(selection.finish(Vec::new()), Some(Vec::new()));
    }
}
