//! The due time of a job.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::limits::{MAX_DELAY, MAX_RUN_AT};
use crate::time::{self, Timestamp};

/// The time at which a job becomes due.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{NewJob, RunAt};
///
/// let job = NewJob::new("remind", &7).delay(Duration::from_secs(3_600));
/// assert_eq!(job.due(), RunAt::In(Duration::from_secs(3_600)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAt {
    /// At the time of the enqueue or the reschedule, by the database's clock.
    #[default]
    Now,
    /// This long after the enqueue or the reschedule, by the database's clock.
    In(Duration),
    /// At this time, by the database's clock. A time in the past makes the job due at once, and the
    /// time since then counts as waiting time for aging.
    At(Timestamp),
}

impl RunAt {
    /// Returns the due time in milliseconds for an enqueue at `now`.
    #[must_use]
    pub fn resolve(self, now: i64) -> i64 {
        match self {
            Self::Now => now,
            Self::In(delay) => now.saturating_add(time::duration_millis(delay)),
            Self::At(at) => time::to_millis(at),
        }
    }

    /// Checks that the due time can be stored.
    ///
    /// # Errors
    /// [`InvalidInput`] on `run_at` for a time before 1970 or after the year 9999, and on `delay`
    /// for more than [`MAX_DELAY`].
    pub fn validate(self) -> Result<(), InvalidInput> {
        match self {
            Self::At(at) if time::to_millis(at) < 0 => {
                Err(InvalidInput::new("run_at", "is before 1970"))
            }
            Self::At(at) if time::to_millis(at) > MAX_RUN_AT => {
                Err(InvalidInput::new("run_at", "is after the year 9999"))
            }
            Self::In(delay) if delay > MAX_DELAY => {
                Err(InvalidInput::new("delay", "is longer than 1,000 years"))
            }
            Self::Now | Self::In(_) | Self::At(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_are_resolved_on_the_given_clock() {
        assert_eq!(RunAt::Now.resolve(5), 5);
        assert_eq!(RunAt::In(Duration::from_millis(7)).resolve(5), 12);
        assert_eq!(RunAt::At(time::from_millis(3)).resolve(5), 3);
    }
}
