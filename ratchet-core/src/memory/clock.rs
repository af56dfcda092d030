use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::time::{self, Timestamp};

/// A clock that only moves when told to, for tests of anything that depends on time. Clones are
/// the same clock.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(time::to_millis(start))))
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        self.0
            .fetch_add(time::duration_millis(by), Ordering::SeqCst);
    }

    /// Moves it back, as an operator or a bad time server may.
    pub fn set_back(&self, by: Duration) {
        self.0
            .fetch_sub(time::duration_millis(by), Ordering::SeqCst);
    }

    /// Sets it, forward or back.
    pub fn set(&self, to: Timestamp) {
        self.0.store(time::to_millis(to), Ordering::SeqCst);
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        time::from_millis(self.now_millis())
    }

    /// What it shows, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_millis(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The clock of a memory store.
#[derive(Clone, Debug)]
pub(super) enum Clock {
    /// The wall clock when the store was made, carried on by the monotonic clock.
    Running { began_at: i64, began: Instant },
    /// A test's.
    Manual(ManualClock),
}

impl Clock {
    pub(super) fn running() -> Self {
        Self::Running {
            began_at: time::to_millis(time::wall_clock()),
            began: time::monotonic(),
        }
    }

    pub(super) fn now_millis(&self) -> i64 {
        match self {
            Self::Running { began_at, began } => {
                let elapsed = time::monotonic().saturating_duration_since(*began);
                began_at.saturating_add(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
            }
            Self::Manual(clock) => clock.now_millis(),
        }
    }
}
