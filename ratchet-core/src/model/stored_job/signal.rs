//! The signal for which a job waits.

use super::StoredJob;
use crate::json::Json;
use crate::links::is_too_late;
use crate::state::JobState;
use crate::time::{from_millis, to_millis};

impl StoredJob {
    /// Returns whether the job waits for a signal that has not arrived yet.
    #[must_use]
    pub fn awaits_signal(&self) -> bool {
        self.record.state == JobState::Blocked && self.lacks_signal()
    }

    /// Returns whether the job accepts a signal that arrives at `now`. `[signal.late]`
    #[must_use]
    pub fn takes_signal(&self, now: i64) -> bool {
        self.awaits_signal() && !self.is_signal_overdue(now)
    }

    /// Returns whether the signal of the job was delivered.
    #[must_use]
    pub fn has_signal(&self) -> bool {
        let signal = self.record.signal.as_ref();
        signal.is_some_and(|signal| signal.delivered.is_some())
    }

    /// Returns the deadline of the job's signal. `None` if the job does not wait for a signal.
    #[must_use]
    pub fn signal_deadline(&self) -> Option<i64> {
        let signal = self.record.signal.as_ref();
        let deadline = signal.filter(|_| self.awaits_signal())?.deadline;
        Some(to_millis(deadline))
    }

    /// Returns whether the job still waits for a signal although the deadline of the wait has
    /// passed.
    #[must_use]
    pub fn is_signal_overdue(&self, now: i64) -> bool {
        let deadline = self.signal_deadline();
        deadline.is_some_and(|deadline| is_too_late(deadline, now))
    }

    /// Delivers the signal for which the job waits, and makes the job pending if it waits for
    /// nothing else.
    pub fn deliver(&mut self, payload: &Json, now: i64) {
        if let Some(signal) = self.record.signal.take() {
            self.record.signal = Some(signal.delivered(from_millis(now), payload.clone()));
        }
        if !self.has_open_links() {
            self.release(now);
        }
    }

    /// Makes the job a dead letter, because its signal did not arrive in time.
    pub fn miss_signal(&mut self, now: i64) {
        let wait = self.record.spec.signal.as_ref();
        self.record.last_error = wait.map(|wait| wait.missed());
        self.enter(JobState::Failed, now);
    }
}
