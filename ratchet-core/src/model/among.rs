use super::JobFilter;
use crate::state::JobState;

/// The set of jobs that a database store searches for a listing: the smallest one that contains
/// every match.
///
/// In a busy system, nearly all jobs have succeeded. A store finds the other jobs by indexes that
/// it needs for other statements anyway, and at a cost that does not grow with the number of
/// succeeded jobs.
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
    /// The jobs that failed or were cancelled.
    Ended,
    /// All jobs. A store that does not know a variant of a later version also searches all jobs.
    All,
}

impl Among {
    /// Returns the set of jobs to search for matches of this filter.
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

    /// Returns how many jobs to read first, in the order of the listing, when looking for `wanted`
    /// unfinished ones. If most jobs are unfinished, this finds enough of them, and the index of
    /// all unfinished jobs need not be read.
    #[must_use]
    pub const fn front(wanted: usize) -> usize {
        wanted.saturating_mul(4).saturating_add(1_000)
    }
}
