//! Rates limit the number of starts per interval. This module has the rule that grants starts.
//!
//! The rule is the generic cell rate algorithm. A rate consists of an interval between starts and a
//! burst. One number is stored per key, its *theoretical arrival time* (`tat`): the time at which
//! the next start would come if all granted starts had come one interval apart. A start is granted
//! while the `tat` is no more than `burst − 1` intervals in the future. This is equivalent to a
//! token bucket of `burst` tokens that gains one token per interval, but needs no task that refills
//! the bucket.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::limits::MAX_DELAY;
use crate::model::RateAnswer;
use crate::time;

/// The number of microseconds in a millisecond. Rates use microseconds, stores use milliseconds.
pub const MICROS: i64 = 1_000;

/// A limit on the number of starts per interval, for example of job starts.
///
/// In any period of length `t`, at most `burst + limit · t / per` starts are granted.
///
/// ```
/// use std::time::Duration;
/// use ratchet::Rate;
///
/// let rate = Rate::new(100, Duration::from_secs(60));
/// # drop(rate);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rate {
    limit: u32,
    per: Duration,
    burst: u32,
}

impl Rate {
    /// Creates a rate of `limit` starts in each period `per`. By default, all of these starts may
    /// be made at once.
    #[must_use]
    pub const fn new(limit: u32, per: Duration) -> Self {
        Self {
            limit,
            per,
            burst: limit,
        }
    }

    /// Sets the burst: how many starts may be made at once after a period without starts.
    #[must_use]
    pub const fn burst(mut self, starts: u32) -> Self {
        self.burst = starts;
        self
    }

    /// Checks that the rate grants at least one start, and at most one start per microsecond. Also
    /// checks that the burst refills within 1,000 years.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `limit`, `per` or `burst`.
    pub fn validate(&self) -> Result<(), InvalidInput> {
        if self.limit == 0 {
            return Err(InvalidInput::new("limit", "is 0"));
        }
        if self.burst == 0 {
            return Err(InvalidInput::new("burst", "is 0"));
        }
        if self.per.as_micros() < u128::from(self.limit) {
            let problem = format!(
                "is {:?}, which is too short for {} starts: one start needs at \
                 least 1 µs",
                self.per, self.limit
            );
            return Err(InvalidInput::new("per", problem));
        }
        if self.interval().saturating_mul(self.burst) > MAX_DELAY {
            return Err(InvalidInput::new(
                "per",
                "is too long: at this rate, refilling the burst would take more than 1,000 years",
            ));
        }
        Ok(())
    }

    /// Returns the time in which the rate grants one start: `per` divided by `limit`, rounded up to
    /// the microsecond.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_micros(self.interval_micros().unsigned_abs())
    }

    /// Returns [`interval`](Self::interval) in microseconds.
    #[must_use]
    pub fn interval_micros(&self) -> i64 {
        let interval = self
            .per
            .as_nanos()
            .div_ceil(1_000 * u128::from(self.limit.max(1)));
        i64::try_from(interval).unwrap_or(i64::MAX)
    }

    /// Returns the tolerance in microseconds. A start is granted if the stored theoretical arrival
    /// time (`tat`) of the key is at most this far in the future.
    #[must_use]
    pub fn tolerance_micros(&self) -> i64 {
        self.tolerance_of(self.interval_micros())
    }

    fn tolerance_of(&self, interval: i64) -> i64 {
        interval.saturating_mul(i64::from(self.burst.saturating_sub(1)))
    }

    /// Returns the burst: how many starts may be made at once after a period without starts.
    #[must_use]
    pub const fn at_once(&self) -> u32 {
        self.burst
    }

    /// Decides whether one start at `now` is granted for a key. `tat` is the stored theoretical
    /// arrival time of the key; `None` if the key was never used. Both times are in microseconds.
    ///
    /// If `tat` is further in the future than this rate can set it, a slower rate has set it, or
    /// the clock was set back. Such a `tat` counts as an empty bucket, so no job waits for more
    /// than one interval.
    #[must_use]
    pub fn take(&self, tat: Option<i64>, now: i64) -> Taken {
        let interval = self.interval_micros();
        let tolerance = self.tolerance_of(interval);
        let tat = tat.unwrap_or(now).max(now);
        if tat.saturating_sub(now) <= tolerance {
            return Taken::Granted {
                tat: tat.saturating_add(interval),
            };
        }
        let emptied = now.saturating_add(tolerance).saturating_add(interval);
        let wait = tat
            .min(emptied)
            .saturating_sub(tolerance)
            .saturating_sub(now);
        Taken::Wait {
            wait: Duration::from_micros(wait.unsigned_abs()),
            tat: (tat > emptied).then_some(emptied),
        }
    }
}

/// The decision about a request for one start.
///
/// ```
/// # use std::time::Duration;
/// use ratchet::{Rate, RateAnswer};
/// use ratchet_core::rate::Taken;
///
/// let rate = Rate::new(1, Duration::from_secs(1));
/// let now = 0;
/// if let Taken::Granted { tat } = rate.take(None, now) {
///     let next = rate.take(Some(tat), now);
///     assert_eq!(next.answer(), RateAnswer::Wait(Duration::from_secs(1)));
/// }
/// # assert!(matches!(rate.take(None, now), Taken::Granted { .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The start is granted.
    Granted {
        /// The new theoretical arrival time (`tat`) to store for the key, in microseconds.
        tat: i64,
    },
    /// The start has to wait.
    Wait {
        /// The time to wait, if no other request is granted before.
        wait: Duration,
        /// The new theoretical arrival time (`tat`) to store for the key, in microseconds; `None`
        /// keeps the stored time.
        tat: Option<i64>,
    },
}

impl Taken {
    /// Returns the answer for the caller. The wait is rounded up to whole milliseconds, because
    /// stores keep times in milliseconds.
    #[must_use]
    pub fn answer(self) -> RateAnswer {
        match self {
            Self::Granted { .. } => RateAnswer::Granted,
            Self::Wait { wait, .. } => RateAnswer::Wait(time::whole_millis(wait)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Requests one start at each of these times, and returns the times at which a start was
    /// granted. All times are in microseconds.
    fn granted(rate: Rate, times: &[i64]) -> Vec<i64> {
        let mut known = None;
        let mut granted = Vec::new();
        for now in times {
            match rate.take(known, *now) {
                Taken::Granted { tat } => {
                    known = Some(tat);
                    granted.push(*now);
                }
                Taken::Wait { tat, .. } => known = tat.or(known),
            }
        }
        granted
    }

    #[test]
    fn a_table_of_starts() {
        let ms = |times: &[i64]| times.iter().map(|at| at * MICROS).collect::<Vec<_>>();
        let table: [(Rate, &[i64], &[i64]); 5] = [
            // One per 100 ms.
            (
                Rate::new(10, SECOND).burst(1),
                &[0, 0, 99, 100, 150, 199, 200],
                &[0, 100, 200],
            ),
            // Three at once, then one per 100 ms.
            (
                Rate::new(10, SECOND).burst(3),
                &[0, 0, 0, 0, 100, 100, 199, 200],
                &[0, 0, 0, 100, 200],
            ),
            // Unused starts do not add up beyond the burst.
            (
                Rate::new(10, SECOND).burst(2),
                &[0, 5_000, 5_000, 5_000],
                &[0, 5_000, 5_000],
            ),
            // The burst is the limit unless it is set.
            (Rate::new(2, SECOND), &[0, 0, 0, 499, 500], &[0, 0, 500]),
            // The clock is set back: no job waits for more than one interval.
            (
                Rate::new(10, SECOND).burst(1),
                &[9_000, 1_000, 1_099, 1_100],
                &[9_000, 1_100],
            ),
        ];
        for (rate, asked, expected) in table {
            assert_eq!(granted(rate, &ms(asked)), ms(expected), "{rate:?}");
        }
    }

    #[test]
    fn a_faster_rate_forgives_what_a_slower_one_counted() {
        let Taken::Granted { tat } = Rate::new(1, 3_600 * SECOND).take(None, 0) else {
            panic!("expected the first start to be granted");
        };
        let fast = Rate::new(100, SECOND).burst(1);
        let Taken::Wait { wait, tat } = fast.take(Some(tat), 0) else {
            panic!("expected the next start to wait, because the earlier start counts");
        };
        assert_eq!(wait, Duration::from_millis(10));
        assert!(matches!(fast.take(tat, 10 * MICROS), Taken::Granted { .. }));
    }

    #[test]
    fn rates_that_make_no_sense_are_refused() {
        for (rate, field) in [
            (Rate::new(0, SECOND), "limit"),
            (Rate::new(1, SECOND).burst(0), "burst"),
            (Rate::new(2, Duration::from_micros(1)), "per"),
            (Rate::new(1, Duration::ZERO), "per"),
            (Rate::new(1, Duration::MAX), "per"),
        ] {
            assert_eq!(rate.validate().unwrap_err().field(), field, "{rate:?}");
        }
        assert_eq!(Rate::new(3, SECOND).validate(), Ok(()));
    }

    #[test]
    fn intervals_round_up_and_waits_to_the_millisecond() {
        let rate = Rate::new(3, SECOND).burst(1);
        assert_eq!(rate.interval_micros(), 333_334);
        let Taken::Granted { tat } = rate.take(None, 0) else {
            panic!("expected the first start to be granted");
        };
        let answer = rate.take(Some(tat), 0).answer();
        assert_eq!(answer, RateAnswer::Wait(Duration::from_millis(334)));
    }

    proptest! {
        /// No period has more starts than the burst plus the tokens that the bucket gains in this
        /// period.
        #[test]
        fn no_stretch_has_too_many(
            limit in 1_u32..20,
            burst in 1_u32..10,
            mut steps in prop::collection::vec(0_i64..200_000, 1..100),
        ) {
            let rate = Rate::new(limit, SECOND).burst(burst);
            let mut now = 0;
            for step in &mut steps {
                now += *step;
                *step = now;
            }
            let starts = granted(rate, &steps);
            for (first, from) in starts.iter().enumerate() {
                for (last, to) in starts.iter().enumerate().skip(first) {
                    let back = (to - from) / rate.interval_micros();
                    let most = i64::from(burst) + back;
                    prop_assert!(i64::try_from(last - first).unwrap() < most);
                }
            }
        }

        /// A start is granted as soon as the returned wait is over, but not before.
        #[test]
        fn the_wait_is_exact(
            limit in 1_u32..20,
            burst in 1_u32..10,
            ahead in 0_i64..5_000_000,
        ) {
            let rate = Rate::new(limit, SECOND).burst(burst);
            if let Taken::Wait { wait, tat } = rate.take(Some(ahead), 0) {
                let tat = Some(tat.unwrap_or(ahead));
                let wait = i64::try_from(wait.as_micros()).unwrap();
                prop_assert!(wait > 0 && wait <= rate.interval_micros());
                let (early, in_time) = (rate.take(tat, wait - 1), rate.take(tat, wait));
                prop_assert!(matches!(early, Taken::Wait { .. }), "{:?}", early);
                prop_assert!(matches!(in_time, Taken::Granted { .. }), "{:?}", in_time);
            }
        }
    }
}
