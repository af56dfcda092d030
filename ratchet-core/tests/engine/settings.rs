//! Tests of `check_settings`, which checks the settings of a node before the program registers
//! jobs.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::cluster::LeaderTimings;
use ratchet_core::{MemoryStore, NodeBuilder, Pool, Ratchet, Retain, Retention};

const SECOND: Duration = Duration::from_secs(1);

fn builder() -> NodeBuilder {
    Ratchet::builder(Arc::new(MemoryStore::new()))
}

/// Returns the names of the settings that each problem of `builder` concerns.
fn refused(builder: &NodeBuilder) -> Vec<Vec<String>> {
    let problems = builder.check_settings();
    let settings = problems.iter().map(|problem| problem.settings());
    settings
        .map(|settings| settings.map(str::to_owned).collect())
        .collect()
}

#[test]
fn what_a_program_may_register_later_counts_as_known() {
    let builder = builder()
        .roles(["worker", "pricing"])
        .active_passive("primary")
        .roles(["primary", "pricing", "worker"])
        .pool(Pool::new("big").kinds(["resize"]).concurrency(2));
    assert_eq!(builder.check_settings(), []);
    let error = builder.build().unwrap_err().to_string();
    assert!(error.contains("role pricing is not known"), "{error}");
    assert!(error.contains("kind resize of pool big"), "{error}");
}

#[test]
fn every_problem_names_its_settings() {
    let mut timings = LeaderTimings::default();
    timings.ttl = 9 * SECOND;
    let table: [(NodeBuilder, &[&str]); 22] = [
        (builder().idle_interval(59 * SECOND), &["idle_interval"]),
        (builder().idle_interval(3_601 * SECOND), &["idle_interval"]),
        (
            builder().idle_interval(60 * SECOND).promotable(false),
            &["idle_interval", "role", "promotable"],
        ),
        (builder().concurrency(0), &["concurrency"]),
        (
            builder().poll_interval(2 * SECOND, SECOND),
            &["poll_interval.min", "poll_interval.max"],
        ),
        (builder().heartbeat_max(3_601 * SECOND), &["heartbeat_max"]),
        (
            builder().heartbeat_max(SECOND),
            &["heartbeat_interval", "heartbeat_max"],
        ),
        (
            builder().dead_after(14 * SECOND),
            &["dead_after", "heartbeat_interval"],
        ),
        (
            builder().start_timeout(SECOND),
            &["start_timeout", "prefetch_ttl"],
        ),
        (
            builder().store_deadline(Duration::ZERO),
            &["store_deadline"],
        ),
        (builder().drain_grace(Duration::MAX), &["drain_grace"]),
        (
            builder().leader_timings(timings),
            &[
                "leader_timings.fence_timeout",
                "leader_timings.teardown",
                "leader_timings.ttl",
            ],
        ),
        (
            builder().retention(Retention::default().failed(Retain::Delete(Duration::MAX))),
            &["retention.failed"],
        ),
        (builder().label(""), &["label"]),
        (builder().queues([]), &["queue"]),
        (builder().roles([]), &["role"]),
        (
            builder().active_passive("primary").promotable(false),
            &["active_passive", "role", "promotable"],
        ),
        // The role is a valid name, but the name of its lock, which has a prefix, is too long.
        (builder().role(&"r".repeat(125)), &["role"]),
        (
            builder().active_passive(&"r".repeat(125)),
            &["active_passive"],
        ),
        (builder().active_passive(""), &["active_passive"]),
        (
            builder().pool(Pool::new("one").concurrency(1)),
            &["pool.one"],
        ),
        (
            builder().pool(Pool::new("gpu").capabilities(["gpu"]).concurrency(1)),
            &["pool.gpu/capabilities"],
        ),
    ];
    for (builder, settings) in table {
        assert_eq!(
            refused(&builder),
            [settings],
            "{:?}",
            builder.check_settings()
        );
    }
}

#[test]
fn a_refused_build_names_its_settings_too() {
    let error = builder().concurrency(0).build().unwrap_err();
    let settings: Vec<Vec<&str>> = error
        .refused()
        .iter()
        .map(|problem| problem.settings().collect())
        .collect();
    assert_eq!(settings, [vec!["concurrency"], vec![]], "{error}");
}
