//! Reads the clocks of the process, which no other file may do, and converts times and durations as
//! every store needs them.
//!
//! Ratchet keeps time to the **millisecond**, on every backend, so that the same history gives the
//! same order everywhere. Decisions about due jobs, dead nodes and expired locks use the
//! *database's* clock. The process's own clocks are used only to create ids, to pace loops, and to
//! limit how long a node relies on an earlier answer of the database.
#![expect(clippy::disallowed_methods, reason = "only this file may read a clock")]

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// A point in time in UTC. Stores keep the time to the millisecond.
pub type Timestamp = DateTime<Utc>;

/// Returns the time of this process's wall clock. Never compare it with a time that a store
/// returned, except to measure clock skew.
#[must_use]
pub fn wall_clock() -> Timestamp {
    Utc::now()
}

/// Returns the time of this process's monotonic clock. In tests, the clock follows tokio's paused
/// time.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Converts a timestamp to milliseconds since the Unix epoch, rounded down.
#[must_use]
pub fn to_millis(at: Timestamp) -> i64 {
    at.timestamp_millis()
}

/// Converts milliseconds since the Unix epoch to a timestamp. A number outside of the calendar's
/// range becomes the nearest end of the range.
#[must_use]
pub fn from_millis(millis: i64) -> Timestamp {
    DateTime::from_timestamp_millis(millis).unwrap_or(if millis < 0 {
        DateTime::<Utc>::MIN_UTC
    } else {
        DateTime::<Utc>::MAX_UTC
    })
}

/// Converts a duration to whole milliseconds, at most `i64::MAX`. The result is rounded **up**, so
/// that a wait is never shorter than requested and a positive duration never becomes zero.
#[must_use]
pub fn duration_millis(duration: Duration) -> i64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// Converts a duration to whole microseconds, at most `i64::MAX`. The result is rounded up, as in
/// [`duration_millis`].
#[must_use]
pub fn duration_micros(duration: Duration) -> i64 {
    let micros = duration.as_nanos().div_ceil(1_000);
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// Rounds a duration up to whole milliseconds, the precision of a store.
#[must_use]
pub fn whole_millis(duration: Duration) -> Duration {
    millis_between(0, duration_millis(duration))
}

/// Returns `later − earlier` as a duration, or zero if the difference is negative. Both times are
/// in milliseconds.
#[must_use]
pub fn millis_between(earlier: i64, later: i64) -> Duration {
    Duration::from_millis(u64::try_from(later.saturating_sub(earlier)).unwrap_or(0))
}

/// Returns `at + by`, or the end of the calendar if the sum would overflow.
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
