use ratchet_core::store;
use schemars::JsonSchema;
use serde::Serialize;

use super::State;

/// The outcome of an action on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Acted {
    /// What the action did.
    pub outcome: ActedOutcome,
    /// The new state of the job; missing unless the outcome is `became`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
}

/// What an action did to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActedOutcome {
    /// The job has a new state.
    Became,
    /// The job is running, and its node will get the request to cancel it.
    CancelRequested,
    /// The job was changed, but its state is the same.
    Changed,
    /// The job was deleted.
    Deleted,
}

/// The outcome of an action on many jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BulkDone {
    /// The number of jobs that were changed or deleted.
    pub changed: u64,
    /// The number of running jobs whose nodes will get the request to cancel them.
    pub cancel_requested: u64,
    /// The number of dead letters that could not be retried because an unfinished job has their
    /// unique key.
    pub key_taken: u64,
    /// The number of jobs selected by id that do not exist or whose state does not allow the
    /// action. Jobs selected by a filter are skipped if their state does not allow it, and are not
    /// counted.
    pub refused: u64,
    /// Whether the action was applied to all matching jobs. If false, the limit or the timeout was
    /// reached first.
    pub complete: bool,
    /// The value of `after` for a request that continues; null if `complete` is true.
    pub next: Option<String>,
}

/// Whether a request changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Changed {
    /// False if the requested state was in effect already.
    pub changed: bool,
}

impl From<store::Changed> for Changed {
    fn from(changed: store::Changed) -> Self {
        Self {
            changed: changed == store::Changed::Changed,
        }
    }
}

/// The job that a trigger of a recurring definition enqueued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Triggered {
    /// The id of the job.
    pub job: String,
    /// Whether the job is new. If false, an earlier job of the definition has not ended, and `job`
    /// is its id.
    pub created: bool,
}
