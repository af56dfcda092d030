//! Time zones: when the wall clock of a zone shows a time.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// An upper bound of all offsets from UTC, in seconds.
const MOST_OFFSET: i64 = 26 * 3_600;

/// The maximum number of [stretches](Stretch) that a search visits. Calendars and the rules of
/// zones repeat after 400 years, in which a clock that is changed twice a year has 800 stretches.
const MOST_STRETCHES: usize = 1_000;

/// A time zone, with its rules from the time-zone data in use.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    name: String,
    rules: TimeZone,
}

/// A period during which the clock is not changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// By how many seconds the clock is ahead of UTC.
    pub(super) offset: i64,
    /// When the clock is changed next, in seconds since 1970; `None` if it is never changed again.
    pub(super) end: Option<i64>,
}

/// When a clock first shows a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The clock shows the time at this moment, in seconds since 1970.
    At(i64),
    /// The clock skips the time. At the moment `end`, the clock jumps from `from` to `to`.
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

    /// Returns the offset at this time, and when the offset ends. Times are seconds since 1970.
    pub(super) fn stretch(&self, at: i64) -> Stretch {
        let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        let at = Timestamp::from_second(at.clamp(first, last)).unwrap_or(Timestamp::UNIX_EPOCH);
        let next = self.rules.following(at).next();
        Stretch {
            offset: i64::from(self.rules.to_offset(at).seconds()),
            end: next.map(|change| change.timestamp().as_second()),
        }
    }

    /// Returns when the clock first shows a time, or the gap that contains the time, however long
    /// the gap is.
    pub(super) fn first_shown(&self, time: i64) -> Shown {
        // At this moment, the clock of every zone shows a time before `time`.
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

    /// Returns the first moment at or after `from` at which the clock shows a match.
    ///
    /// `next_match` returns the first match at or after a time of the clock.
    pub(super) fn next_shown(
        &self,
        mut from: i64,
        next_match: impl Fn(i64) -> Option<i64>,
    ) -> Option<i64> {
        for _ in 0..MOST_STRETCHES {
            let stretch = self.stretch(from);
            // The clock may have been set back before the match. So the next stretches may have a
            // match, even if this one has none.
            let found = next_match(from + stretch.offset).map(|time| time - stretch.offset);
            let Some(end) = stretch.end else {
                return found;
            };
            if let Some(at) = found.filter(|at| *at < end) {
                return Some(at);
            }
            // From `end` on, the clock shows no match before `next`, so stretches without a match
            // are skipped.
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

    /// The expression matches half past two on each day on which the clocks of New York are set
    /// forward from two to three, so no clock shows a match.
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
