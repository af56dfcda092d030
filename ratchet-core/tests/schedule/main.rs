//! Tests of the slots of cron expressions: in zones whose clocks change, and for expressions from
//! real programs.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod clocks;
mod corpus;
mod oracle;

use chrono::{DateTime, FixedOffset, SecondsFormat, Utc};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratchet_core::Schedule;

/// Returns the first `count` slots after a time, as the zone's wall clock shows them.
fn slots(zone: &str, expression: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::cron(expression, zone).unwrap();
    let zone = TimeZone::get(zone).unwrap();
    let mut at = DateTime::parse_from_rfc3339(after).unwrap().to_utc();
    let mut slots = Vec::new();
    for _ in 0..count {
        let next = schedule.next_after(at, at).unwrap();
        assert!(
            next > at,
            "{expression}: expected a slot after {at}, found {next}"
        );
        at = next;
        slots.push(local(at, &zone).to_rfc3339_opts(SecondsFormat::Secs, true));
    }
    slots
}

/// Returns the time `at` as the wall clock of the zone shows it.
fn local(at: DateTime<Utc>, zone: &TimeZone) -> DateTime<FixedOffset> {
    let offset = zone.to_offset(Timestamp::from_second(at.timestamp()).unwrap());
    at.with_timezone(&FixedOffset::east_opt(offset.seconds()).unwrap())
}

use proptest::test_runner::Config as ProptestConfig;

/// Returns a configuration with `usual` cases. If the environment variable `PROPTEST_CASES` is set,
/// as by `cargo xtask test --deep`, it sets the number of cases instead.
fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    }
}
