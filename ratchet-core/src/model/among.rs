use super::JobFilter;
use crate::state::JobState;

/// Where a database store looks for the jobs of a listing: what is rare, not among all jobs.
///
/// Of the jobs of a busy system nearly all have succeeded. Those that have not are found by the
/// indexes that other statements need, whatever is in front of them.
///
/// ```
/// use ratchet::JobState;
/// use ratchet::{Among, JobFilter};
///
/// let filter = JobFilter::all().state(JobState::Paused).state(JobState::Blocked);
/// assert_eq!(Among::of(&filter), Among::Unfinished);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Among {
    /// The jobs of the batch that the filter names.
    Batch,
    /// The jobs with the tag that the filter names.
    Tagged,
    /// The unfinished jobs.
    Unfinished,
    /// The jobs that have failed or were cancelled.
    Ended,
    /// All jobs; also what stands for a place that a later version adds.
    All,
}

impl Among {
    /// Returns where to look for jobs that match this filter.
    #[must_use]
    pub fn of(filter: &JobFilter) -> Self {
        let states = filter.wanted_states();
        let ended = |state: &JobState| matches!(state, JobState::Failed | JobState::Cancelled);
        if filter.batch.is_some() {
            Self::Batch
        } else if filter.tag.is_some() {
            Self::Tagged
        } else if states.iter().all(|state| !state.is_terminal()) {
            Self::Unfinished
        } else if states.iter().all(ended) {
            Self::Ended
        } else {
            Self::All
        }
    }

    /// Among how many jobs, in the order of the listing, to look for `wanted` unfinished ones
    /// before all unfinished ones are read: where most jobs are unfinished these are enough.
    #[must_use]
    pub const fn front(wanted: usize) -> usize {
        wanted.saturating_mul(4).saturating_add(1_000)
    }
}
