//! Computes the slots of a cron expression in a time zone, whose wall clock may be set forward and
//! back.

use std::iter;
use std::sync::Arc;

use super::parse::parse;
use super::pattern::{DAY, Pattern};
use super::zone::{Shown, Zone};
use super::zones::{ZONES, Zones};
use crate::error::InvalidInput;

/// The maximum length of a cron expression in bytes.
const MAX_BYTES: usize = 256;

/// The maximum number of matching days that a search for a slot examines. A matching day has no
/// slot only if the clock skips the expression's time of day, at most once a year. So 400 matching
/// days without a slot cover at least 400 years. Calendars repeat after 400 years, so no later day
/// has a slot either.
const MOST_DAYS: usize = 400;

/// A cron expression, and the time zone whose wall clock the expression refers to.
#[derive(Clone)]
pub(super) struct Cron {
    expression: Arc<str>,
    zone: Zone,
    pattern: Arc<Pattern>,
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.expression == other.expression && self.zone() == other.zone()
    }
}

impl Eq for Cron {}

impl Cron {
    pub(super) fn new(expression: &str, zone: &str) -> Result<Self, InvalidInput> {
        Self::with_zones(expression, zone, &ZONES)
    }

    fn with_zones(expression: &str, zone: &str, zones: &Zones) -> Result<Self, InvalidInput> {
        let zone = zones.get(zone)?;
        let refused = |problem: String| InvalidInput::new("cron", problem);
        if expression.len() > MAX_BYTES {
            let bytes = expression.len();
            return Err(refused(format!(
                "has {bytes} bytes; at most {MAX_BYTES} are allowed"
            )));
        }
        let pattern = parse(expression).map_err(refused)?;
        let fields: Vec<&str> = expression.split_whitespace().collect();
        let cron = Self {
            expression: fields.join(" ").into(),
            zone,
            pattern: Arc::new(pattern),
        };
        match cron.next_after(0) {
            Some(_) => Ok(cron),
            None => Err(refused(format!(
                "`{}` never matches: no clock of this zone shows such a time from 1970 to 9999",
                cron.expression
            ))),
        }
    }

    pub(super) fn expression(&self) -> &str {
        &self.expression
    }

    pub(super) fn zone(&self) -> &str {
        self.zone.name()
    }

    /// Returns the first slot later than `after`. Both times are in milliseconds since 1970.
    pub(super) fn next_after(&self, after: i64) -> Option<i64> {
        let after = after.div_euclid(1_000);
        let next = if self.pattern.once_a_day {
            self.next_day_after(after)
        } else {
            let next_match = |time| self.pattern.next_from(time);
            self.zone.next_shown(after + 1, next_match)
        };
        next?.checked_mul(1_000)
    }

    /// Returns the first slot later than `after`, for an expression with one slot per matching day.
    /// Both times are in seconds since 1970.
    fn next_day_after(&self, after: i64) -> Option<i64> {
        let mut slots = self.days_around(after).filter_map(|day| self.slot_of(day));
        slots.find(|slot| *slot > after)
    }

    /// Returns up to [`MOST_DAYS`] matching days in ascending order. The search begins one day
    /// before the day that the clock shows at `time`.
    fn days_around(&self, time: i64) -> impl Iterator<Item = i64> {
        let shown = time + self.zone.stretch(time).offset;
        // Start one day earlier, because the clock may have been set back to that day.
        let first = self.pattern.next_day(shown.div_euclid(DAY) - 1);
        let days = iter::successors(first, |day| self.pattern.next_day(day + 1));
        days.take(MOST_DAYS)
    }

    /// Returns the slot of a day: the first moment at which the clock shows the pattern's time of
    /// day. If the clock skips that time, the slot is the moment at which the clock is set forward.
    /// There is no slot if the clock skips the whole day, or if it is set forward to a day that
    /// does not match.
    fn slot_of(&self, day: i64) -> Option<i64> {
        let begin = day * DAY;
        match self.zone.first_shown(begin + self.pattern.first_second()) {
            Shown::At(at) => Some(at),
            Shown::Skipped { end, from, to } => {
                let is_whole_day = from <= begin && to >= begin + DAY;
                let matches = self.pattern.is_day(to.div_euclid(DAY));
                (!is_whole_day && matches).then_some(end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::to_millis;

    /// The compiled-in time-zone data contains the rule changes of 2026.
    #[test]
    fn the_rules_of_2026_hold() {
        let zones = Zones::open(&["/nowhere"]);
        for (zone, after, first) in [
            // From 2026 on, this zone is seven hours behind UTC in winter too.
            (
                "America/Vancouver",
                "2026-12-01T00:00:00Z",
                "2026-12-01T16:00:00Z",
            ),
            (
                "Africa/Casablanca",
                "2026-12-01T00:00:00Z",
                "2026-12-01T09:00:00Z",
            ),
        ] {
            let cron = Cron::with_zones("0 9 * * *", zone, &zones).unwrap();
            let millis = |text: &str| to_millis(text.parse().unwrap());
            assert_eq!(
                cron.next_after(millis(after)),
                Some(millis(first)),
                "{zone}"
            );
        }
    }

    /// If the clock skips the time of an expression on every matching day, the expression has no
    /// slot, and the search for a slot ends.
    #[test]
    fn a_time_that_every_clock_skips_never_matches() {
        let zones = Zones::open(&["/nowhere"]);
        for (expression, zone) in [
            // The second Sunday of March, when clocks go from 02:00 to 03:00.
            ("0 0,30 2 8-14 3 +sun 2007-9999", "America/New_York"),
            // The Saturday before the last Sunday of March, when clocks go from 23:00 to Sunday.
            ("0 30 23 24-30 3 +sat 2024-9999", "America/Nuuk"),
        ] {
            let refused = Cron::with_zones(expression, zone, &zones).err();
            assert!(refused.is_some(), "{expression} in {zone}");
        }
        let daily = Cron::with_zones("30 2 * * *", "America/New_York", &zones).unwrap();
        assert_eq!(daily.days_around(0).count(), MOST_DAYS);
    }
}
