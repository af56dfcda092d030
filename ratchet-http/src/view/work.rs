use ratchet_core::store;
use schemars::JsonSchema;
use serde::Serialize;

use super::State;

/// The outcome of an action on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Acted {
    /// The outcome.
    pub outcome: ActedOutcome,
    /// The state the job has now, if it became another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
}

/// See [`Acted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActedOutcome {
    /// It has another state.
    Became,
    /// It runs; its node will be told to cancel it.
    CancelRequested,
    /// It has what the action gives it, and its state as before.
    Changed,
    /// It is gone.
    Deleted,
}

/// The outcome of an action on many jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BulkDone {
    /// Jobs that have another state now, or are deleted.
    pub changed: u64,
    /// Running jobs whose nodes will be told to cancel them.
    pub cancel_requested: u64,
    /// Dead letters that could not be retried, since another job has their unique key.
    pub key_taken: u64,
    /// Jobs that were named and could not take the action, or do not exist; those that a filter
    /// matches are passed over and not counted.
    pub refused: u64,
    /// Whether no matching job was left. If not, the limit or the time was reached first.
    pub complete: bool,
    /// The value of `after` to continue; null if it is complete.
    pub next: Option<String>,
}

/// Whether a request changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Changed {
    /// False: everything was already as asked for.
    pub changed: bool,
}

impl From<store::Changed> for Changed {
    fn from(changed: store::Changed) -> Self {
        Self {
            changed: changed == store::Changed::Changed,
        }
    }
}

/// The job that a recurring definition was told to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Triggered {
    /// The job.
    pub job: String,
    /// False if an earlier job of the definition has not ended; `job` is then that one.
    pub created: bool,
}
