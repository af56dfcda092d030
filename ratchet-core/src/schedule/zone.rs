//! A zone: which offset its clock has at which time.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// More than any offset from UTC, in seconds.
const MOST_OFFSET: i64 = 26 * 3_600;

/// The most stretches that a search tries. Calendars and the rules of zones repeat after 400 years,
/// and in that time a clock that is changed twice a year has 800 stretches.
const MOST_STRETCHES: usize = 1_000;

/// A zone of the data in use.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    name: String,
    rules: TimeZone,
}

/// A time during which a clock is not changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// By how many seconds the clock is ahead of UTC.
    pub(super) offset: i64,
    /// When the clock is changed next, in seconds since 1970.
    pub(super) end: Option<i64>,
}

/// When a clock shows a time for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// It does so then.
    At(i64),
    /// It skips the time. The gap ends at `end`; the clock goes from `from` to `to`.
    Skipped { end: i64, from: i64, to: i64 },
}

impl Zone {
    pub(super) fn new(name: &str, rules: TimeZone) -> Self {
        let name = name.to_owned();
        Self { name, rules }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What the clock does from this time on, in seconds since 1970.
    pub(super) fn stretch(&self, at: i64) -> Stretch {
        let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        let at = Timestamp::from_second(at.clamp(first, last)).unwrap_or(Timestamp::UNIX_EPOCH);
        let next = self.rules.following(at).next();
        Stretch {
            offset: i64::from(self.rules.to_offset(at).seconds()),
            end: next.map(|change| change.timestamp().as_second()),
        }
    }

    /// When the clock shows a time first, or the gap that it is in, however long that is.
    pub(super) fn first_shown(&self, time: i64) -> Shown {
        // The clock shows an earlier time then, wherever it is.
        let mut begin = time - MOST_OFFSET;
        let mut before = 0;
        loop {
            let stretch = self.stretch(begin);
            let at = time - stretch.offset;
            if at < begin {
                let (from, to) = (begin + before, begin + stretch.offset);
                return Shown::Skipped {
                    end: begin,
                    from,
                    to,
                };
            }
            match stretch.end {
                Some(end) if at >= end => (begin, before) = (end, stretch.offset),
                _ => return Shown::At(at),
            }
        }
    }

    /// The first time at or after `from` at which the clock shows a match.
    ///
    /// `next_match` returns the first match at or after a time of the clock.
    pub(super) fn next_shown(
        &self,
        mut from: i64,
        next_match: impl Fn(i64) -> Option<i64>,
    ) -> Option<i64> {
        for _ in 0..MOST_STRETCHES {
            let stretch = self.stretch(from);
            // The clock may have been set back before the match, so the next stretches may have one
            // even if this one has none.
            let found = next_match(from + stretch.offset).map(|time| time - stretch.offset);
            let Some(end) = stretch.end else {
                return found;
            };
            if let Some(at) = found.filter(|at| *at < end) {
                return Some(at);
            }
            // No clock shows a match before the first one of this time, so stretches without any
            // are passed over.
            let next = next_match(end - MOST_OFFSET)?;
            from = end.max(next - MOST_OFFSET);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Half past two on each day on which the clocks of New York go forward: no clock shows it.
    #[test]
    fn a_search_for_what_no_clock_shows_ends() {
        let zone = jiff::tz::TimeZoneDatabase::bundled().get("America/New_York");
        let zone = Zone::new("America/New_York", zone.unwrap());
        let looks = Cell::new(0);
        let next_match = |time: i64| {
            looks.set(looks.get() + 1);
            let mut begin = time - 2 * MOST_OFFSET;
            loop {
                let (before, end) = (zone.stretch(begin).offset, zone.stretch(begin).end?);
                let skipped = end + before + 1_800;
                if zone.stretch(end).offset > before && skipped >= time {
                    return Some(skipped);
                }
                begin = end;
            }
        };
        assert_eq!(zone.next_shown(1_780_000_000, next_match), None);
        assert!(looks.get() <= 2 * MOST_STRETCHES, "{} looks", looks.get());
        assert!(looks.get() >= MOST_STRETCHES, "{} looks", looks.get());
    }
}
