use std::collections::BTreeMap;
use std::fmt;

use ratchet_core::model::StateCounts;
use ratchet_core::state::{self, Response};
use ratchet_core::{JobState, Priority};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a job.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The job waits until it is due and a node claims it.
    Pending,
    /// The job waits for earlier jobs in its lane, for other jobs or batches, or for a signal.
    Blocked,
    /// An operator paused the job.
    Paused,
    /// A node has claimed the job.
    Running,
    /// The job succeeded.
    Succeeded,
    /// The job has failed and is a dead letter.
    Failed,
    /// The job was cancelled.
    Cancelled,
}

/// A `State` can be converted to and from a [`JobState`]. Its text is the name of the state in
/// lower case.
///
/// ```
/// use ratchet_core::JobState;
/// use ratchet_http::view::State;
///
/// let state = State::from(JobState::Failed);
/// assert_eq!(state.to_string(), "failed");
/// ```
impl State {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Blocked,
        Self::Paused,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];
}

impl From<JobState> for State {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Pending => Self::Pending,
            JobState::Blocked => Self::Blocked,
            JobState::Paused => Self::Paused,
            JobState::Running => Self::Running,
            JobState::Succeeded => Self::Succeeded,
            JobState::Failed => Self::Failed,
            JobState::Cancelled => Self::Cancelled,
        }
    }
}

impl From<State> for JobState {
    fn from(state: State) -> Self {
        match state {
            State::Pending => Self::Pending,
            State::Blocked => Self::Blocked,
            State::Paused => Self::Paused,
            State::Running => Self::Running,
            State::Succeeded => Self::Succeeded,
            State::Failed => Self::Failed,
            State::Cancelled => Self::Cancelled,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        JobState::from(*self).fmt(f)
    }
}

/// Number of jobs in each of the seven states. States without jobs are included, with the number 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Counts(pub BTreeMap<State, u64>);

impl From<&StateCounts> for Counts {
    fn from(counts: &StateCounts) -> Self {
        let of = |state: State| counts.get(&state.into()).copied().unwrap_or(0);
        Self(State::ALL.map(|state| (state, of(state))).into())
    }
}

/// Stored priority of a job, from level 0 (lowest) to level 4 (critical).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Level 0, the lowest priority.
    Lowest,
    /// Level 1, a low priority.
    Low,
    /// Level 2, the normal priority.
    Normal,
    /// Level 3, a high priority.
    High,
    /// Level 4, the highest priority.
    Critical,
}

impl From<Priority> for Level {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Lowest => Self::Lowest,
            Priority::Low => Self::Low,
            Priority::Normal => Self::Normal,
            Priority::High => Self::High,
            Priority::Critical => Self::Critical,
        }
    }
}

/// An operator's action on a job.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// Requeues a dead letter: the job waits to be claimed again, and its number of attempts is
    /// reset to 0.
    Retry,
    /// Cancels a job. A waiting job is cancelled at once. If the job is running, its handler gets a
    /// request to cancel the job.
    Cancel,
    /// Pauses a pending job.
    Pause,
    /// Makes a paused job pending again.
    Resume,
    /// Deletes an ended job and its history.
    Delete,
}

/// Names of the actions, and the actions that are allowed in each state.
///
/// ```
/// use ratchet_core::JobState;
/// use ratchet_http::view::JobAction;
///
/// let actions = JobAction::legal(JobState::Failed);
/// assert_eq!(actions, [JobAction::Retry, JobAction::Delete]);
/// assert_eq!(JobAction::Retry.as_str(), "retry");
/// ```
impl JobAction {
    /// All actions.
    pub const ALL: [Self; 5] = [
        Self::Retry,
        Self::Cancel,
        Self::Pause,
        Self::Resume,
        Self::Delete,
    ];

    /// Returns the name of the action in URLs and request bodies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Delete => "delete",
        }
    }

    /// Returns the actions that are allowed for a job in this state.
    #[must_use]
    pub fn legal(state: JobState) -> Vec<Self> {
        let means = |action: &Self| state.respond((*action).into()) != Response::Refuse;
        Self::ALL.into_iter().filter(means).collect()
    }
}

impl From<JobAction> for state::JobAction {
    fn from(action: JobAction) -> Self {
        match action {
            JobAction::Retry => Self::Requeue,
            JobAction::Cancel => Self::Cancel,
            JobAction::Pause => Self::Pause,
            JobAction::Resume => Self::Resume,
            JobAction::Delete => Self::Delete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_words_of_the_core() {
        for state in JobState::ALL {
            let view = State::from(state);
            assert_eq!(JobState::from(view), state);
            let word = serde_json::to_string(&view).unwrap();
            assert_eq!(word, format!("\"{state}\""));
        }
        for priority in Priority::ALL {
            let word = serde_json::to_string(&Level::from(priority)).unwrap();
            assert_eq!(word, format!("\"{priority}\""));
        }
        for action in JobAction::ALL {
            let word = serde_json::to_string(&action).unwrap();
            assert_eq!(word, format!("\"{}\"", action.as_str()));
        }
    }

    #[test]
    fn counts_show_every_state() {
        let counts = Counts::from(&StateCounts::from([(JobState::Failed, 3)]));
        let json = serde_json::to_value(counts).unwrap();
        assert_eq!(json["failed"], 3);
        assert_eq!(json["pending"], 0);
        assert_eq!(json.as_object().unwrap().len(), 7);
    }

    #[test]
    fn only_actions_that_mean_something_are_offered() {
        let legal = JobAction::legal;
        assert_eq!(legal(JobState::Running), [JobAction::Cancel]);
        let dead = [JobAction::Retry, JobAction::Delete];
        assert_eq!(legal(JobState::Failed), dead);
        let waiting = [JobAction::Cancel, JobAction::Pause];
        assert_eq!(legal(JobState::Pending), waiting);
    }
}
