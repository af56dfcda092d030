//! Computes when the wall clock of a time zone shows a given time.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// An upper bound of all offsets from UTC, in seconds.
const MOST_OFFSET: i64 = 26 * 3_600;

/// The maximum number of [stretches](Stretch) that a search visits. Calendars and the rules of
/// zones repeat after 400 years. A clock that is changed twice a year has 800 stretches in this
/// time, so a longer search would find nothing new.
const MOST_STRETCHES: usize = 1_000;

/// A time zone, with its rules from the time-zone data in use.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    name: String,
    rules: TimeZone,
}

/// A period during which the clock of a zone has one offset from UTC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// Number of seconds by which the clock is ahead of UTC.
    pub(super) offset: i64,
    /// Time of the next clock change, in seconds since 1970. `None` if the clock is never changed
    /// again.
    pub(super) end: Option<i64>,
}

/// The moment at which a clock first shows a given time, or the clock change that skips the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The clock shows the time at this moment, in seconds since 1970.
    At(i64),
    /// The clock skips the time. At the moment `end`, in seconds since 1970, the clock is set
    /// forward from the local time `from` to the local time `to`.
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

    /// Returns the stretch that contains the moment `at`, in seconds since 1970.
    pub(super) fn stretch(&self, at: i64) -> Stretch {
        let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        let at = Timestamp::from_second(at.clamp(first, last)).unwrap_or(Timestamp::UNIX_EPOCH);
        let next = self.rules.following(at).next();
        Stretch {
            offset: i64::from(self.rules.to_offset(at).seconds()),
            end: next.map(|change| change.timestamp().as_second()),
        }
    }

    /// Returns the moment at which the clock first shows `time`. If the clock skips `time`, returns
    /// the clock change that skips it, whatever its size.
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

    /// Returns the first moment at or after `from` at which the clock shows a matching time.
    ///
    /// `next_match` takes a local time and returns the first matching local time at or after it.
    pub(super) fn next_shown(
        &self,
        mut from: i64,
        next_match: impl Fn(i64) -> Option<i64>,
    ) -> Option<i64> {
        for _ in 0..MOST_STRETCHES {
            let stretch = self.stretch(from);
            // The search continues even if this stretch has no match: if the clock is set back at
            // its end, the next stretch shows earlier times, which may match.
            let found = next_match(from + stretch.offset).map(|time| time - stretch.offset);
            let Some(end) = stretch.end else {
                return found;
            };
            if let Some(at) = found.filter(|at| *at < end) {
                return Some(at);
            }
            // From `end` on, `next` is the first matching time that the clock can show. So the
            // search skips all stretches that end before the clock can show `next`.
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

    /// On some days, the clocks of New York are set forward from 02:00 to 03:00. In this test,
    /// `next_match` matches 02:30 on exactly these days. So the clock never shows a match, and the
    /// search must end without one.
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
