use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, State};

/// The known queues.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Queues {
    /// A page of the known queues that have jobs or are paused, sorted by name.
    pub queues: Vec<Queue>,
    /// When the jobs were last counted; null before the first count. A count finds every queue.
    /// Before the first count, only queues with due jobs are known.
    pub counts_at: Option<At>,
    /// When the due jobs were last read; null if they are not known.
    pub due_at: Option<At>,
    /// The value of `after` for the next page; null on the last page.
    pub next: Option<String>,
}

/// A queue and the number of its jobs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Queue {
    /// The name of the queue.
    pub name: String,
    /// Whether the queue is paused: its jobs are not claimed. This was read with the due jobs if
    /// the queue has due jobs, otherwise with the last count.
    pub paused: bool,
    /// The number of jobs by state at the last count; null if the queue was not known then.
    pub counts: Option<Counts>,
    /// How long the queue's longest-overdue job has been due; null if none is due, or if `due_at`
    /// is null.
    pub overdue_ms: Option<u64>,
}

impl Queue {
    /// Creates the view of a queue.
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

    /// Returns the number of jobs in this state at the last count, or `None` if the queue was not
    /// known then.
    #[must_use]
    pub fn count(&self, state: State) -> Option<u64> {
        let counts = self.counts.as_ref()?;
        Some(counts.0.get(&state).copied().unwrap_or(0))
    }
}
