use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts};

/// The queues.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Queues {
    /// By name.
    pub queues: Vec<Queue>,
    /// When the counts were taken; null: none have been yet, and they are 0.
    pub counts_at: Option<At>,
}

/// A queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Whether its jobs are not claimed at present.
    pub paused: bool,
    /// Its jobs by state, when they were last counted.
    pub counts: Counts,
    /// For how long its longest-overdue job has been due; null: none is overdue, or it is not
    /// known.
    pub overdue_ms: Option<u64>,
}

impl Queue {
    /// A queue.
    #[must_use]
    pub const fn new(name: String, paused: bool, counts: Counts, overdue_ms: Option<u64>) -> Self {
        Self {
            name,
            paused,
            counts,
            overdue_ms,
        }
    }
}
