use ratchet_core::JobState;
use ratchet_core::model::{self, After, BatchCondition, Condition, Link, Parent};
use schemars::JsonSchema;
use serde::Serialize;

use super::State;

/// Dependency graph of a job: the jobs and batches that are connected to the job by links, directly
/// or through other jobs and batches.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Graph {
    /// Nodes of the graph: the jobs and batches. The job whose graph was requested is first.
    pub nodes: Vec<GraphNode>,
    /// Edges of the graph: the links between the jobs and batches in `nodes`.
    pub edges: Vec<Edge>,
    /// Whether jobs or batches may be missing, because the graph has reached its maximum size.
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
    /// Kind of the job. Null for a batch, and for a job that no longer exists.
    pub kind: Option<String>,
    /// State of the job. Null for a batch, and for a job that no longer exists.
    pub state: Option<State>,
}

impl GraphNode {
    /// Creates the node of a job. `known` contains the kind and the state of the job. It is `None`
    /// if the job no longer exists.
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

/// Link in a [`Graph`]: the job `to` waits for the job or batch `from`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Edge {
    /// Id of the job or batch for which the job `to` waits.
    pub from: String,
    /// Id of the waiting job.
    pub to: String,
    /// How the job or batch `from` must end: `succeeded`, `failed`, `ended`, `result_is <pointer>`,
    /// `result_is_not <pointer>`, `result_less <pointer>` (or `at_most`, `at_least`, `greater`),
    /// `first_match <number>` (the place among the conditions of a choice), `failures_reach <n>` or
    /// `succeeded_at_least <percent>`. The value is `other` for a condition that this version of
    /// Ratchet does not know.
    pub condition: String,
    /// Whether the condition is met.
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

/// Returns the text of a condition, for [`Edge::condition`]. The text does not contain values of
/// results, because results may be confidential.
fn condition(after: &After) -> String {
    let other = || "other".to_owned();
    match after {
        After::Job { condition, .. } => match condition {
            Condition::Succeeded => "succeeded".to_owned(),
            Condition::Failed => "failed".to_owned(),
            Condition::Ended => "ended".to_owned(),
            Condition::ResultIs { pointer, .. } => format!("result_is {pointer}"),
            Condition::ResultIsNot { pointer, .. } => format!("result_is_not {pointer}"),
            Condition::ResultCompares {
                pointer,
                comparison,
                ..
            } => format!("result_{} {pointer}", comparison.as_str()),
            Condition::FirstMatch { earlier, .. } => format!("first_match {}", earlier.len() + 1),
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

/// Whether the condition of a link is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// The condition is not met yet, and can still be met.
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
    use ratchet_core::{Comparison, JobId};

    use super::*;

    #[test]
    fn a_condition_on_a_result_does_not_tell_its_value() {
        let after = After::Job {
            parent: JobId::new(),
            condition: Condition::result_is("/size", &"secret"),
        };
        assert_eq!(condition(&after), "result_is /size");
        let choice = Condition::choice([
            Condition::result_is_not("/size", &"secret"),
            Condition::result_compares("/n", Comparison::AtLeast, &7),
        ]);
        for (place, one) in choice.into_iter().enumerate() {
            let text = |one| {
                condition(&After::Job {
                    parent: JobId::new(),
                    condition: one,
                })
            };
            assert_eq!(text(one.clone()), format!("first_match {}", place + 1));
            let Condition::FirstMatch { condition: one, .. } = one else {
                panic!("{one:?}")
            };
            let own = ["result_is_not /size", "result_at_least /n", "succeeded"];
            assert_eq!(text(*one), own[place]);
        }
    }
}
