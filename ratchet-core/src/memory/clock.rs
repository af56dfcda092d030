use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::time::{self, Timestamp};

/// A clock for tests of code that depends on time. The test sets the time of the clock. Between
/// these changes, the clock either stands still or runs. All clones show the same time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ratchet::BoxError> {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ratchet::{ManualClock, MemoryStore, NewJob, Ratchet};
///
/// let clock = ManualClock::new("2026-01-15T12:00:00Z".parse()?);
/// let client = Ratchet::client(Arc::new(MemoryStore::with_clock(clock.clone())));
/// client.enqueue(NewJob::new("remind", "Ada").delay(Duration::from_secs(60))).await?;
///
/// clock.advance(Duration::from_secs(90));
/// let due = client.due_routes().await?;
/// assert_eq!(due[0].overdue, Duration::from_secs(30));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    /// The time of the clock minus the time that the clock has run, in milliseconds since 1970.
    set_to: AtomicI64,
    /// When the clock began to run. `None` if the clock stands still.
    running_since: Option<Instant>,
}

impl ManualClock {
    /// Creates a clock that shows `start` and stands still until a test changes its time.
    ///
    /// ```
    /// use ratchet::ManualClock;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new("2026-01-15T12:00:00Z".parse()?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self::made(start, None)
    }

    /// Creates a clock that starts at `start` and runs with tokio's clock, which a test may pause.
    /// If a test changes its time, the time jumps, like that of a database when its host's clock is
    /// set.
    #[must_use]
    pub fn running(start: Timestamp) -> Self {
        Self::made(start, Some(time::monotonic()))
    }

    fn made(start: Timestamp, running_since: Option<Instant>) -> Self {
        Self(Arc::new(Inside {
            set_to: AtomicI64::new(time::to_millis(start)),
            running_since,
        }))
    }

    /// Moves the clock forward by this duration.
    pub fn advance(&self, by: Duration) {
        let by = time::duration_millis(by);
        self.0.set_to.fetch_add(by, Ordering::SeqCst);
    }

    /// Moves the clock back by this duration, as an operator or a faulty time server may do.
    pub fn set_back(&self, by: Duration) {
        let by = time::duration_millis(by);
        self.0.set_to.fetch_sub(by, Ordering::SeqCst);
    }

    /// Sets the clock to this time, which may be earlier or later than the present time of the
    /// clock.
    pub fn set(&self, to: Timestamp) {
        let set_to = time::to_millis(to).saturating_sub(self.ran_for());
        self.0.set_to.store(set_to, Ordering::SeqCst);
    }

    /// Returns the present time of the clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        time::from_millis(self.now_millis())
    }

    /// Returns the present time of the clock in milliseconds since 1970.
    #[must_use]
    pub fn now_millis(&self) -> i64 {
        let set_to = self.0.set_to.load(Ordering::SeqCst);
        set_to.saturating_add(self.ran_for())
    }

    fn ran_for(&self) -> i64 {
        let ran_for = self
            .0
            .running_since
            .map(|since| since.elapsed().as_millis());
        i64::try_from(ran_for.unwrap_or(0)).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_running_clock_runs_steps_and_runs_on() {
        let clock = ManualClock::running(time::from_millis(1_000));
        tokio::time::advance(SECOND).await;
        assert_eq!(clock.now_millis(), 2_000);
        clock.advance(10 * SECOND);
        clock.set_back(SECOND);
        tokio::time::advance(SECOND).await;
        assert_eq!(clock.now_millis(), 12_000);
        clock.set(time::from_millis(5_000));
        tokio::time::advance(SECOND).await;
        assert_eq!(clock.now_millis(), 6_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_stands_still_moves_only_when_told_to() {
        let clock = ManualClock::new(time::from_millis(1_000));
        tokio::time::advance(SECOND).await;
        assert_eq!(clock.now_millis(), 1_000);
    }
}
