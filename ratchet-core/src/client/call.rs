use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;

use crate::error::{Result, StoreError, StoreErrorKind};
use crate::metrics;
use crate::name::Name;
use crate::outage::Outage;
use crate::store::{Checked, SharedStore, Store};
use crate::time;

/// Wraps a store: gives each call a deadline in addition to the store's own, and counts the calls.
#[derive(Debug)]
pub(crate) struct Calls {
    store: SharedStore,
    deadline: Duration,
    made: AtomicU64,
}

impl Calls {
    /// Margin by which the deadline of a client without a node exceeds the deadline of the store,
    /// so that the timeout error of the store arrives first.
    const LAST_WORDS: Duration = Duration::from_secs(1);

    pub(crate) fn new(store: SharedStore, deadline: Duration) -> Self {
        Self {
            store: Checked::shared(store),
            deadline,
            made: AtomicU64::new(0),
        }
    }

    /// Creates the wrapper for a client without a node. The deadline of its calls is the store's
    /// own plus a margin.
    pub(crate) fn of_client(store: SharedStore) -> Self {
        let deadline = store.call_policy().deadline;
        Self::new(store, deadline.saturating_add(Self::LAST_WORDS))
    }

    pub(crate) fn store(&self) -> &SharedStore {
        &self.store
    }

    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Makes one call. A call that exceeds the deadline is dropped and fails with `Timeout`;
    /// whether it took effect is then unknown.
    pub(crate) async fn call<'a, T, F>(
        &'a self,
        operation: &'static str,
        call: impl FnOnce(&'a dyn Store) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.call_within(self.deadline, operation, call).await
    }

    /// Makes one call with `deadline` or the usual deadline, whichever is shorter. A panic of the
    /// store counts as a failed call and does not end the caller.
    pub(crate) async fn call_within<'a, T, F>(
        &'a self,
        deadline: Duration,
        operation: &'static str,
        call: impl FnOnce(&'a dyn Store) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.made.fetch_add(1, Ordering::Relaxed);
        let deadline = deadline.min(self.deadline);
        let asked = time::monotonic();
        let failed = |kind, why: String| Err(StoreError::new(kind, operation).with_source(why));
        let answer = AssertUnwindSafe(async { call(&*self.store).await }).catch_unwind();
        let answer = match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => failed(StoreErrorKind::Other, "the store panicked".to_owned()),
            Err(_) => {
                // A timeout after a shorter deadline does not show that the network fails, so it is
                // not reported to the store.
                if deadline == self.deadline {
                    self.store.call_timed_out();
                }
                failed(
                    StoreErrorKind::Timeout,
                    format!("the store did not answer within {deadline:?}"),
                )
            }
        };
        metrics::store_call(operation, asked.elapsed(), &answer);
        answer
    }
}

/// The backoff between retries while the store fails. The delays double from 50 ms to 5 s, and each
/// is shortened at random by up to half, so that nodes do not retry together. The outage is logged.
#[derive(Debug, Default)]
pub(crate) struct RetryDelays {
    tries: u32,
    /// Logs the outage of the store. `None` if the retried call is not a call of the store.
    outage: Option<Outage>,
}

impl RetryDelays {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(5);

    /// Creates the backoff of the loop with this name, which retries store calls.
    pub(crate) const fn of(task: &'static str) -> Self {
        Self {
            tries: 0,
            outage: Some(Outage::of(task)),
        }
    }

    /// Adds the role, the pool or another name that distinguishes this loop from others in the log.
    pub(crate) fn about(mut self, about: &Name) -> Self {
        self.outage = self.outage.map(|outage| outage.about(about));
        self
    }

    /// Logs a failure of the store, and returns the delay before the next try, for a `random` in
    /// `0.0..1.0`.
    pub(crate) fn failed(&mut self, error: &StoreError, random: f64) -> Duration {
        if let Some(outage) = &mut self.outage {
            outage.failed(error);
        }
        self.next(random)
    }

    /// Returns the delay before the next try, for a `random` in `0.0..1.0`.
    pub(crate) fn next(&mut self, random: f64) -> Duration {
        let doubled = Self::FIRST.saturating_mul(1 << self.tries.min(10));
        self.tries += 1;
        let delay = doubled.min(Self::LONGEST).mul_f64(1.0 - random / 2.0);
        if let Some(outage) = &self.outage {
            metrics::store_backoff(outage.task, delay);
        }
        delay
    }

    /// Resets the backoff to its shortest delay after a successful call, and ends the outage.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
        if let Some(outage) = &mut self.outage {
            outage.ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_limit_and_starts_again() {
        let mut backoff = RetryDelays::default();
        let delays: Vec<u128> = (0..9).map(|_| backoff.next(0.0).as_millis()).collect();
        assert_eq!(delays, [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        backoff.reset();
        assert_eq!(backoff.next(1.0), Duration::from_millis(25));
    }
}
