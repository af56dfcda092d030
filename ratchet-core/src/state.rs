//! The states of a job and the table of legal transitions between them.
//!
//! ```text
//!            ┌──────── requeue ────────┐
//!            ▼                         │
//! Blocked ─▶ Pending ──claim──▶ Running ──▶ Failed
//!    │        ▲  │ ▲              │ │ └───▶ Succeeded
//!    │  resume│  │ └─retry, snooze┘ └─────▶ Cancelled
//!    ▼        │  ▼     release, reclaim        ▲
//!    └──────▶ Paused ──────── cancel ──────────┘
//! ```
//!
//! The diagram leaves out some transitions. A dead letter that is requeued becomes Blocked if its
//! lane has other unfinished jobs, or if it still has open links or an undelivered signal. A
//! blocked job whose signal does not come in time becomes Failed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::due::RunAt;
use crate::error::InvalidInput;
use crate::priority::Priority;

/// The state of a job.
///
/// ```
/// use ratchet::JobState;
///
/// assert!(JobState::Failed.is_terminal());
/// assert_eq!(JobState::Failed.to_string(), "failed");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job waits for a node to claim it, which is possible once the job is due.
    Pending = 0,
    /// The job waits for something other than its due time: for earlier jobs of its lane, for the
    /// jobs and batches that it is linked to, or for a signal.
    Blocked = 1,
    /// An operator paused the job. It is not claimed until it is resumed.
    Paused = 2,
    /// A node has claimed the job.
    Running = 3,
    /// The job ended with success. Terminal.
    Succeeded = 4,
    /// The job failed for good and is a dead letter. Terminal until an operator requeues it.
    Failed = 5,
    /// The job was cancelled: by request, because one of its links became unmet, or because it
    /// expired. Terminal.
    Cancelled = 6,
}

impl JobState {
    /// Every state, in the order of [`code`](Self::code).
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Blocked,
        Self::Paused,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns the number that stores keep for the state.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the state with this stored number.
    ///
    /// # Errors
    /// [`InvalidInput`] if no state has this number.
    pub fn from_code(code: i64) -> Result<Self, InvalidInput> {
        usize::try_from(code)
            .ok()
            .and_then(|code| Self::ALL.get(code).copied())
            .ok_or_else(|| InvalidInput::new("state", format!("{code} is not a job state")))
    }

    /// Returns whether a job in this state has ended. A job that has ended is never claimed, and
    /// its unique key is free again.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Returns whether a job in this state waits: it has not ended, and no node has claimed it.
    #[must_use]
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Pending | Self::Blocked | Self::Paused)
    }

    /// Returns `to` if a job may change from this state to the state `to`.
    ///
    /// # Errors
    /// [`IllegalTransition`] if a job may not make this change.
    pub const fn transition(self, to: Self) -> Result<Self, IllegalTransition> {
        let legal = match self {
            Self::Pending => matches!(to, Self::Running | Self::Paused | Self::Cancelled),
            Self::Blocked => {
                matches!(
                    to,
                    Self::Pending | Self::Paused | Self::Cancelled | Self::Failed
                )
            }
            Self::Paused => matches!(to, Self::Pending | Self::Blocked | Self::Cancelled),
            Self::Running => matches!(
                to,
                Self::Pending | Self::Succeeded | Self::Failed | Self::Cancelled
            ),
            Self::Failed => matches!(to, Self::Pending | Self::Blocked),
            Self::Succeeded | Self::Cancelled => false,
        };
        if legal {
            Ok(to)
        } else {
            Err(IllegalTransition { from: self, to })
        }
    }

    /// Returns the effect of an operator's action on a job in this state.
    #[must_use]
    pub const fn respond(self, action: JobAction) -> Response {
        match (action, self) {
            (JobAction::Cancel, Self::Pending | Self::Blocked | Self::Paused) => {
                Response::Become(Self::Cancelled)
            }
            (JobAction::Cancel, Self::Running) => Response::RequestCancel,
            (JobAction::Requeue, Self::Failed) | (JobAction::Resume, Self::Paused) => {
                Response::Become(Self::Pending)
            }
            (JobAction::Pause, Self::Pending) => Response::Become(Self::Paused),
            (JobAction::Reschedule(_), Self::Pending | Self::Blocked | Self::Paused) => {
                Response::Change
            }
            (JobAction::SetPriority(_), state) if !state.is_terminal() => Response::Change,
            (JobAction::Delete, state) if state.is_terminal() => Response::Remove,
            _ => Response::Refuse,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pending => "pending",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// An operator's action on a job.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{JobAction, JobSelector, NewJob, Priority, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let id = client.enqueue(NewJob::new("mail", &1)).await?.id();
/// let selector = JobSelector::Ids(vec![id]);
/// client.act(&selector, JobAction::SetPriority(Priority::High)).await?;
/// client.act(&selector, JobAction::Cancel).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// Cancels the job. A waiting job ends at once. A running job is asked to stop.
    Cancel,
    /// Makes a dead letter pending again: the job is due now, its attempts and crashes are zero,
    /// and its error and its expiry are cleared.
    ///
    /// A job in a lane goes to the end of the lane, with a new sequence number, because the lane
    /// continued without the job when it failed. If the lane has other unfinished jobs, the
    /// requeued job becomes `Blocked` instead of pending, and the result of the call reports this.
    ///
    /// A job with open links, or whose signal was never delivered, becomes `Blocked` too. A job
    /// whose signal was never delivered waits for it again, with the full timeout.
    Requeue,
    /// Pauses a pending job, so it is not claimed until it is resumed. If the job is the head of a
    /// lane, the other jobs of the lane wait. Jobs whose links depend on the paused job wait too. A
    /// `Blocked` job cannot be paused.
    Pause,
    /// Makes a paused job pending again. The job keeps its `run_at`.
    Resume,
    /// Changes the due time of a waiting job. The job stays pending, paused or blocked, and the
    /// head of a lane stays the head.
    Reschedule(RunAt),
    /// Changes the priority of an unfinished job. A running job keeps its claim, and the new
    /// priority applies when the job waits again.
    SetPriority(Priority),
    /// Deletes an ended job with its history and its tags. Its idempotency key stays used.
    ///
    /// Unlike [`Retention`](crate::Retention), this action also deletes a job whose children have
    /// not ended. The links of the children stay decided. A child that runs later can no longer
    /// read the result of the deleted job: [`ParentJob::record`](crate::handler::ParentJob::record)
    /// is `None`. No new job can be linked to the deleted job.
    Delete,
}

impl JobAction {
    /// Every action. Actions with a value are listed with an example value.
    pub const ALL: [Self; 7] = [
        Self::Cancel,
        Self::Requeue,
        Self::Pause,
        Self::Resume,
        Self::Reschedule(RunAt::Now),
        Self::SetPriority(Priority::Critical),
        Self::Delete,
    ];

    /// Checks that the store can keep the value of the action, such as the due time in
    /// [`Reschedule`](Self::Reschedule).
    ///
    /// # Errors
    /// The errors of [`RunAt::validate`].
    pub fn validate(self) -> Result<(), InvalidInput> {
        match self {
            Self::Reschedule(due) => due.validate(),
            _ => Ok(()),
        }
    }

    /// Returns whether a job that was not due may be due after this action.
    #[must_use]
    pub const fn may_make_due(self) -> bool {
        match self {
            Self::Requeue | Self::Resume => true,
            Self::Reschedule(due) => !matches!(due, RunAt::In(delay) if !delay.is_zero()),
            _ => false,
        }
    }
}

/// The effect of an action on a job, as [`JobState::respond`] returns it.
///
/// ```
/// use ratchet::{JobAction, JobState, Response};
///
/// let cancels = |state: JobState| state.respond(JobAction::Cancel);
/// assert_eq!(cancels(JobState::Pending), Response::Become(JobState::Cancelled));
/// assert_eq!(cancels(JobState::Running), Response::RequestCancel);
/// assert_eq!(cancels(JobState::Succeeded), Response::Refuse);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The job changes to this state at once.
    Become(JobState),
    /// The job keeps its state, and the node that runs the job is asked to cancel it.
    RequestCancel,
    /// The job keeps its state, and the action's new value is stored.
    Change,
    /// The job is deleted.
    Remove,
    /// The action does not apply in this state. Nothing changes.
    Refuse,
}

/// The error of [`JobState::transition`] for a change of state that is not allowed.
///
/// ```
/// use ratchet::JobState;
///
/// let refused = JobState::Succeeded.transition(JobState::Pending);
/// let text = refused.map_err(|illegal| illegal.to_string());
/// assert_eq!(text, Err("a succeeded job cannot become pending".to_owned()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {from} job cannot become {to}")]
pub struct IllegalTransition {
    /// The current state of the job.
    pub from: JobState,
    /// The state to which the job cannot change.
    pub to: JobState,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::from_millis;

    #[test]
    fn terminal_states_absorb_but_for_requeued_dead_letters() {
        for from in JobState::ALL
            .into_iter()
            .filter(|state| state.is_terminal())
        {
            for to in JobState::ALL {
                let requeued = matches!(to, JobState::Pending | JobState::Blocked);
                let requeue = from == JobState::Failed && requeued;
                assert_eq!(from.transition(to).is_ok(), requeue, "{from} to {to}");
            }
        }
    }

    #[test]
    fn only_a_pending_job_can_be_claimed() {
        for from in JobState::ALL {
            let claimable = from.transition(JobState::Running).is_ok();
            assert_eq!(claimable, from == JobState::Pending);
        }
    }

    #[test]
    fn actions_only_make_legal_changes() {
        for from in JobState::ALL {
            for action in JobAction::ALL {
                if let Response::Become(to) = from.respond(action) {
                    assert_eq!(
                        from.transition(to),
                        Ok(to),
                        "unexpected transition of a {from} job \
                         by {action:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_table_of_actions_and_states() {
        let (pending, cancelled) = (JobState::Pending, JobState::Cancelled);
        let (become_, refuse) = (Response::Become, Response::Refuse);
        let (change, remove) = (Response::Change, Response::Remove);
        let end = become_(cancelled);
        // Pending, blocked, paused, running, succeeded, failed, cancelled.
        let table = [
            [
                end,
                end,
                end,
                Response::RequestCancel,
                refuse,
                refuse,
                refuse,
            ],
            [
                refuse,
                refuse,
                refuse,
                refuse,
                refuse,
                become_(pending),
                refuse,
            ],
            [
                become_(JobState::Paused),
                refuse,
                refuse,
                refuse,
                refuse,
                refuse,
                refuse,
            ],
            [
                refuse,
                refuse,
                become_(pending),
                refuse,
                refuse,
                refuse,
                refuse,
            ],
            [change, change, change, refuse, refuse, refuse, refuse],
            [change, change, change, change, refuse, refuse, refuse],
            [refuse, refuse, refuse, refuse, remove, remove, remove],
        ];
        for (action, responses) in JobAction::ALL.into_iter().zip(table) {
            for (state, response) in JobState::ALL.into_iter().zip(responses) {
                assert_eq!(
                    state.respond(action),
                    response,
                    "unexpected response to {action:?} of a {state} job"
                );
            }
        }
    }

    #[test]
    fn only_actions_that_may_make_a_job_due_wake_nodes() {
        let now = [
            RunAt::Now,
            RunAt::In(Duration::ZERO),
            RunAt::At(from_millis(9)),
        ];
        let makes_due = [JobAction::Requeue, JobAction::Resume].into_iter();
        for action in makes_due.chain(now.map(JobAction::Reschedule)) {
            assert!(action.may_make_due(), "{action:?}");
        }
        let later = RunAt::In(Duration::from_millis(1));
        for action in [
            JobAction::Reschedule(later),
            JobAction::SetPriority(Priority::Critical),
            JobAction::Cancel,
            JobAction::Delete,
        ] {
            assert!(!action.may_make_due(), "{action:?}");
        }
    }

    #[test]
    fn codes_round_trip() {
        for state in JobState::ALL {
            assert_eq!(JobState::from_code(state.code().into()), Ok(state));
        }
        assert!(JobState::from_code(7).is_err());
    }
}
