//! When the slots of cron expressions are: clocks that are changed, and expressions from the world.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod clocks;
mod corpus;
mod oracle;

use chrono::{DateTime, FixedOffset, SecondsFormat, Utc};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratchet_core::Schedule;

/// The first `count` slots after a time, as the wall clock of the zone shows them.
fn slots(zone: &str, expression: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::cron(expression, zone).unwrap();
    let zone = TimeZone::get(zone).unwrap();
    let mut at = DateTime::parse_from_rfc3339(after).unwrap().to_utc();
    let mut slots = Vec::new();
    for _ in 0..count {
        let next = schedule.next_after(at, at).unwrap();
        assert!(next > at, "{expression} goes back from {at} to {next}");
        at = next;
        slots.push(local(at, &zone).to_rfc3339_opts(SecondsFormat::Secs, true));
    }
    slots
}

/// What the clock of a zone shows.
fn local(at: DateTime<Utc>, zone: &TimeZone) -> DateTime<FixedOffset> {
    let offset = zone.to_offset(Timestamp::from_second(at.timestamp()).unwrap());
    at.with_timezone(&FixedOffset::east_opt(offset.seconds()).unwrap())
}

use proptest::test_runner::Config as ProptestConfig;

/// As many cases as `PROPTEST_CASES` says, otherwise this many: `cargo xtask test --deep` sets it.
fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    }
}
