//! Maintains the node and the cluster: heartbeats, what dead nodes held, recurring jobs, old jobs.

pub(super) mod backlog;
pub(super) mod due_watch;
pub(super) mod heartbeat;
#[cfg(feature = "sysinfo")]
pub(super) mod load;
#[cfg(not(feature = "sysinfo"))]
#[path = "no_load.rs"]
pub(super) mod load;
pub(super) mod maintenance;
pub(super) mod reclaimer;
pub(super) mod recurring;
pub(super) mod undelivered;
