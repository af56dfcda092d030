//! Corrects ages for steps (jumps) of the database's clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{Timestamp, duration_millis, to_millis};

/// The maximum number of clock steps that are kept. If there are more, the two earliest steps are
/// merged: their sizes are added, and the later of their times is kept.
const MAX_STEPS: usize = 16;

/// The steps of the database's clock that a maintenance pass must consider when it computes ages.
///
/// After the clock has stepped forward, everything that was stored before the step looks too old. A
/// node that noticed the step adds it to this value. The store then subtracts the step from the
/// ages of everything that was stored before. The default is [`FULL`](Self::FULL), without any
/// step.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use ratchet_core::model::{ClockTrust, ReclaimRequest};
/// use ratchet_core::time;
///
/// let before_the_step = time::from_millis(1_790_000_000_000);
/// let trust = ClockTrust::FULL.stepped(before_the_step, Duration::from_secs(3_600));
/// let request = ReclaimRequest::new().clock(trust);
/// assert_ne!(request.clock, ClockTrust::FULL);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockTrust {
    /// The steps forward, in the order in which they happened.
    steps: Vec<ForwardStep>,
    /// The latest time that the clock can show during the pass. A later time means another step.
    latest: Timestamp,
}

/// A step forward of the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ForwardStep {
    /// The latest time that may have been stored before the step.
    at: Timestamp,
    /// The maximum size of the step.
    by: Duration,
}

impl ClockTrust {
    /// Trusts all ages, because no step of the clock is known.
    pub const FULL: Self = Self {
        steps: Vec::new(),
        latest: Timestamp::MAX_UTC,
    };

    /// Adds a step forward. A time that is not later than `at` was stored before the step. So its
    /// age is `by` less than the clock suggests.
    #[must_use]
    pub fn stepped(mut self, at: Timestamp, by: Duration) -> Self {
        self.steps.push(ForwardStep { at, by });
        if self.steps.len() > MAX_STEPS {
            let earliest = self.steps.remove(0);
            self.steps[0].by += earliest.by;
        }
        self
    }

    /// Adds a step back by at least `by`. It cancels steps forward up to the total size `by`,
    /// beginning with the latest.
    #[must_use]
    pub fn stepped_back(mut self, by: Duration) -> Self {
        let mut left = by;
        for step in self.steps.iter_mut().rev() {
            let taken_back = step.by.min(left);
            step.by -= taken_back;
            left -= taken_back;
        }
        self.steps.retain(|step| !step.by.is_zero());
        self
    }

    /// Sets the latest time that the clock can show during the pass. A later time means that the
    /// clock has stepped again.
    #[must_use]
    pub fn until(mut self, latest: Timestamp) -> Self {
        self.latest = latest;
        self
    }

    /// Returns whether the clock can show `now` without another step. `now` is in milliseconds
    /// since 1970.
    pub(crate) fn allows(&self, now: i64) -> bool {
        now <= to_millis(self.latest)
    }

    /// Returns the corrected current time for the age of the time `stored`. It is `now` minus all
    /// steps forward since `stored`. All times are milliseconds since 1970.
    pub(crate) fn now_for(&self, stored: i64, now: i64) -> i64 {
        let since = self.steps.iter().rev();
        let since = since.take_while(|step| stored <= to_millis(step.at));
        since.fold(now, |now, step| {
            now.saturating_sub(duration_millis(step.by))
        })
    }
}

impl Default for ClockTrust {
    fn default() -> Self {
        Self::FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    #[test]
    fn full_trust_changes_no_age() {
        let trust = ClockTrust::FULL;
        for stored in [i64::MIN, 0, 1_790_000_000_000] {
            assert_eq!(trust.now_for(stored, 2_000_000_000_000), 2_000_000_000_000);
        }
        assert!(trust.allows(2_000_000_000_000));
    }

    #[test]
    fn only_times_from_before_the_step_are_younger_than_they_look() {
        let trust = ClockTrust::FULL.stepped(from_millis(1_000), Duration::from_secs(60));
        assert_eq!(trust.now_for(1_000, 61_500), 1_500);
        assert_eq!(trust.now_for(1_001, 61_500), 61_500);
    }

    #[test]
    fn a_time_between_two_steps_is_younger_by_the_second_only() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
        let trust = ClockTrust::FULL.stepped(from_millis(1_000), hour);
        let trust = trust.stepped(from_millis(9_000), minute);
        let later = 7_200_000;
        assert_eq!(trust.now_for(1_000, later), later - 3_660_000);
        assert_eq!(trust.now_for(1_001, later), later - 60_000);
        assert_eq!(trust.now_for(9_001, later), later);
    }

    #[test]
    fn a_step_back_takes_back_the_latest_steps() {
        let minute = Duration::from_secs(60);
        let trust = ClockTrust::FULL.stepped(from_millis(1_000), 2 * minute);
        let trust = trust.stepped(from_millis(9_000), minute);
        let back = trust.clone().stepped_back(minute + minute / 2);
        assert_eq!(back.now_for(1_000, 500_000), 500_000 - 90_000);
        assert_eq!(back.now_for(9_000, 500_000), 500_000);
        assert_eq!(trust.stepped_back(10 * minute), ClockTrust::FULL);
    }

    #[test]
    fn many_steps_are_bounded_and_none_is_forgotten() {
        let step = Duration::from_millis(1_000);
        let mut trust = ClockTrust::FULL;
        for number in 0..100 {
            trust = trust.stepped(from_millis(number), step);
        }
        assert_eq!(trust.steps.len(), MAX_STEPS);
        assert_eq!(trust.now_for(0, 500_000), 400_000);
    }

    #[test]
    fn a_time_beyond_the_latest_is_another_step() {
        let trust = ClockTrust::FULL.until(from_millis(5_000));
        assert!(trust.allows(5_000) && !trust.allows(5_001));
    }
}
