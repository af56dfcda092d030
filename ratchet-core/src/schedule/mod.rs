//! Schedules compute the slots of a recurring job, as a pure function of the time.
//!
//! A slot is a time at which a recurring job is to run. A [`Schedule`] defines the slots, a
//! [`Misfire`] decides what happens to missed slots, and an [`Overlap`] decides whether the job of
//! a slot may run at the same time as the job of an earlier slot.
//!
//! # Expressions
//! An expression has 5 fields: minute, hour, day of month, month, day of week. An expression of 6
//! fields begins with a field for the second, and one of 7 fields also ends with a field for the
//! year. Any number of spaces or tabs separates the fields. Commas, without spaces, separate the
//! items of a list. Upper and lower case are equivalent. Instead of fields, an expression may be
//! `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` or `@annually`.
//!
//! | field | values | also |
//! |---|---|---|
//! | second, minute | 0-59 | |
//! | hour | 0-23 | |
//! | day of month | 1-31 | `?` `L` `LW` `15W` |
//! | month | 1-12, `jan`-`dec` | |
//! | day of week | 0-7, `sun`-`sat`; 0 and 7 are Sunday | `?` `fri#2` `mon-fri#1` `friL` |
//! | year | 1970-9999; 9999 is also the last year of `*` | |
//!
//! - `*` is every value, `9-17` a range, and `1,5` a list. `*/5` is every fifth value and `9-17/2`
//!   every second value, from the first one on. `5/15` is `5-59/15`: a step without an end
//!   continues to the last value of the field, which is Saturday for days of the week.
//! - A range that ends before it begins wraps around: `22-6`, `nov-mar`, `fri-mon`, also with a
//!   step (`22-6/2` is 22, 0, 2, 4, 6). Days of the month and years do not wrap. `25-5` is refused
//!   because months have different lengths; write `25-31,1-5`.
//! - `L` is the last day of the month, and `LW` its last day from Monday to Friday. `15W` is the
//!   day from Monday to Friday that is nearest to the 15th and in the same month: `1W` is the 3rd
//!   if the 1st is a Saturday. A month without that day has no match, so `31W` matches in seven
//!   months of the year.
//! - `fri#2` is the second Friday of the month; `friL` and `fri#L` are the last one. `mon-fri#1` is
//!   the first Monday, the first Tuesday and so on to the first Friday: five days in total.
//! - `?` is the same as `*`.
//!
//! The two day fields follow crontab(5). A day matches if either field matches: `0 0 13 * 5` is
//! each 13th and each Friday. But if either field begins with `*` or `?`, or the day of the week
//! with `+`, a day must match both: `0 0 13 * +5` is each Friday the 13th, and `1 1 1-7 * */7` the
//! first Sunday.
//!
//! # Clock changes
//! A cron expression refers to the wall clock of a zone, which may be set forward and back. There
//! are two kinds of expressions. Their fields for second, minute and hour distinguish them:
//!
//! - *One time of day*: each of the three fields allows one value and does not begin with `*`.
//!   Examples are `30 2 * * *`, `30 2-2 * * *` and `30 2,2 * * *`. There is one slot for each
//!   matching day. If the clock skips that time, the slot is the first moment after the gap,
//!   however long the gap is, unless that moment is on a day that does not match. If the clock
//!   shows the time twice, the slot is the first of the two. A day that the clock skips entirely
//!   has no slot.
//! - *All other expressions* (`*/30 * * * *`, `0 9,21 * * *`): there is a slot whenever the clock
//!   shows a matching time. Times that the clock skips have no slot; times that it shows twice have
//!   two.
//!
//! [`ZoneData`] describes where the rules of the zones come from. The next slot of a definition is
//! computed when the previous slot is fired, so new rules apply from the slot after the next one.
//!
//! Intervals do not depend on zones: they always have the same length.
//!
//! Expressions and zones need the Cargo feature `cron`; without it, [`Schedule::cron`] returns an
//! error.

#[cfg(feature = "cron")]
mod cron;
#[cfg(not(feature = "cron"))]
#[path = "no_cron.rs"]
mod cron;
mod misfire;
#[cfg(feature = "cron")]
mod parse;
#[cfg(feature = "cron")]
mod pattern;
#[cfg(feature = "cron")]
mod zone;
mod zone_data;
#[cfg(feature = "cron")]
mod zones;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use misfire::slots_to_fire;
pub use misfire::{MAX_CATCH_UP, Misfire, Overlap};
pub use zone_data::ZoneData;

use crate::error::InvalidInput;
use crate::limits::{MAX_DELAY, MAX_RUN_AT};
use crate::time::{self, Timestamp};
use cron::Cron;

/// Returns a description of the time-zone data of this process. The node reports it in its
/// heartbeats. Returns `None` without the Cargo feature `cron`.
pub(crate) fn zone_data_in_use() -> Option<ZoneData> {
    #[cfg(feature = "cron")]
    return Some(ZoneData::in_use());
    #[cfg(not(feature = "cron"))]
    None
}

/// The times at which a recurring job runs: a cron expression in a zone, or a fixed interval.
///
/// A `Schedule` is checked when it is created, so every `Schedule` is valid.
///
/// ```
/// # fn main() -> Result<(), ratchet::InvalidInput> {
/// use std::time::Duration;
/// use ratchet::Schedule;
///
/// let nightly = Schedule::cron("0 3 * * *", "Europe/Berlin")?;
/// let often = Schedule::every(Duration::from_secs(90))?;
/// assert_eq!(nightly.to_string(), "0 3 * * * (Europe/Berlin)");
/// assert_eq!(often.interval(), Some(Duration::from_secs(90)));
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Schedule(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Cron(Cron),
    Every(Duration),
}

impl Schedule {
    /// The time zone of a cron expression if the caller sets no zone.
    pub const DEFAULT_ZONE: &'static str = "UTC";

    /// Creates a schedule from a cron expression. The expression refers to the wall clock of a time
    /// zone.
    ///
    /// The [module](self) describes the syntax of expressions and the effect of clock changes.
    /// Spell the name of the zone as in the IANA database, such as `Europe/Berlin`.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `cron` if the expression is invalid or never matches. The message
    /// contains the field, its value and the allowed values. [`InvalidInput`] naming `zone` if the
    /// zone is unknown. Without the Cargo feature `cron`, this function always returns an error.
    ///
    /// ```
    /// # fn main() -> Result<(), ratchet::InvalidInput> {
    /// use ratchet::Schedule;
    ///
    /// let winter = Schedule::cron("*/15 22-6 * nov-mar mon-fri", "Europe/Berlin")?;
    /// let refused = Schedule::cron("0 24 * * *", "UTC").unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "cron has the hour `24`: 24 is out of range; expected 0-23"
    /// );
    /// # Ok(()) }
    /// ```
    pub fn cron(expression: &str, zone: &str) -> Result<Self, InvalidInput> {
        Cron::new(expression, zone).map(|cron| Self(Kind::Cron(cron)))
    }

    /// Creates a schedule with a fixed interval. Each slot is a multiple of the interval after the
    /// first slot, so a late run does not shift later slots.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `interval` if the interval is shorter than one second or longer than
    /// 1,000 years.
    pub fn every(interval: Duration) -> Result<Self, InvalidInput> {
        let problem = if interval < Duration::from_secs(1) {
            "is shorter than one second"
        } else if interval > MAX_DELAY {
            "is longer than 1,000 years"
        } else {
            return Ok(Self(Kind::Every(time::whole_millis(interval))));
        };
        Err(InvalidInput::new("interval", problem))
    }

    /// Returns a schedule with the same cron expression in another zone.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `zone` if the zone is unknown, or if the schedule is an interval,
    /// which has no zone.
    pub fn in_zone(&self, zone: &str) -> Result<Self, InvalidInput> {
        match &self.0 {
            Kind::Cron(cron) => Self::cron(cron.expression(), zone),
            Kind::Every(_) => Err(InvalidInput::new("zone", "does not apply to an interval")),
        }
    }

    /// Returns the cron expression; `None` for an interval.
    #[must_use]
    pub fn expression(&self) -> Option<&str> {
        match &self.0 {
            Kind::Cron(cron) => Some(cron.expression()),
            Kind::Every(_) => None,
        }
    }

    /// Returns the zone of the cron expression; `None` for an interval.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        match &self.0 {
            Kind::Cron(cron) => Some(cron.zone()),
            Kind::Every(_) => None,
        }
    }

    /// Returns the interval; `None` for a cron expression.
    #[must_use]
    pub const fn interval(&self) -> Option<Duration> {
        match &self.0 {
            Kind::Cron(_) => None,
            Kind::Every(interval) => Some(*interval),
        }
    }

    /// Returns the first slot later than `after`, or `None` if there is no later slot. `anchor` is
    /// the first slot of a schedule with an interval. A schedule with a cron expression ignores
    /// `anchor`.
    #[must_use]
    pub fn next_after(&self, after: Timestamp, anchor: Timestamp) -> Option<Timestamp> {
        let (after, anchor) = (time::to_millis(after), time::to_millis(anchor));
        let next = match &self.0 {
            Kind::Cron(cron) => cron.next_after(after)?,
            Kind::Every(interval) => {
                next_of_interval(time::duration_millis(*interval), after, anchor)?
            }
        };
        (next <= MAX_RUN_AT).then(|| time::from_millis(next))
    }
}

fn next_of_interval(interval: i64, after: i64, anchor: i64) -> Option<i64> {
    if after < anchor {
        return Some(anchor);
    }
    let passed = after.checked_sub(anchor)? / interval;
    passed
        .checked_add(1)?
        .checked_mul(interval)?
        .checked_add(anchor)
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Cron(cron) => write!(f, "{} ({})", cron.expression(), cron.zone()),
            Kind::Every(interval) => write!(f, "every {interval:?}"),
        }
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({self})")
    }
}

/// The serialized form of a schedule.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stored {
    Cron { expression: String, zone: String },
    Every { millis: u64 },
}

impl From<Schedule> for Stored {
    fn from(schedule: Schedule) -> Self {
        match schedule.0 {
            Kind::Cron(cron) => Self::Cron {
                expression: cron.expression().to_owned(),
                zone: cron.zone().to_owned(),
            },
            Kind::Every(interval) => Self::Every {
                millis: time::duration_millis(interval).unsigned_abs(),
            },
        }
    }
}

impl TryFrom<Stored> for Schedule {
    type Error = InvalidInput;

    fn try_from(stored: Stored) -> Result<Self, InvalidInput> {
        match stored {
            Stored::Cron { expression, zone } => Self::cron(&expression, &zone),
            Stored::Every { millis } => Self::every(Duration::from_millis(millis)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(refused: Result<Schedule, InvalidInput>) -> &'static str {
        refused.unwrap_err().field()
    }

    #[test]
    fn what_has_no_meaning_is_refused_and_named() {
        assert_eq!(field(Schedule::cron("0 3 * *", "UTC")), "cron");
        assert_eq!(field(Schedule::cron("0 3 * * *", "Mars/Olympus")), "zone");
        assert_eq!(field(Schedule::cron("0 3 * * *", "")), "zone");
        assert_eq!(field(Schedule::every(Duration::ZERO)), "interval");
        assert_eq!(
            field(Schedule::every(Duration::from_millis(999))),
            "interval"
        );
        assert_eq!(field(Schedule::every(Duration::MAX)), "interval");
        let interval = Schedule::every(Duration::from_secs(1)).unwrap();
        assert_eq!(field(interval.in_zone("UTC")), "zone");
    }

    #[test]
    fn schedules_round_trip_through_stores() {
        for schedule in [
            Schedule::cron("0  3 * * *", "Europe/Berlin").unwrap(),
            Schedule::cron("@daily", "UTC").unwrap(),
            Schedule::every(Duration::from_millis(1_500)).unwrap(),
        ] {
            let text = serde_json::to_string(&schedule).unwrap();
            let again: Schedule = serde_json::from_str(&text).unwrap();
            assert_eq!(again, schedule);
            assert_eq!(serde_json::to_string(&again).unwrap(), text);
        }
        for broken in [
            r#"{"cron":{"expression":"61 * * * *","zone":"UTC"}}"#,
            r#"{"cron":{"expression":"1 * * * *","zone":"Nowhere"}}"#,
            r#"{"every":{"millis":0}}"#,
        ] {
            assert!(
                serde_json::from_str::<Schedule>(broken).is_err(),
                "{broken}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_slots_of_an_interval_are_whole_intervals_from_the_anchor(
            interval in 1_000_i64..10_000_000,
            anchor in 0_i64..10_000_000_000,
            after in 0_i64..10_000_000_000,
        ) {
            let every = Schedule::every(time::millis_between(0, interval)).unwrap();
            let next = every.next_after(time::from_millis(after), time::from_millis(anchor));
            let next = time::to_millis(next.unwrap());
            prop_assert!(next > after && next >= anchor);
            prop_assert_eq!((next - anchor) % interval, 0);
            prop_assert!(next == anchor || next - interval <= after);
        }
    }
}
