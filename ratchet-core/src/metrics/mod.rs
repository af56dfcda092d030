//! Metrics of nodes and clients, published through the [`metrics` facade](https://docs.rs/metrics).
//!
//! Without a recorder, metrics cost next to nothing. With a recorder, such as an exporter for
//! Prometheus, each metric of the [`CATALOG`] exists from its first event on.
//!
//! Install the recorder before a node runs, because each run gets the handles of frequent metrics
//! only once. The run also [describes](describe) the metrics to the recorder. A program that has
//! only clients can call `describe` itself. Configure the recorder with the buckets [`SECONDS`] for
//! all names that end in `_seconds`, and with [`SIZES`] for all names that end in `_jobs`.
//!
//! # Labels are bounded
//! Every label value comes from the program or its configuration, never from an id or from stored
//! data. [`Values`] documents the possible values of each label. Only the gauges of [measured
//! queues](crate::NodeBuilder::measured_queues) have a label for queues, because some programs have
//! one queue per customer. To measure a queue separately in the other metrics, give the queue a
//! [`Pool`](crate::Pool) of its own, because pools are a label.

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
    NodeMetrics, Rows, acted, breaker_changed, breaker_open, claims_reclaimed, claims_undelivered,
    clock_skew, clock_stepped, daemon_failed, daemon_started, database_rewound, drained, exhausted,
    fired, heartbeat, hook_panicked, jobs_expired, late, loop_panicked, maintained,
    maintenance_rows, nodes_died, not_fired, rate_limit_wait, reclaim_pass, reports,
    signals_expired, taken_for_dead, unreadable_definitions,
};
pub(crate) use store::{settle_failed, settled, settlement_refused, store_backoff, store_call};

/// The upper bounds of the histogram buckets for durations, in seconds. They range from 0.1 ms,
/// about the time of an empty body, to ten minutes.
pub const SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// The upper bounds of the histogram buckets for numbers of jobs.
pub const SIZES: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0,
];

/// Registers the description and the unit of every metric with the recorder.
pub fn describe() {
    for metric in CATALOG {
        metric.describe();
    }
}

/// Creates, with the value 0, each counter for which the catalog lists all label values.
fn begin() {
    let counters = CATALOG.iter().filter(|metric| metric.kind == Kind::Counter);
    counters.for_each(|counter| counter.begin(&[]));
}
