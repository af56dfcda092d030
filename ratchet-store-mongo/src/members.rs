//! Compares the clocks of a replica set's members. Each member has its own clock. So after a change
//! of primary, locks expire by the clock of the new primary.

use std::time::Duration;

use mongodb::bson::{Bson, doc};
use mongodb::options::{ClientOptions, ServerAddress};
use ratchet_core::model::{Finding, Severity};
use ratchet_core::time;
use tokio::time::Instant;

use crate::clients::Clients;
use crate::config::client;
use crate::error::Result;

/// Largest difference between two clocks that is not reported. The leader's lock tolerates four
/// times this difference.
const TOLERATED: Duration = Duration::from_secs(1);
/// Timeout for each step of reading a member's clock.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time on a member's clock, with the local times of the request and of the reply.
#[derive(Clone, Copy)]
struct Reading {
    millis: i64,
    asked: Instant,
    answered: Instant,
}

impl Reading {
    /// Returns by how many milliseconds `other` is ahead of this clock, or a negative number if it
    /// is behind. The result is the smallest difference that is consistent with the measured round
    /// trips.
    fn ahead(&self, other: &Self) -> i64 {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        // The other clock was read later than this one, by at least `least` and at most `most`.
        let least = millis(other.asked.saturating_duration_since(self.answered));
        let most = millis(other.answered.saturating_duration_since(self.asked));
        let difference = other.millis.saturating_sub(self.millis);
        if difference > most {
            difference - most
        } else {
            difference.saturating_sub(least).min(0)
        }
    }
}

/// Compares the clocks of all reachable members with the clock of the first reachable member.
/// Returns a finding for each clock that differs.
pub(crate) async fn clocks(clients: &Clients) -> Result<Vec<Finding>> {
    let Some(options) = clients.options() else {
        return Ok(Vec::new());
    };
    let database = &clients.current().live.database;
    let hello = database.run_command(doc! { "hello": 1 }).await?;
    let hosts = hello.get_array("hosts").cloned().unwrap_or_default();
    let mut first: Option<(&str, Reading)> = None;
    let mut findings = Vec::new();
    for host in hosts.iter().filter_map(Bson::as_str) {
        let Some(reading) = read(options, host).await else {
            continue;
        };
        let Some((name, other)) = &first else {
            first = Some((host, reading));
            continue;
        };
        findings.extend(differ(name, host, other.ahead(&reading)));
    }
    Ok(findings)
}

fn differ(name: &str, host: &str, ahead: i64) -> Option<Finding> {
    let by = Duration::from_millis(ahead.unsigned_abs());
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    (by > TOLERATED).then(|| {
        let summary = "the clocks of the replica set's members differ";
        Finding::new("member_clocks", Severity::Warning, summary)
            .detail(format!("{host} is at least {by:?} {side} {name}"))
            .remedy(
                "synchronize the clocks of the members: when the primary changes, locks expire \
                 early or late by the difference, and a node that starts at that time may \
                 become a second leader",
            )
    })
}

/// Reads the clock of the member at `host`. Returns `None` if the member does not respond.
async fn read(options: &ClientOptions, host: &str) -> Option<Reading> {
    let mut direct = options.clone();
    direct.hosts = vec![ServerAddress::parse(host).ok()?];
    direct.repl_set_name = None;
    direct.direct_connection = Some(true);
    direct.server_selection_timeout = Some(PATIENCE);
    let client = client(direct).ok()?;
    let admin = client.database("admin");
    let asking = async {
        // The first call includes connecting, so the second one is measured.
        admin.run_command(doc! { "hello": 1 }).await.ok()?;
        let asked = time::monotonic();
        let hello = admin.run_command(doc! { "hello": 1 }).await.ok()?;
        Some(Reading {
            millis: hello.get_datetime("localTime").ok()?.timestamp_millis(),
            asked,
            answered: time::monotonic(),
        })
    };
    let reading = tokio::time::timeout(2 * PATIENCE, asking).await;
    client.shutdown().immediate(true).await;
    reading.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_round_trip_explains_is_no_difference() {
        let start = time::monotonic();
        let reading = |millis, asked, answered| Reading {
            millis,
            asked: start + Duration::from_millis(asked),
            answered: start + Duration::from_millis(answered),
        };
        let first = reading(1_000, 0, 10);
        for millis in [1_000, 1_005, 1_020] {
            assert_eq!(first.ahead(&reading(millis, 5, 20)), 0, "{millis}");
        }
        assert_eq!(first.ahead(&reading(31_020, 10, 20)), 30_000);
        assert_eq!(first.ahead(&reading(1_000, 1_010, 1_020)), -1_000);
    }

    #[test]
    fn members_that_are_far_apart_are_named() {
        assert_eq!(differ("a", "b", 1_000), None);
        let finding = differ("a:1", "b:2", 30_000).unwrap();
        assert_eq!(finding.detail.unwrap(), "b:2 is at least 30s ahead of a:1");
        let behind = differ("a:1", "b:2", -2_500).unwrap().detail.unwrap();
        assert!(behind.contains("2.5s behind a:1"), "{behind}");
    }
}
