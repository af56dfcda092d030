use std::time::Duration;

use crate::error::StoreErrorKind;

/// Decides whether a failed store call is repeated, and after which pause. It does no I/O.
///
/// A call is repeated after [`Contention`](StoreErrorKind::Contention), because a call that fails
/// with this error has changed nothing. Any other error is returned to the caller.
///
/// ```
/// # use std::time::Duration;
/// use ratchet::StoreErrorKind::Contention;
/// use ratchet_core::store::ContentionBackoff;
///
/// let (retries, patience) = (1, Duration::from_secs(1));
/// let mut backoff = ContentionBackoff::new(retries, patience);
/// let (elapsed, random) = (Duration::ZERO, 0.0);
/// assert_eq!(backoff.failed(Contention, elapsed, random), Some(Duration::from_millis(2)));
/// assert_eq!(backoff.failed(Contention, elapsed, random), None);
/// ```
#[derive(Debug)]
pub struct ContentionBackoff {
    repeated: u32,
    retries: u32,
    patience: Duration,
}

impl ContentionBackoff {
    /// Creates a backoff that allows up to `retries` repetitions. It allows no repetition once
    /// `patience` has passed since the first try began.
    #[must_use]
    pub const fn new(retries: u32, patience: Duration) -> Self {
        Self {
            repeated: 0,
            retries,
            patience,
        }
    }

    /// Counts a failed try, and returns the pause before the next try. Returns `None` if the call
    /// must not be repeated. `elapsed` is the time since the first try began. `random` is a random
    /// number in `0.0..1.0`.
    ///
    /// The pause doubles with each failed try, from 2 ms to at most 64 ms. A random part of up to
    /// one half is then subtracted, so that calls that collided do not collide again.
    pub fn failed(
        &mut self,
        kind: StoreErrorKind,
        elapsed: Duration,
        random: f64,
    ) -> Option<Duration> {
        let again = kind == StoreErrorKind::Contention
            && self.repeated < self.retries
            && elapsed < self.patience;
        again.then(|| {
            self.repeated += 1;
            Self::pause(self.repeated, random)
        })
    }

    /// Returns the pause before repetition number `repetition` (the first is 1). `random` is a
    /// random number in `0.0..1.0`.
    #[must_use]
    pub fn pause(repetition: u32, random: f64) -> Duration {
        let longest = Duration::from_millis(1 << repetition.min(6));
        longest.mul_f64(1.0 - random / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENTION: StoreErrorKind = StoreErrorKind::Contention;

    #[test]
    fn only_contention_is_repeated() {
        let mut backoff = ContentionBackoff::new(8, Duration::MAX);
        for kind in [
            StoreErrorKind::Unavailable,
            StoreErrorKind::Timeout,
            StoreErrorKind::Full,
            StoreErrorKind::ReadOnly,
            StoreErrorKind::Invalid,
            StoreErrorKind::Corrupt,
            StoreErrorKind::Other,
        ] {
            assert_eq!(backoff.failed(kind, Duration::ZERO, 0.0), None, "{kind:?}");
        }
        assert!(backoff.failed(CONTENTION, Duration::ZERO, 0.0).is_some());
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_the_last_failure_is_returned() {
        let mut backoff = ContentionBackoff::new(8, Duration::MAX);
        let mut next = |random| backoff.failed(CONTENTION, Duration::ZERO, random);
        let pauses: Vec<u128> = (0..7)
            .filter_map(|_| next(0.0))
            .map(|pause| pause.as_millis())
            .collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 64]);
        assert_eq!(next(1.0), Some(Duration::from_millis(32)));
        assert_eq!(next(0.0), None);
    }

    #[test]
    fn nothing_is_repeated_when_patience_has_run_out() {
        let patience = Duration::from_secs(1);
        let mut backoff = ContentionBackoff::new(u32::MAX, patience);
        let just_before = patience.checked_sub(Duration::from_nanos(1)).unwrap();
        assert!(backoff.failed(CONTENTION, just_before, 0.0).is_some());
        assert_eq!(backoff.failed(CONTENTION, patience, 0.0), None);
    }

    #[test]
    fn a_store_that_repeats_nothing_has_no_backoff() {
        let mut backoff = ContentionBackoff::new(0, Duration::MAX);
        assert_eq!(backoff.failed(CONTENTION, Duration::ZERO, 0.0), None);
    }
}
