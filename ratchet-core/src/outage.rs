//! Logs a failing store once an outage, however often it is tried meanwhile.

use tokio::time::Instant;

use crate::error::StoreError;
use crate::time;

/// The failures of one loop since its store last worked.
#[derive(Debug)]
pub(crate) struct Outage {
    /// The loop, for the log.
    pub(crate) task: &'static str,
    since: Option<Instant>,
    failures: u64,
}

impl Outage {
    /// Builds the outage log of the loop with this name.
    pub(crate) const fn of(task: &'static str) -> Self {
        Self {
            task,
            since: None,
            failures: 0,
        }
    }

    /// Counts a failure. The first of an outage is a warning, the others are debug lines.
    pub(crate) fn failed(&mut self, error: &StoreError) {
        let task = self.task;
        self.failures += 1;
        if self.since.is_none() {
            self.since = Some(time::monotonic());
            tracing::warn!(task, %error, "the store failed, trying again until it works");
        } else {
            tracing::debug!(task, %error, failures = self.failures, "the store still fails");
        }
    }

    /// Ends the outage, if there is one, and logs its length.
    pub(crate) fn ended(&mut self) {
        if let Some(since) = self.since.take() {
            let (task, failures) = (self.task, std::mem::take(&mut self.failures));
            tracing::info!(task, failures, lasted = ?since.elapsed(), "the store works again");
        }
    }
}
