//! Metrics: what a node and its clients count and measure, through the [`metrics`
//! facade](https://docs.rs/metrics).
//!
//! Without a recorder nothing is kept, at next to no cost. With one (an exporter for Prometheus,
//! say) every metric of the [`CATALOG`] is there as soon as what it counts happens for the first
//! time.
//!
//! Install the recorder before a node runs: for what is counted with every job, a run looks its
//! handles up once. The run also [describes](describe) the metrics; a program with clients only can
//! do that itself. A recorder needs to be told how to divide durations ([`SECONDS`], for all names
//! that end in `_seconds`) and numbers of jobs ([`SIZES`], for those that end in `_jobs`).
//!
//! # Labels are bounded
//! Every value of a label comes from the program or its configuration, never from an id and never
//! from what a row says: [`Values`] has the bound of each. Only the gauges of [measured
//! queues](crate::NodeBuilder::measured_queues) have a label for queues, since some programs have a
//! queue for each of their customers. For everything else, a queue that you want to watch by itself
//! needs a [`Pool`](crate::Pool) of its own, and pools are a label.

mod catalog;
mod cluster;
mod jobs;
mod kinds;
mod node;
mod record;
mod store;

pub use catalog::*;
pub(crate) use cluster::{
    LeaderAmount, QueueMetrics, StepDown, candidate, election_turn, stale_guarded_write,
    wakeup_lost, wakeup_received, wakeup_sent,
};
pub use cluster::{coordinator_outage, nothing_runs};
pub(crate) use jobs::{JobPlace, NotYet, PoolMetrics};
pub(crate) use kinds::enqueued;
pub(crate) use node::{
    NodeMetrics, Rows, acted, claims_reclaimed, claims_undelivered, clock_skew, clock_stepped,
    daemon_failed, daemon_started, database_rewound, drained, exhausted, fired, heartbeat,
    hook_panicked, late, loop_panicked, maintained, maintenance_rows, nodes_died, not_fired,
    rate_limit_wait, reclaim_pass, reports, signals_expired, taken_for_dead,
    unreadable_definitions,
};
pub(crate) use store::{settle_failed, settled, settlement_refused, store_backoff, store_call};

/// Upper bounds of the buckets of durations, in seconds: from what a body that does nothing takes
/// to ten minutes.
pub const SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// Upper bounds of the buckets of numbers of jobs.
pub const SIZES: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0,
];

/// Tells the recorder what every metric means, in which unit.
pub fn describe() {
    for metric in CATALOG {
        metric.describe();
    }
}

/// Lets the counters begin whose series are known beforehand.
fn begin() {
    let counters = CATALOG.iter().filter(|metric| metric.kind == Kind::Counter);
    counters.for_each(|counter| counter.begin(&[]));
}
