use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, State};

/// The queues.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Queues {
    /// By name: all that have jobs or are paused, as far as they are known.
    pub queues: Vec<Queue>,
    /// When the jobs were counted, which finds every queue; null before the first count, when only
    /// queues with due jobs are known.
    pub counts_at: Option<At>,
    /// When the due jobs were read; null if they are not known.
    pub due_at: Option<At>,
}

/// A queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Whether its jobs are not claimed: as it was when it was read what is due if some of them are
    /// due, and when the jobs were counted if none is.
    pub paused: bool,
    /// Its jobs by state, when they were last counted; null if the queue was not known then.
    pub counts: Option<Counts>,
    /// For how long its longest-overdue job has been due; null if none is due. If `due_at` is null
    /// as well, it is not known.
    pub overdue_ms: Option<u64>,
}

impl Queue {
    /// A queue.
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

    /// Its jobs in this state when they were last counted; `None` if the queue was not known then.
    #[must_use]
    pub fn count(&self, state: State) -> Option<u64> {
        let counts = self.counts.as_ref()?;
        Some(counts.0.get(&state).copied().unwrap_or(0))
    }
}
