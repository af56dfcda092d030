use super::JobFilter;
use crate::state::JobState;

/// The set of jobs that a database store searches to list the matches of a filter. The set contains
/// every match, and is usually much smaller than the set of all jobs.
///
/// In a busy system, nearly all jobs have succeeded. If a filter matches no succeeded jobs, a store
/// can search an index that does not contain succeeded jobs. Stores need such indexes for other
/// statements anyway. The cost of the search then does not grow with the number of succeeded jobs.
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
    /// The jobs of the batch that the filter selects.
    Batch,
    /// The jobs with the tag that the filter selects.
    Tagged,
    /// The jobs that have not ended.
    Unfinished,
    /// The jobs that failed or were cancelled.
    Ended,
    /// All jobs. A later version may add variants to this enum. A store must treat a variant that
    /// it does not know like this one.
    All,
}

impl Among {
    /// Returns the set of jobs that contains all matches of this filter.
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

    /// Returns how many jobs, in the order of the listing, a store reads first to find `wanted`
    /// unfinished jobs. If most jobs are unfinished, the store finds enough among them, and need
    /// not read its index of all unfinished jobs.
    #[must_use]
    pub const fn front(wanted: usize) -> usize {
        wanted.saturating_mul(4).saturating_add(1_000)
    }
}
