use ratchet_core::model::{self, PauseInfo};
use schemars::JsonSchema;
use serde::Serialize;

use super::At;

/// The queues and kinds that are paused.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Pauses {
    /// The pauses: first the queues and then the kinds, each sorted by name.
    pub pauses: Vec<Pause>,
}

/// A pause of a queue or of a kind. Nodes claim no jobs of a paused queue or kind.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Pause {
    /// Whether a queue or a kind is paused.
    pub scope: PauseScope,
    /// The name of the queue or kind.
    pub name: String,
    /// Time at which the pause began.
    pub paused_at: At,
    /// Who paused it. Null if the pause names no operator.
    pub by: Option<String>,
    /// Why it is paused. Null if the pause has no reason.
    pub reason: Option<String>,
}

/// What a pause applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseScope {
    /// The jobs of a queue.
    Queue,
    /// The jobs of a kind, in all queues.
    Kind,
}

impl From<&PauseInfo> for Pause {
    fn from(pause: &PauseInfo) -> Self {
        let scope = match pause.scope {
            model::PauseScope::Queue(_) => PauseScope::Queue,
            model::PauseScope::Kind(_) => PauseScope::Kind,
        };
        Self {
            scope,
            name: pause.scope.name().to_string(),
            paused_at: At(pause.at),
            by: pause.by.clone(),
            reason: pause.reason.clone(),
        }
    }
}
