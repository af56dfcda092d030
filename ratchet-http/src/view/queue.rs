use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, State};

/// A page of the known queues.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Queues {
    /// Queues of this page, sorted by name. Only queues that have jobs or are paused are listed.
    pub queues: Vec<Queue>,
    /// Time at which the jobs were last counted. Null before the first count. Before the first
    /// count, only queues with due jobs are known.
    pub counts_at: Option<At>,
    /// Time at which the due jobs were last read. Null while it is not known which jobs are due.
    pub due_at: Option<At>,
    /// Value of the query parameter `after` that requests the next page. Null on the last page.
    pub next: Option<String>,
}

/// A queue, with the number of its jobs in each state.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Queue {
    /// The name of the queue.
    pub name: String,
    /// Whether the queue is paused. Nodes claim no jobs of a paused queue. If the queue has due
    /// jobs, the value was read at the same time as the due jobs. Otherwise, the value was read at
    /// the last count of jobs.
    pub paused: bool,
    /// Number of the queue's jobs in each state at the last count. Null if the last count did not
    /// find the queue.
    pub counts: Option<Counts>,
    /// How long the queue's longest-overdue job has been due, in milliseconds. Null if no job of
    /// the queue is due, or while it is not known which jobs are due.
    pub overdue_ms: Option<u64>,
}

impl Queue {
    /// Creates the view of a queue from the values of its fields.
    #[must_use]
    pub const fn new(
        name: String,
        paused: bool,
        counts: Option<Counts>,
        overdue_ms: Option<u64>,
    ) -> Self {
        Self {
            name,
            paused,
            counts,
            overdue_ms,
        }
    }

    /// Returns the number of the queue's jobs in this state at the last count. Returns `None` if
    /// the last count did not find the queue.
    #[must_use]
    pub fn count(&self, state: State) -> Option<u64> {
        let counts = self.counts.as_ref()?;
        Some(counts.0.get(&state).copied().unwrap_or(0))
    }
}
