//! Tests of cron expressions in zones whose clocks change, as for daylight saving time: a table of
//! examples, and properties that always hold.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Timelike, Utc};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use ratchet_core::Schedule;

use crate::{local, slots};

struct Row {
    zone: &'static str,
    expression: &'static str,
    after: &'static str,
    slots: &'static [&'static str],
}

macro_rules! table {
    ($(in $zone:literal: $($expression:literal after $after:literal gives $($slot:literal)+;)+)+) => {
        &[$($(Row {
            zone: $zone,
            expression: $expression,
            after: $after,
            slots: &[$($slot),+],
        },)+)+]
    };
}

static TABLE: &[Row] = table! {
    // Clock changes: 2026-03-08 02:00 -05 becomes 03:00 -04; 2026-11-01 02:00 -04 becomes 01:00
    // -05.
    in "America/New_York":
    "30 2 * * *" after "2026-03-07T12:00:00-05:00" gives
        "2026-03-08T03:00:00-04:00" "2026-03-09T02:30:00-04:00";
    "0 2 * * *" after "2026-03-07T12:00:00-05:00" gives
        "2026-03-08T03:00:00-04:00" "2026-03-09T02:00:00-04:00";
    "0 3 * * *" after "2026-03-07T12:00:00-05:00" gives
        "2026-03-08T03:00:00-04:00" "2026-03-09T03:00:00-04:00";
    "*/30 * * * *" after "2026-03-08T01:00:00-05:00" gives
        "2026-03-08T01:30:00-05:00" "2026-03-08T03:00:00-04:00" "2026-03-08T03:30:00-04:00";
    "0 */2 * * *" after "2026-03-08T00:30:00-05:00" gives
        "2026-03-08T04:00:00-04:00" "2026-03-08T06:00:00-04:00";
    "30 2,14 * * *" after "2026-03-07T15:00:00-05:00" gives
        "2026-03-08T14:30:00-04:00" "2026-03-09T02:30:00-04:00";
    "0 30 2 8 3 *" after "2026-01-01T00:00:00-05:00" gives
        "2026-03-08T03:00:00-04:00" "2027-03-08T02:30:00-05:00";
    "30 1 * * *" after "2026-10-31T12:00:00-04:00" gives
        "2026-11-01T01:30:00-04:00" "2026-11-02T01:30:00-05:00";
    "0 2 * * *" after "2026-10-31T12:00:00-04:00" gives
        "2026-11-01T02:00:00-05:00" "2026-11-02T02:00:00-05:00";
    "*/30 * * * *" after "2026-11-01T00:30:00-04:00" gives
        "2026-11-01T01:00:00-04:00" "2026-11-01T01:30:00-04:00" "2026-11-01T01:00:00-05:00"
        "2026-11-01T01:30:00-05:00" "2026-11-01T02:00:00-05:00";
    "0 * * * *" after "2026-11-01T00:00:00-04:00" gives
        "2026-11-01T01:00:00-04:00" "2026-11-01T01:00:00-05:00" "2026-11-01T02:00:00-05:00";
    "30 1,13 * * *" after "2026-10-31T14:00:00-04:00" gives
        "2026-11-01T01:30:00-04:00" "2026-11-01T01:30:00-05:00" "2026-11-01T13:30:00-05:00";
    // The next four expressions also name one time of day, although they use a range or a list. So
    // they have one slot a day. The fifth does not, because a field begins with `*`.
    "30 2-2 * * *" after "2026-03-07T12:00:00-05:00" gives
        "2026-03-08T03:00:00-04:00" "2026-03-09T02:30:00-04:00";
    "30 2,2 * * *" after "2026-03-07T12:00:00-05:00" gives
        "2026-03-08T03:00:00-04:00" "2026-03-09T02:30:00-04:00";
    "30 1-1 * * *" after "2026-10-31T12:00:00-04:00" gives
        "2026-11-01T01:30:00-04:00" "2026-11-02T01:30:00-05:00";
    "30 1,1 * * *" after "2026-10-31T12:00:00-04:00" gives
        "2026-11-01T01:30:00-04:00" "2026-11-02T01:30:00-05:00";
    "*/60 1 * * *" after "2026-10-31T12:00:00-04:00" gives
        "2026-11-01T01:00:00-04:00" "2026-11-01T01:00:00-05:00" "2026-11-02T01:00:00-05:00";
    // Clock changes: 2026-03-29 01:00 +00 becomes 02:00 +01; 2026-10-25 02:00 +01 becomes 01:00
    // +00.
    in "Europe/London":
    "30 1 * * *" after "2026-03-28T12:00:00+00:00" gives
        "2026-03-29T02:00:00+01:00" "2026-03-30T01:30:00+01:00";
    "0 0 * * *" after "2026-03-28T12:00:00+00:00" gives
        "2026-03-29T00:00:00Z" "2026-03-30T00:00:00+01:00";
    "*/30 * * * *" after "2026-03-29T00:00:00+00:00" gives
        "2026-03-29T00:30:00Z" "2026-03-29T02:00:00+01:00" "2026-03-29T02:30:00+01:00";
    "30 1 * * *" after "2026-10-24T12:00:00+01:00" gives
        "2026-10-25T01:30:00+01:00" "2026-10-26T01:30:00Z";
    "*/30 * * * *" after "2026-10-25T00:30:00+01:00" gives
        "2026-10-25T01:00:00+01:00" "2026-10-25T01:30:00+01:00" "2026-10-25T01:00:00Z"
        "2026-10-25T01:30:00Z" "2026-10-25T02:00:00Z";
    // Historical changes: 2018-11-04 00:00 -03 became 01:00 -02; 2019-02-17 00:00 -02 became 23:00
    // -03.
    in "America/Sao_Paulo":
    "0 0 * * *" after "2018-11-03T12:00:00-03:00" gives
        "2018-11-04T01:00:00-02:00" "2018-11-05T00:00:00-02:00";
    "0 0 4 11 *" after "2018-01-01T00:00:00-02:00" gives
        "2018-11-04T01:00:00-02:00" "2019-11-04T00:00:00-03:00";
    "*/30 * * * *" after "2018-11-03T23:00:00-03:00" gives
        "2018-11-03T23:30:00-03:00" "2018-11-04T01:00:00-02:00" "2018-11-04T01:30:00-02:00";
    "30 23 * * *" after "2019-02-16T12:00:00-02:00" gives
        "2019-02-16T23:30:00-02:00" "2019-02-17T23:30:00-03:00";
    "0 0 * * *" after "2019-02-16T12:00:00-02:00" gives
        "2019-02-17T00:00:00-03:00" "2019-02-18T00:00:00-03:00";
    "*/30 * * * *" after "2019-02-16T22:30:00-02:00" gives
        "2019-02-16T23:00:00-02:00" "2019-02-16T23:30:00-02:00" "2019-02-16T23:00:00-03:00"
        "2019-02-16T23:30:00-03:00" "2019-02-17T00:00:00-03:00";
    // Changes of half an hour: 2026-10-04 02:00 +10:30 becomes 02:30 +11; 2026-04-05 02:00 +11
    // becomes 01:30.
    in "Australia/Lord_Howe":
    "15 2 * * *" after "2026-10-03T12:00:00+10:30" gives
        "2026-10-04T02:30:00+11:00" "2026-10-05T02:15:00+11:00";
    "*/30 * * * *" after "2026-10-04T01:00:00+10:30" gives
        "2026-10-04T01:30:00+10:30" "2026-10-04T02:30:00+11:00" "2026-10-04T03:00:00+11:00";
    "*/15 * * * *" after "2026-10-04T01:30:00+10:30" gives
        "2026-10-04T01:45:00+10:30" "2026-10-04T02:30:00+11:00";
    "45 1 * * *" after "2026-04-04T12:00:00+11:00" gives
        "2026-04-05T01:45:00+11:00" "2026-04-06T01:45:00+10:30";
    "*/30 * * * *" after "2026-04-05T01:00:00+11:00" gives
        "2026-04-05T01:30:00+11:00" "2026-04-05T01:30:00+10:30" "2026-04-05T02:00:00+10:30";
    // The day 2011-12-30 did not exist.
    in "Pacific/Apia":
    "0 12 * * *" after "2011-12-28T13:00:00-10:00" gives
        "2011-12-29T12:00:00-10:00" "2011-12-31T12:00:00+14:00";
    "0 12 30 * *" after "2011-11-30T13:00:00-10:00" gives
        "2012-01-30T12:00:00+14:00";
    "0 * * * *" after "2011-12-29T22:30:00-10:00" gives
        "2011-12-29T23:00:00-10:00" "2011-12-31T00:00:00+14:00";
    // These searches start in the last hours before the missing day.
    "0 12 * * *" after "2011-12-29T22:00:00-10:00" gives
        "2011-12-31T12:00:00+14:00" "2012-01-01T12:00:00+14:00";
    "59 23 * * *" after "2011-12-29T23:58:59-10:00" gives
        "2011-12-29T23:59:00-10:00" "2011-12-31T23:59:00+14:00";
    "0 0 * * *" after "2011-12-29T23:59:59-10:00" gives
        "2011-12-31T00:00:00+14:00" "2012-01-01T00:00:00+14:00";
    "0 */8 30,31 12 ?" after "2011-12-29T12:00:00-10:00" gives
        "2011-12-31T00:00:00+14:00" "2011-12-31T08:00:00+14:00";
    in "Pacific/Fakaofo":
    "0 12 * * *" after "2011-12-29T22:30:00-11:00" gives
        "2011-12-31T12:00:00+13:00" "2012-01-01T12:00:00+13:00";
    // The day 1993-08-21 did not exist.
    in "Pacific/Kwajalein":
    "0 12 * * *" after "1993-08-20T12:00:00-12:00" gives
        "1993-08-22T12:00:00+12:00" "1993-08-23T12:00:00+12:00";
    "0 12 * * *" after "1993-08-20T23:30:00-12:00" gives
        "1993-08-22T12:00:00+12:00";
    // On 2009-10-18, the clock skipped three hours, from 02:00 +08 to 05:00 +11.
    in "Antarctica/Casey":
    "30 2 * * *" after "2009-10-17T12:00:00+08:00" gives
        "2009-10-18T05:00:00+11:00" "2009-10-19T02:30:00+11:00";
    "30 2 18 10 *" after "2009-10-17T12:00:00+08:00" gives
        "2009-10-18T05:00:00+11:00";
    "30 4 * * *" after "2009-10-18T01:59:59+08:00" gives
        "2009-10-18T05:00:00+11:00" "2009-10-19T04:30:00+11:00";
    "30 2,3,6 * * *" after "2009-10-17T12:00:00+08:00" gives
        "2009-10-18T06:30:00+11:00" "2009-10-19T02:30:00+11:00";
    // The clock of this zone never changes.
    in "Asia/Kolkata":
    "30 2 * * *" after "2026-03-08T12:00:00+05:30" gives "2026-03-09T02:30:00+05:30";
};

#[test]
fn the_table_of_changed_clocks() {
    for row in TABLE {
        assert_eq!(
            slots(row.zone, row.expression, row.after, row.slots.len()),
            row.slots,
            "{} in {}",
            row.expression,
            row.zone
        );
    }
}

const ZONES: [&str; 8] = [
    "America/New_York",
    "Europe/London",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Havana",
    "Asia/Beirut",
    "UTC",
];

fn new_year(year: i32) -> DateTime<Utc> {
    let day = NaiveDate::from_ymd_opt(year, 1, 1).unwrap();
    day.and_hms_opt(0, 0, 0).unwrap().and_utc()
}

/// Returns all slots of the schedule in this year.
fn slots_of_year(schedule: &Schedule, year: i32) -> Vec<DateTime<Utc>> {
    let (mut at, end) = (new_year(year), new_year(year + 1));
    let mut slots = Vec::new();
    while let Some(next) = schedule.next_after(at, at).filter(|next| *next < end) {
        assert!(next > at);
        slots.push(next);
        at = next;
    }
    slots
}

proptest! {
    #![proptest_config(crate::cases(8))]

    /// Checks that one time of day gives one slot on each day of the calendar, however the clock
    /// changes.
    #[test]
    fn one_time_of_day_comes_once_a_day(
        zone in prop::sample::select(&ZONES[..]),
        year in 2008_i32..2030,
        hour in 0_u32..24,
        minute in 0_u32..60,
    ) {
        let schedule = Schedule::cron(&format!("{minute} {hour} * * *"), zone).unwrap();
        let zone = TimeZone::get(zone).unwrap();
        let mut days: BTreeMap<NaiveDate, u32> = BTreeMap::new();
        for slot in slots_of_year(&schedule, year) {
            let shown = local(slot, &zone);
            *days.entry(shown.date_naive()).or_default() += 1;
            // A slot whose time the clock skips may be up to an hour late. No slot is early.
            let late = (shown.hour() * 60 + shown.minute()).checked_sub(hour * 60 + minute);
            prop_assert!(late.is_some_and(|late| late <= 60), "{shown}");
        }
        let (first, last) = (*days.keys().next().unwrap(), *days.keys().last().unwrap());
        let all = (last - first).num_days() + 1;
        prop_assert_eq!(days.len(), usize::try_from(all).unwrap());
        prop_assert!(days.values().all(|count| *count == 1));
    }

    /// Checks that an expression with several times of day has a slot exactly whenever the clock
    /// shows one of these times.
    #[test]
    fn several_times_of_day_come_whenever_the_clock_shows_them(
        zone in prop::sample::select(&ZONES[..]),
        year in 2008_i32..2030,
        step in prop::sample::select(vec![7_u32, 15, 20, 30]),
        hours in prop::sample::select(vec!["*", "0-3", "1,2,23"]),
    ) {
        let schedule = Schedule::cron(&format!("*/{step} {hours} * * *"), zone).unwrap();
        let zone = TimeZone::get(zone).unwrap();
        let shows = |at: DateTime<Utc>| {
            let shown = local(at, &zone);
            let hour = match hours {
                "*" => true,
                "0-3" => shown.hour() <= 3,
                _ => [1, 2, 23].contains(&shown.hour()),
            };
            hour && shown.minute().is_multiple_of(step)
        };
        let (begin, end) = (new_year(year), new_year(year + 1));
        let minutes = (1..(end - begin).num_minutes()).map(|minute| begin + TimeDelta::minutes(minute));
        let expected: Vec<DateTime<Utc>> = minutes.filter(|at| shows(*at)).collect();
        prop_assert_eq!(slots_of_year(&schedule, year), expected);
    }
}
