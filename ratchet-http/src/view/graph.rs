use ratchet_core::JobState;
use ratchet_core::model::{self, After, BatchCondition, Condition, Link, Parent};
use schemars::JsonSchema;
use serde::Serialize;

use super::State;

/// The dependency graph of a job: the jobs and batches that it waits for, and the jobs that wait
/// for it, directly or indirectly.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Graph {
    /// The jobs and batches. The requested job is first.
    pub nodes: Vec<GraphNode>,
    /// The links between them.
    pub edges: Vec<Edge>,
    /// Whether jobs or batches may be missing because the limit was reached.
    pub truncated: bool,
}

/// A job or a batch of a [`Graph`].
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GraphNode {
    /// The id of the job or batch.
    pub id: String,
    /// Whether this is a job or a batch.
    #[serde(rename = "type")]
    pub vertex: Vertex,
    /// The kind of the job; null for a batch, or a job that no longer exists.
    pub kind: Option<String>,
    /// The state of the job; null for a batch, or a job that no longer exists.
    pub state: Option<State>,
}

impl GraphNode {
    /// Creates the node of a job. `known` is `None` if the job no longer exists.
    #[must_use]
    pub fn job(id: ratchet_core::JobId, known: Option<(&ratchet_core::Name, JobState)>) -> Self {
        Self {
            id: id.to_string(),
            vertex: Vertex::Job,
            kind: known.map(|(kind, _)| kind.to_string()),
            state: known.map(|(_, state)| state.into()),
        }
    }

    /// Creates the node of a batch.
    #[must_use]
    pub fn batch(id: ratchet_core::BatchId) -> Self {
        Self {
            id: id.to_string(),
            vertex: Vertex::Batch,
            kind: None,
            state: None,
        }
    }
}

/// Whether a node of a [`Graph`] is a job or a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Vertex {
    /// A job.
    Job,
    /// A batch.
    Batch,
}

/// One link: a job waits for a job or a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Edge {
    /// The job or batch that is waited for.
    pub from: String,
    /// The job that waits.
    pub to: String,
    /// How the job or batch `from` must end: `succeeded`, `failed`, `ended`, `result_is <pointer>`,
    /// `failures_reach <n>` or `succeeded_at_least <percent>`; `other` for a condition that this
    /// version does not know.
    pub condition: String,
    /// The state of the link.
    pub state: LinkState,
}

impl From<&Link> for Edge {
    fn from(link: &Link) -> Self {
        Self {
            from: match link.after.parent() {
                Parent::Job(job) => job.to_string(),
                Parent::Batch(batch) => batch.to_string(),
            },
            to: link.child.to_string(),
            condition: condition(&link.after),
            state: link.state.into(),
        }
    }
}

/// Returns the condition as a text. Leaves out the value that a result must equal, because results
/// may be confidential.
fn condition(after: &After) -> String {
    let other = || "other".to_owned();
    match after {
        After::Job { condition, .. } => match condition {
            Condition::Succeeded => "succeeded".to_owned(),
            Condition::Failed => "failed".to_owned(),
            Condition::Ended => "ended".to_owned(),
            Condition::ResultIs { pointer, .. } => format!("result_is {pointer}"),
            _ => other(),
        },
        After::Batch { condition, .. } => match condition {
            BatchCondition::Succeeded => "succeeded".to_owned(),
            BatchCondition::Failed => "failed".to_owned(),
            BatchCondition::Ended => "ended".to_owned(),
            BatchCondition::FailuresReach(count) => format!("failures_reach {count}"),
            BatchCondition::SucceededAtLeast { percent } => {
                format!("succeeded_at_least {percent}")
            }
            _ => other(),
        },
    }
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// It is not decided yet whether the condition is met.
    Open,
    /// The condition is met.
    Met,
    /// The condition can no longer be met.
    Unmet,
}

impl From<model::LinkState> for LinkState {
    fn from(state: model::LinkState) -> Self {
        match state {
            model::LinkState::Open => Self::Open,
            model::LinkState::Met => Self::Met,
            model::LinkState::Unmet => Self::Unmet,
        }
    }
}

#[cfg(test)]
mod tests {
    use ratchet_core::JobId;

    use super::*;

    #[test]
    fn a_condition_on_a_result_does_not_tell_its_value() {
        let after = After::Job {
            parent: JobId::new(),
            condition: Condition::result_is("/size", &"secret"),
        };
        assert_eq!(condition(&after), "result_is /size");
    }
}
