//! Finds the times and days that a cron expression matches, on a clock and a calendar without a
//! time zone.
//!
//! Each field is a set of bits, and bit operations compute all matching days of a month at once, so
//! no search visits single days. A search is always bounded: it visits each of the 14 kinds of
//! years (leap year or not, and the weekday of 1 January) at most once, whether the expression
//! matches or not.

use chrono::{Datelike, Month, NaiveDate};

/// The number of seconds of a calendar day.
pub(super) const DAY: i64 = 86_400;
/// The first year that an expression can match.
pub(super) const FIRST_YEAR: u32 = 1970;
/// The last year that an expression can match. It is also the last year in which a job may be due.
pub(super) const LAST_YEAR: u32 = 9999;

/// The bits of every seventh day, starting with bit 0.
const EVERY_SEVENTH: u64 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;
const SATURDAY: u32 = 6;
const SUNDAY: u32 = 0;

/// The values that each field of a cron expression matches. In a set of bits, bit `n` stands for
/// the value `n`.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) days: Days,
    pub(super) months: u64,
    pub(super) weekdays: Weekdays,
    /// The matching years in ascending order; `None` matches every year.
    pub(super) years: Option<Vec<u32>>,
    /// Whether a day must match both fields for days. If false, one of the two fields is enough.
    pub(super) both: bool,
    /// Whether the expression has one time of day: the fields for second, minute and hour each
    /// match a single value, and none of them begins with `*` or `?`.
    pub(super) once_a_day: bool,
}

/// The values that the field for the day of the month matches.
#[derive(Debug, Default)]
pub(super) struct Days {
    pub(super) listed: u64,
    /// The days `n` given as `nW`, as a set of bits. `nW` matches the day from Monday to Friday
    /// that is nearest to day `n`.
    pub(super) nearest: u64,
    /// Whether the field contains `L`, the last day of the month.
    pub(super) last: bool,
    /// Whether the field contains `LW`, the last day of the month from Monday to Friday.
    pub(super) last_weekday: bool,
}

/// The values that the field for the day of the week matches; Sunday is 0.
#[derive(Debug, Default)]
pub(super) struct Weekdays {
    pub(super) every: u64,
    /// The weekdays given with a number, such as `fri#2`. Index 1 contains, as a set of bits, the
    /// weekdays that match on their second occurrence in a month.
    pub(super) nth: [u64; 5],
    /// The weekdays given with `L`, such as `friL`, as a set of bits. They match on their last
    /// occurrence in a month.
    pub(super) last: u64,
}

/// The shape of a month: its number of days, and the weekday on which it begins.
#[derive(Clone, Copy)]
struct MonthShape {
    length: u32,
    first: u32,
}

impl Pattern {
    /// Returns the first matching time at or after `time`. Both are in seconds since 1970, on a
    /// clock without a time zone.
    pub(super) fn next_from(&self, time: i64) -> Option<i64> {
        let (day, second) = (time.div_euclid(DAY), time.rem_euclid(DAY));
        let first = self.next_day(day)?;
        if first == day
            && let Some(second) = self.next_second(second)
        {
            return Some(day * DAY + second);
        }
        let next = if first == day {
            self.next_day(day + 1)?
        } else {
            first
        };
        Some(next * DAY + self.first_second())
    }

    /// Returns the first matching day at or after `day`. Days are counted from 1970-01-01, and
    /// earlier days never match.
    pub(super) fn next_day(&self, day: i64) -> Option<i64> {
        let from = NaiveDate::from_epoch_days(i32::try_from(day.max(0)).ok()?)?;
        let year = u32::try_from(from.year()).ok()?;
        self.years_to_search(year).find_map(|searched| {
            let from = (searched == year).then_some(from);
            self.day_of_year(searched, from)
        })
    }

    /// Returns whether `day` matches. Days are counted from 1970-01-01.
    pub(super) fn is_day(&self, day: i64) -> bool {
        self.next_day(day) == Some(day)
    }

    /// Returns the first matching time of a matching day, in seconds since midnight.
    pub(super) fn first_second(&self) -> i64 {
        let first = |bits: u64| i64::from(bits.trailing_zeros());
        first(self.hours) * 3_600 + first(self.minutes) * 60 + first(self.seconds)
    }

    /// Returns the years that a search from the year `from` on must visit. These are `from` itself,
    /// and the first later year of each kind. All years of one kind have the same calendar: if one
    /// of them has no matching day, no year of this kind has one.
    fn years_to_search(&self, from: u32) -> impl Iterator<Item = u32> {
        let listed = self.years.as_deref();
        let begin = listed.map_or(0, |years| years.partition_point(|year| *year < from));
        let years: Box<dyn Iterator<Item = u32>> = match listed {
            Some(years) => Box::new(years[begin..].iter().copied()),
            None => Box::new(from..=LAST_YEAR),
        };
        let mut looked_at = 0_u16;
        years
            .scan((), move |(), year| {
                let kind = kind_of(year)?;
                let is_new = year == from || looked_at & kind == 0;
                // The search may cover only a part of the first year. So if this year has no
                // match, later years of the same kind may still have one.
                if year > from {
                    looked_at |= kind;
                }
                Some(is_new.then_some(year))
            })
            .flatten()
    }

    /// Returns the first matching day of a year, counted from 1970-01-01. If `from` is given,
    /// earlier days are ignored.
    fn day_of_year(&self, year: u32, from: Option<NaiveDate>) -> Option<i64> {
        let year = i32::try_from(year).ok()?;
        let mut month = from.map_or(1, |from| from.month());
        let mut day = from.map_or(1, |from| from.day());
        loop {
            let next = next_bit(self.months, month)?;
            if next > month {
                day = 1;
            }
            let first = NaiveDate::from_ymd_opt(year, next, 1)?;
            let shape = MonthShape {
                length: u32::from(
                    Month::try_from(u8::try_from(next).ok()?)
                        .ok()?
                        .num_days(year)?,
                ),
                first: first.weekday().num_days_from_sunday(),
            };
            if let Some(found) = next_bit(self.days_of(shape), day) {
                return Some(i64::from(first.with_day(found)?.to_epoch_days()));
            }
            (month, day) = (next + 1, 1);
        }
    }

    /// Returns the matching days of a month, as a set of bits.
    fn days_of(&self, month: MonthShape) -> u64 {
        let listed = self.days.of(month);
        let weekdays = self.weekdays.of(month);
        if self.both {
            listed & weekdays
        } else {
            listed | weekdays
        }
    }

    /// Returns the first matching time of a day at or after `second`. Both are in seconds since
    /// midnight.
    fn next_second(&self, second: i64) -> Option<i64> {
        let second = u32::try_from(second).ok()?;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let first = |bits: u64| bits.trailing_zeros();
        let this_minute = || {
            let second = next_bit(self.seconds, second)?;
            has(self.minutes, minute).then_some((hour, minute, second))
        };
        let this_hour = || {
            let minute = next_bit(self.minutes, minute + 1)?;
            Some((hour, minute, first(self.seconds)))
        };
        let found = has(self.hours, hour)
            .then(|| this_minute().or_else(this_hour))
            .flatten();
        let (hour, minute, second) = found.or_else(|| {
            let hour = next_bit(self.hours, hour + 1)?;
            Some((hour, first(self.minutes), first(self.seconds)))
        })?;
        Some(i64::from(hour * 3_600 + minute * 60 + second))
    }
}

impl Days {
    fn of(&self, month: MonthShape) -> u64 {
        let mut days = self.listed & month.days();
        if self.last {
            days |= 1 << month.length;
        }
        if self.last_weekday {
            days |= 1 << month.nearest_weekday(month.length);
        }
        let mut day = 0;
        // A day that does not exist in the month has no nearest weekday.
        while let Some(next) = next_bit(self.nearest & month.days(), day) {
            days |= 1 << month.nearest_weekday(next);
            day = next + 1;
        }
        days
    }
}

impl Weekdays {
    fn of(&self, month: MonthShape) -> u64 {
        let mut days = 0;
        for weekday in SUNDAY..=SATURDAY {
            let first = 1 + (weekday + 7 - month.first) % 7;
            let all = (EVERY_SEVENTH << first) & month.days();
            if has(self.every, weekday) {
                days |= all;
            }
            if has(self.last, weekday) {
                days |= 1 << all.ilog2();
            }
            for (week, nth) in (0_u32..).zip(self.nth) {
                if has(nth, weekday) {
                    days |= all & (1 << (first + 7 * week));
                }
            }
        }
        days
    }
}

impl MonthShape {
    /// Returns all days of the month, as a set of bits.
    const fn days(self) -> u64 {
        (2 << self.length) - 2
    }

    /// Returns the day from Monday to Friday of this month that is nearest to `day`.
    const fn nearest_weekday(self, day: u32) -> u32 {
        match (self.first + day - 1) % 7 {
            SATURDAY if day == 1 => 3,
            SATURDAY => day - 1,
            SUNDAY if day == self.length => day - 2,
            SUNDAY => day + 1,
            _ => day,
        }
    }
}

/// Returns one of 14 bits for the kind of the year. The kind depends on the weekday of 1 January
/// and on whether the year is a leap year.
fn kind_of(year: u32) -> Option<u16> {
    let first = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, 1, 1)?;
    let leap = u32::from(first.leap_year());
    Some(1 << (first.weekday().num_days_from_sunday() + 7 * leap))
}

const fn has(bits: u64, value: u32) -> bool {
    bits >> value & 1 == 1
}

/// Returns the lowest value in the set `bits` that is at least `from`.
fn next_bit(bits: u64, from: u32) -> Option<u32> {
    let left = bits.checked_shr(from)?;
    (left != 0).then(|| from + left.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use crate::schedule::parse::parse;

    /// A search visits few years, so an expression that never matches is refused quickly. The test
    /// counts years and not time, so it passes on slow machines too.
    #[test]
    fn a_search_looks_at_each_kind_of_year_once() {
        for expression in [
            "0 0 0 30 2 ? *",
            "0 0 0 30 2 ? 1970-9999",
            "0 0 0 30 2 ? 1996-9999/4",
            "0 0 0 31 2,4,6,9,11 ? *",
            "0 0 0 29 2 ? 2100,2200,2300",
            "0 0 0 29 2 +0#5 *",
        ] {
            let pattern = parse(expression).unwrap();
            for from in [1970, 2026, 2399, 9999] {
                let years = pattern.years_to_search(from).count();
                assert!(
                    years <= 15,
                    "`{expression}` from {from}: expected at most 15 years to \
                     search, found {years}"
                );
            }
        }
    }

    #[test]
    fn a_search_begins_anywhere_and_ends_with_the_last_year() {
        let pattern = parse("0 0 29 2 *").unwrap();
        assert_eq!(pattern.next_day(-1_000_000_000), pattern.next_day(0));
        let last = pattern.next_day(2_931_000).unwrap();
        assert!(pattern.is_day(last) && !pattern.is_day(last + 1));
        assert_eq!(pattern.next_day(2_932_896), None);
        assert_eq!(pattern.next_day(i64::MAX), None);
    }
}
