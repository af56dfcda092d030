//! Logs the failure of a store once per outage, however often a loop calls the store.

use tokio::time::Instant;

use crate::error::{StoreError, StoreErrorKind};
use crate::name::Name;
use crate::time;

/// Counts the failures of one loop since its store last worked, and logs them.
#[derive(Debug)]
pub(crate) struct Outage {
    /// The name of the loop, for the log.
    pub(crate) task: &'static str,
    /// Distinguishes several loops with this name, for example by the role of an election.
    about: Option<Name>,
    since: Option<(Instant, StoreErrorKind)>,
    failures: u64,
}

impl Outage {
    /// Creates the outage log of the loop with this name.
    pub(crate) const fn of(task: &'static str) -> Self {
        Self {
            task,
            about: None,
            since: None,
            failures: 0,
        }
    }

    /// Sets what distinguishes this loop from others of the same name, such as its role or pool.
    pub(crate) fn about(mut self, about: &Name) -> Self {
        self.about = Some(about.clone());
        self
    }

    /// Counts and logs a failure. The first failure of an outage is logged as a warning, and so is
    /// a failure of another kind than the one before. All others are logged at debug level.
    pub(crate) fn failed(&mut self, error: &StoreError) {
        let (task, about, failures) = (self.task, self.shown(), self.failures);
        let (since, kind) = self.since.unwrap_or((time::monotonic(), error.kind()));
        if self.since.is_none() || kind != error.kind() {
            tracing::warn!(task, about, %error, "the store failed; retrying until it works");
        } else {
            tracing::debug!(task, about, %error, failures, "the store still fails");
        }
        self.since = Some((since, error.kind()));
        self.failures += 1;
    }

    /// Ends the outage, if there is one, and logs its length.
    pub(crate) fn ended(&mut self) {
        if let Some((since, _)) = self.since.take() {
            let failures = std::mem::take(&mut self.failures);
            let (task, about, lasted) = (self.task, self.shown(), since.elapsed());
            tracing::info!(task, about, failures, ?lasted, "the store works again");
        }
    }

    fn shown(&self) -> Option<&str> {
        self.about.as_ref().map(Name::as_str)
    }
}
