use ratchet_core::store;
use schemars::JsonSchema;
use serde::Serialize;

use super::State;

/// Outcome of an action on one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Acted {
    /// Effect of the action on the job.
    pub outcome: ActedOutcome,
    /// New state of the job. Missing unless `outcome` is `became`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
}

/// Effect of an action on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActedOutcome {
    /// The action changed the state of the job.
    Became,
    /// The action requested the cancellation of a running job. The node that runs the job will
    /// receive the request.
    CancelRequested,
    /// The action changed the job, but not its state.
    Changed,
    /// The action deleted the job.
    Deleted,
}

/// Outcome of an action on many jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BulkDone {
    /// Number of jobs that the action changed or deleted.
    pub changed: u64,
    /// Number of running jobs whose cancellation the action requested. The nodes that run these
    /// jobs will receive the requests.
    pub cancel_requested: u64,
    /// Number of dead letters that were not retried, because an unfinished job has the same unique
    /// key.
    pub key_taken: u64,
    /// Number of jobs that were selected by id, and that do not exist or are in a state that does
    /// not allow the action.
    ///
    /// If the jobs were selected by a filter, this number is 0. Jobs whose state does not allow the
    /// action are then skipped.
    pub refused: u64,
    /// Whether the action was applied to all selected jobs. If false, the request first reached its
    /// maximum number of jobs or its timeout.
    pub complete: bool,
    /// Value of the parameter `after` for a request that continues the action. Null if `complete`
    /// is true.
    pub next: Option<String>,
}

/// Response to a request that sets a state, such as pausing a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Changed {
    /// Whether the request changed the state. False if the requested state was already in effect.
    pub changed: bool,
}

impl From<store::Changed> for Changed {
    fn from(changed: store::Changed) -> Self {
        Self {
            changed: changed == store::Changed::Changed,
        }
    }
}

/// Result of triggering a recurring definition by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Triggered {
    /// Id of the job that the trigger created. If `created` is false, the id of an earlier job of
    /// the definition.
    pub job: String,
    /// Whether the trigger created a job. If false, an earlier job of the definition has not ended,
    /// and the overlap policy of the definition allows only one unfinished job.
    pub created: bool,
}
