//! Logs the failure of a store once per outage, however often a loop calls the store.

use tokio::time::Instant;

use crate::error::{StoreError, StoreErrorKind};
use crate::name::Name;
use crate::time;

/// Counts and logs the failed store calls of one loop. The count starts again after each outage.
#[derive(Debug)]
pub(crate) struct Outage {
    /// The name of the loop in the log.
    pub(crate) task: &'static str,
    /// A role or pool that distinguishes this loop from other loops with the same name.
    about: Option<Name>,
    since: Option<(Instant, StoreErrorKind)>,
    failures: u64,
}

impl Outage {
    /// Creates the outage log of the loop with the name `task`.
    pub(crate) const fn of(task: &'static str) -> Self {
        Self {
            task,
            about: None,
            since: None,
            failures: 0,
        }
    }

    /// Sets the role or pool that distinguishes this loop from other loops with the same name.
    pub(crate) fn about(mut self, about: &Name) -> Self {
        self.about = Some(about.clone());
        self
    }

    /// Counts and logs a failed store call. The first failure of an outage is logged as a warning.
    /// A failure of another kind than the previous one is logged as a warning too. All other
    /// failures are logged at debug level.
    pub(crate) fn failed(&mut self, error: &StoreError) {
        let (task, about, failures) = (self.task, self.shown(), self.failures);
        let (since, kind) = self.since.unwrap_or((time::monotonic(), error.kind()));
        if self.since.is_none() || kind != error.kind() {
            tracing::warn!(task, about, %error, "a store call failed; retrying until it succeeds");
        } else {
            tracing::debug!(task, about, %error, failures, "a store call failed again; still \
                retrying");
        }
        self.since = Some((since, error.kind()));
        self.failures += 1;
    }

    /// Ends the current outage, if there is one, and logs its duration.
    pub(crate) fn ended(&mut self) {
        if let Some((since, _)) = self.since.take() {
            let failures = std::mem::take(&mut self.failures);
            let (task, about, lasted) = (self.task, self.shown(), since.elapsed());
            tracing::info!(task, about, failures, ?lasted, "store calls succeed again");
        }
    }

    fn shown(&self) -> Option<&str> {
        self.about.as_ref().map(Name::as_str)
    }
}
