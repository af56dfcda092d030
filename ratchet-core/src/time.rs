//! Time: the one file that reads a clock, and the conversions every store needs.
//!
//! Ratchet keeps time to the **millisecond**, on every backend, so that the same history gives the
//! same order everywhere. Decisions about due jobs, dead nodes and expired locks use the
//! *database's* clock; what is read here only labels ids, paces loops and shortens trust.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the file that may read a clock"
)]

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// A point in time, UTC, kept to the millisecond.
pub type Timestamp = DateTime<Utc>;

/// This process's wall clock. Never compare it with a time that a store returned, except to
/// measure clock skew.
#[must_use]
pub fn wall_clock() -> Timestamp {
    Utc::now()
}

/// This process's monotonic clock; it follows tokio's paused time in tests.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Milliseconds since the Unix epoch, rounded down.
#[must_use]
pub fn to_millis(at: Timestamp) -> i64 {
    at.timestamp_millis()
}

/// The timestamp of a count of milliseconds since the Unix epoch; counts that no calendar can hold
/// are moved to the nearest end of its range.
#[must_use]
pub fn from_millis(millis: i64) -> Timestamp {
    DateTime::from_timestamp_millis(millis).unwrap_or(if millis < 0 {
        DateTime::<Utc>::MIN_UTC
    } else {
        DateTime::<Utc>::MAX_UTC
    })
}

/// A duration in whole milliseconds, rounded **up** so that a wait is never shorter than asked and
/// a positive duration never becomes zero; at most `i64::MAX`.
#[must_use]
pub fn duration_millis(duration: Duration) -> i64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// A duration in whole microseconds, rounded up like [`duration_millis`]; at most `i64::MAX`.
#[must_use]
pub fn duration_micros(duration: Duration) -> i64 {
    let micros = duration.as_nanos().div_ceil(1_000);
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// The duration as it is kept: rounded up to the millisecond like [`duration_millis`].
#[must_use]
pub fn whole_millis(duration: Duration) -> Duration {
    millis_between(0, duration_millis(duration))
}

/// `later − earlier` in milliseconds as a duration; zero if it would be negative.
#[must_use]
pub fn millis_between(earlier: i64, later: i64) -> Duration {
    Duration::from_millis(u64::try_from(later.saturating_sub(earlier)).unwrap_or(0))
}

/// `at + by`, moved to the end of the calendar if it would overflow.
#[must_use]
pub fn add(at: Timestamp, by: Duration) -> Timestamp {
    TimeDelta::try_milliseconds(duration_millis(by))
        .and_then(|delta| at.checked_add_signed(delta))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_up_to_the_millisecond() {
        assert_eq!(duration_millis(Duration::ZERO), 0);
        assert_eq!(duration_millis(Duration::from_nanos(1)), 1);
        assert_eq!(duration_millis(Duration::from_micros(1_001)), 2);
        assert_eq!(duration_millis(Duration::MAX), i64::MAX);
        assert_eq!(duration_micros(Duration::from_nanos(1_001)), 2);
        assert_eq!(duration_micros(Duration::MAX), i64::MAX);
    }

    #[test]
    fn timestamps_round_trip_in_milliseconds() {
        for millis in [0, 1, -1, 1_763_716_000_123] {
            assert_eq!(to_millis(from_millis(millis)), millis);
        }
        assert_eq!(from_millis(i64::MAX), DateTime::<Utc>::MAX_UTC);
    }

    #[test]
    fn adding_never_overflows() {
        assert_eq!(add(from_millis(0), Duration::MAX), DateTime::<Utc>::MAX_UTC);
    }
}
