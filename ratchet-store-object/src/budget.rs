//! A limit of the puts of a process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratchet_core::time;
use tokio::time::Instant;

/// How many objects this process may put in a minute. Clones share the budget.
///
/// The puts are spread evenly: a burst that uses up the budget of a minute would delay the next
/// call by up to a minute.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// The shortest time between two puts.
    interval: Duration,
    /// When the next put may begin.
    next: Arc<Mutex<Instant>>,
}

impl Budget {
    pub(crate) fn new(puts_per_minute: u32) -> Self {
        Self {
            interval: Self::interval(puts_per_minute),
            next: Arc::new(Mutex::new(time::monotonic())),
        }
    }

    pub(crate) fn interval(puts_per_minute: u32) -> Duration {
        Duration::from_secs(60) / puts_per_minute.max(1)
    }

    /// Returns when a put may begin, if that is later than now.
    pub(crate) fn wait(&self) -> Option<Instant> {
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        (next > time::monotonic()).then_some(next)
    }

    /// Waits until a put may begin, and counts it.
    pub(crate) async fn take(&self) {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = time::monotonic().max(*next);
            *next = at + self.interval;
            at
        };
        tokio::time::sleep_until(at).await;
    }
}
