//! What operators and their machines rely on: probes, the cluster, live updates, metrics, serving.

mod cluster;
#[cfg(feature = "dashboard")]
mod dashboard;
mod events;
mod kit;
mod overview;
mod probes;
mod serving;
