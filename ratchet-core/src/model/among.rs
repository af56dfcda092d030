use super::JobFilter;
use crate::state::JobState;

/// Which jobs a database store searches for a listing: the smallest set that contains the result.
///
/// In a busy system, nearly all jobs have succeeded. The others are found by indexes that other
/// statements need anyway, however many jobs have succeeded.
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
    /// All jobs. A store also uses this for a variant that a later version adds.
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
