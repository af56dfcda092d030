//! Tests of the endpoints for operators: probes, cluster, live updates, metrics, and the server
//! itself.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod cluster;
#[cfg(feature = "dashboard")]
mod dashboard;
mod events;
mod kit;
mod logs;
#[cfg(feature = "prometheus")]
mod metrics;
mod overview;
mod probes;
mod readings;
mod serving;
