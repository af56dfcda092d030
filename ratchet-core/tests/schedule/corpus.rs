//! Expressions from crontabs, Quartz configurations and documentation, and the first slot of each
//! after Thursday, 2026-01-15 10:17:30 UTC.

use ratchet_core::Schedule;

use crate::slots;

const AFTER: &str = "2026-01-15T10:17:30Z";

const CORPUS: &[(&str, &str)] = &[
    // Minutes and hours.
    ("* * * * *", "2026-01-15T10:18:00Z"),
    ("*/5 * * * *", "2026-01-15T10:20:00Z"),
    ("*/7 * * * *", "2026-01-15T10:21:00Z"),
    ("*/10 * * * *", "2026-01-15T10:20:00Z"),
    ("*/15 * * * *", "2026-01-15T10:30:00Z"),
    ("*/30 * * * *", "2026-01-15T10:30:00Z"),
    ("*/90 * * * *", "2026-01-15T11:00:00Z"),
    ("0 * * * *", "2026-01-15T11:00:00Z"),
    ("17 * * * *", "2026-01-15T11:17:00Z"),
    ("30 * * * *", "2026-01-15T10:30:00Z"),
    ("5,35 * * * *", "2026-01-15T10:35:00Z"),
    ("10-20/5 * * * *", "2026-01-15T10:20:00Z"),
    ("1-59/2 * * * *", "2026-01-15T10:19:00Z"),
    ("23 0-20/2 * * *", "2026-01-15T10:23:00Z"),
    ("*/20 8-18 * * *", "2026-01-15T10:20:00Z"),
    ("0 */6 * * *", "2026-01-15T12:00:00Z"),
    ("0 1-23/2 * * *", "2026-01-15T11:00:00Z"),
    // Days.
    ("0 0 * * *", "2026-01-16T00:00:00Z"),
    ("  0\t5  *  * * ", "2026-01-16T05:00:00Z"),
    ("25 6 * * *", "2026-01-16T06:25:00Z"),
    ("0 0 */2 * *", "2026-01-17T00:00:00Z"),
    ("0 4 8-14 * *", "2026-02-08T04:00:00Z"),
    ("0 12 31 * *", "2026-01-31T12:00:00Z"),
    ("52 6 1 * *", "2026-02-01T06:52:00Z"),
    ("15 14 1 * *", "2026-02-01T14:15:00Z"),
    ("0 0 1-7 * *", "2026-02-01T00:00:00Z"),
    ("0 0 L * *", "2026-01-31T00:00:00Z"),
    // Days of the week.
    ("47 6 * * 7", "2026-01-18T06:47:00Z"),
    ("0 0 * * 0", "2026-01-18T00:00:00Z"),
    ("5 4 * * sun", "2026-01-18T04:05:00Z"),
    ("0 9 * * MON", "2026-01-19T09:00:00Z"),
    ("0 2 * * 6", "2026-01-17T02:00:00Z"),
    ("0 22 * * 1-5", "2026-01-15T22:00:00Z"),
    ("0 9-17 * * 1-5", "2026-01-15T11:00:00Z"),
    ("*/15 9-17 * * mon-fri", "2026-01-15T10:30:00Z"),
    ("0 0 * * 1,3,5", "2026-01-16T00:00:00Z"),
    ("0 6 * * Tue,Thu", "2026-01-20T06:00:00Z"),
    ("0 10 * * FRI-SUN", "2026-01-16T10:00:00Z"),
    ("0 0 * * sat,sun", "2026-01-17T00:00:00Z"),
    // A match in either of the two day fields suffices, unless both are required.
    ("0 0 1,15 * 3", "2026-01-21T00:00:00Z"),
    ("0 0 1 * +MON", "2026-06-01T00:00:00Z"),
    ("0 0 13 * +5", "2026-02-13T00:00:00Z"),
    // If a day field begins with `*`, the day must match both day fields, as in crontab(5). So the
    // first expression means a Sunday among the first seven days of a month.
    ("1 1 1-7 * */7", "2026-02-01T01:01:00Z"),
    ("0 0 */2 * 1", "2026-01-19T00:00:00Z"),
    ("0 0 */2 * mon-wed", "2026-01-19T00:00:00Z"),
    ("0 0 13 * */5", "2026-02-13T00:00:00Z"),
    ("0 0 1,15 * *,3", "2026-02-01T00:00:00Z"),
    ("0 0 ? * 5", "2026-01-16T00:00:00Z"),
    ("0 0 ?/2 * 5", "2026-01-23T00:00:00Z"),
    // None of these day fields begins with `*`, so a match in either of the two suffices.
    ("0 0 1-31/2 * 5", "2026-01-16T00:00:00Z"),
    ("0 0 31 * 0-6/7", "2026-01-18T00:00:00Z"),
    // A step without an end continues to the end of the field.
    ("5/15 * * * *", "2026-01-15T10:20:00Z"),
    ("0/5 * * * * ?", "2026-01-15T10:17:35Z"),
    ("0 0 12 1/5 * ?", "2026-01-16T12:00:00Z"),
    ("0 0 28/2 * *", "2026-01-28T00:00:00Z"),
    ("0 0 1 nov/1 *", "2026-11-01T00:00:00Z"),
    ("0 0 * * 5/1", "2026-01-16T00:00:00Z"),
    ("0 0 0 1 1 ? 2025/2", "2027-01-01T00:00:00Z"),
    // A range whose end is less than its start wraps around the end of the field.
    ("0 22-2 * * *", "2026-01-15T22:00:00Z"),
    ("0 23-7/4 * * *", "2026-01-15T23:00:00Z"),
    ("55-5/5 * * * *", "2026-01-15T10:55:00Z"),
    ("0 0 1 nov-mar *", "2026-02-01T00:00:00Z"),
    ("0 0 1 oct-jan/2 *", "2026-10-01T00:00:00Z"),
    ("0 0 * * fri-mon", "2026-01-16T00:00:00Z"),
    ("0 0 * * 7-2", "2026-01-18T00:00:00Z"),
    ("0 0 * * 7/2", "2026-01-17T00:00:00Z"),
    ("0 0 * * 5-7", "2026-01-16T00:00:00Z"),
    // Months and years.
    ("0 0 1 1 *", "2027-01-01T00:00:00Z"),
    ("59 23 31 12 *", "2026-12-31T23:59:00Z"),
    ("0 0,12 1 */2 *", "2026-03-01T00:00:00Z"),
    ("0 0 1 */3 *", "2026-04-01T00:00:00Z"),
    ("0 0 30 4,6,9,11 *", "2026-04-30T00:00:00Z"),
    ("0 20 * 7-8 *", "2026-07-01T20:00:00Z"),
    ("0 0 * JAN-MAR *", "2026-01-16T00:00:00Z"),
    ("0 0 L 2 *", "2026-02-28T00:00:00Z"),
    ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
    ("0 0 29 FEB sun", "2026-02-01T00:00:00Z"),
    // Short forms.
    ("@hourly", "2026-01-15T11:00:00Z"),
    ("@daily", "2026-01-16T00:00:00Z"),
    ("@Midnight", "2026-01-16T00:00:00Z"),
    ("@weekly", "2026-01-18T00:00:00Z"),
    ("@monthly", "2026-02-01T00:00:00Z"),
    ("@yearly", "2027-01-01T00:00:00Z"),
    ("@annually", "2027-01-01T00:00:00Z"),
    // Six fields: with seconds, and as Quartz writes them.
    ("* * * * * *", "2026-01-15T10:17:31Z"),
    ("*/10 * * * * *", "2026-01-15T10:17:40Z"),
    ("0,30 * * * * *", "2026-01-15T10:18:00Z"),
    ("0 0 12 * * ?", "2026-01-15T12:00:00Z"),
    ("0 15 10 ? * *", "2026-01-16T10:15:00Z"),
    ("0 15 10 * * ?", "2026-01-16T10:15:00Z"),
    ("0 * 14 * * ?", "2026-01-15T14:00:00Z"),
    ("0 */5 14,18 * * ?", "2026-01-15T14:00:00Z"),
    ("0 0-5 14 * * ?", "2026-01-15T14:00:00Z"),
    ("0 10,44 14 ? 3 WED", "2026-03-04T14:10:00Z"),
    ("0 15 10 ? * MON-FRI", "2026-01-16T10:15:00Z"),
    ("0 15 10 15 * ?", "2026-02-15T10:15:00Z"),
    ("0 15 10 L * ?", "2026-01-31T10:15:00Z"),
    ("0 11 11 11 11 ?", "2026-11-11T11:11:00Z"),
    // The nth weekday of a month, and the weekday nearest to a day.
    ("0 15 10 ? * 5L", "2026-01-30T10:15:00Z"),
    ("0 15 10 ? * friL", "2026-01-30T10:15:00Z"),
    ("0 15 10 ? * 5#L", "2026-01-30T10:15:00Z"),
    ("0 15 10 ? * FRI#3", "2026-01-16T10:15:00Z"),
    ("0 0 * * MON#1", "2026-02-02T00:00:00Z"),
    ("0 0 12 15W * ?", "2026-01-15T12:00:00Z"),
    ("0 0 8 1W * ?", "2026-02-02T08:00:00Z"),
    ("0 0 8 LW * ?", "2026-01-30T08:00:00Z"),
    // `mon-fri#1` means the first Monday, the first Tuesday and so on of a month.
    ("0 0 * * mon-fri#1", "2026-02-02T00:00:00Z"),
    ("0 0 * * 1-5#2", "2026-02-09T00:00:00Z"),
    // The nearest weekday is in the same month, which must have the given day.
    ("0 0 17W * *", "2026-01-16T00:00:00Z"),
    ("0 0 18W * *", "2026-01-19T00:00:00Z"),
    ("0 0 31W * *", "2026-01-30T00:00:00Z"),
    ("0 0 31W 2-7 *", "2026-03-31T00:00:00Z"),
    ("0 0 31W 5 *", "2026-05-29T00:00:00Z"),
    ("0 0 L,15W * *", "2026-01-31T00:00:00Z"),
    // Seven fields: with seconds and years.
    ("0 15 10 * * ? 2027", "2027-01-01T10:15:00Z"),
    ("0 0 0 25 12 ? 2026", "2026-12-25T00:00:00Z"),
    ("30 0 0 1 1 * 2027-2030", "2027-01-01T00:00:30Z"),
    ("0 0 0 29 2 ? 2024-2099/4", "2028-02-29T00:00:00Z"),
];

const REFUSED: &[&str] = &[
    "",
    " ",
    "*",
    "* * * *",
    "* * * * * * * *",
    // Values out of range.
    "60 * * * *",
    "* 24 * * *",
    "* * 0 * *",
    "* * 32 * *",
    "* * * 0 *",
    "* * * 13 *",
    "* * * * 8",
    "60 * * * * *",
    "0 0 0 1 1 ? 99999",
    "0 0 0 1 1 ? */2",
    "99999999999 * * * *",
    "* * * * MON#6",
    "* * * * MON#0",
    // Malformed lists, ranges and steps.
    ", * * * *",
    "1,,2 * * * *",
    "1, * * * *",
    "0 0 25-5 * *",
    "0 0 0 1 1 ? 2030-2027",
    "1-2-3 * * * *",
    "-5 * * * *",
    "5- * * * *",
    "*/0 * * * *",
    "*/ * * * *",
    "/5 * * * *",
    "*/5/5 * * * *",
    "1.5 * * * *",
    "+1 * * * *",
    "٣ * * * *",
    // Names that do not exist, are joined, or are used where the field has no names.
    "a * * * *",
    "JAN 0 * * *",
    "0 0 * * JAN",
    "0 0 * MON *",
    "0 0 * * MONDAY",
    "0 0 * * SUNMON",
    "0 0 * JANFEB *",
    "0 0 * * 1MON",
    "0 0 * * L",
    "5L * * * *",
    "0 0 W * *",
    "0 0 15WW * *",
    "0 0 15#2 * *",
    "? * * * *",
    "* * * ? *",
    // Syntax that other implementations accept.
    "0 0 L-3 * ?",
    "0 0 L-3 * * ?",
    "0 0 1-15W * *",
    "0 0 15W/2 * *",
    "0 0 * * mon-fri/2#1",
    "0 0 * * *#1",
    "0 0 * * ?#1",
    "0 0 * * mon-friL",
    "0 0 * * +",
    "0 0 + * *",
    "H * * * *",
    "@reboot",
    "@every 5m",
    "@",
    "@daily @daily",
    "rate(5 minutes)",
    "TZ=UTC 0 0 * * *",
    "CRON_TZ=UTC 0 0 * * *",
    // Dates that never occur.
    "0 0 30 2 *",
    "0 0 31 4,6,9,11 *",
    "0 0 0 1 1 ? 1960",
    "0 0 0 29 2 ? 2100,2200,2300",
    "0 0 1-7 * +1#2",
    "0 0 28 2 +1#5",
];

#[test]
fn expressions_mean_what_they_mean_elsewhere() {
    assert!(CORPUS.len() >= 60);
    for (expression, first) in CORPUS {
        assert_eq!(slots("UTC", expression, AFTER, 1), [*first], "{expression}");
    }
}

#[test]
fn what_means_nothing_is_refused_and_named() {
    for expression in REFUSED {
        match Schedule::cron(expression, "UTC") {
            Ok(schedule) => panic!(
                "expected {expression:?} to be refused, found it accepted as \
                 {schedule}"
            ),
            Err(error) => assert_eq!(error.field(), "cron", "{expression:?}"),
        }
    }
    let long = format!("{} * * * *", vec!["1"; 200].join(","));
    assert_eq!(Schedule::cron(&long, "UTC").unwrap_err().field(), "cron");
}

/// Checks that an error names the field, the value, and what is allowed.
#[test]
fn a_refusal_says_what_is_wrong_and_what_is_right() {
    for (expression, problem) in [
        (
            "60 * * * *",
            "has the minute `60`: 60 is out of range; expected 0-59",
        ),
        (
            "61 0 0 1 1 ?",
            "has the second `61`: 61 is out of range; expected 0-59",
        ),
        (
            "0 20-24 * * *",
            "has the hour `20-24`: 24 is out of range; expected 0-23",
        ),
        (
            "0 0 0 * *",
            "has the day of month `0`: 0 is out of range; expected 1-31, L, LW or 1W-31W",
        ),
        (
            "0 0 25-5 * *",
            "has the day of month `25-5`: 25 is more than 5; expected 1-31, L, LW or 1W-31W",
        ),
        (
            "0 0 1 foo *",
            "has the month `foo`: `foo` is not a value; expected 1-12 or jan-dec",
        ),
        (
            "0 0 * * mon,8",
            "has the day of week `8`: 8 is out of range; expected 0-7 or sun-sat, optionally \
             followed by #1 to #5 or L",
        ),
        (
            "0 0 * * mon#6",
            "has the day of week `mon#6`: `#` must be followed by 1 to 5 or L; expected 0-7 or \
             sun-sat, optionally followed by #1 to #5 or L",
        ),
        (
            "0 0 0 1 1 ? 1960",
            "has the year `1960`: 1960 is out of range; expected 1970-9999",
        ),
        (
            "*/0 * * * *",
            "has the minute `*/0`: expected a step of 1 or more, found `0`; expected 0-59",
        ),
        (
            "1,,2 * * * *",
            "lacks a minute next to a comma; expected 0-59",
        ),
        ("* * * *", "has 4 fields; expected 5 to 7"),
        (
            "@reboot",
            "has `@reboot`; expected @yearly, @annually, @monthly, @weekly, @daily, \
          @midnight, @hourly",
        ),
        (
            "0 0 30 2 *",
            "`0 0 30 2 *` never matches: no clock of this zone shows such a time from 1970 to \
          9999",
        ),
    ] {
        let refused = Schedule::cron(expression, "UTC").unwrap_err().to_string();
        assert_eq!(refused, format!("cron {problem}"));
    }
}

#[test]
fn the_last_year_is_the_one_in_which_jobs_may_be_due() {
    let schedule = Schedule::cron("0 0 31 12 *", "UTC").unwrap();
    let at = |text: &str| text.parse().unwrap();
    let last = at("9999-12-31T00:00:00Z");
    assert_eq!(
        schedule.next_after(at("9998-12-31T00:00:00Z"), at(AFTER)),
        Some(last)
    );
    assert_eq!(schedule.next_after(last, at(AFTER)), None);
}

/// Checks that an expression has no further slot after its last one, and that this is not an error.
#[test]
fn an_expression_with_years_ends() {
    let schedule = Schedule::cron("0 0 0 1 1 * 2027", "Europe/Berlin").unwrap();
    let at = |text: &str| text.parse().unwrap();
    let last = schedule.next_after(at(AFTER), at(AFTER)).unwrap();
    assert_eq!(last, at("2026-12-31T23:00:00Z"));
    assert_eq!(schedule.next_after(last, last), None);
}
