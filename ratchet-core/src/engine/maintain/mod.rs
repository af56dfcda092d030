//! Maintains the node and the cluster: heartbeats, what dead nodes held, recurring jobs, old jobs.

use std::time::Duration;

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

/// Returns how long to rest, at least, after a pass over all due jobs that took this long: 20 times
/// as long, so that a slow database is asked seldom, but at most 2 minutes.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(20).min(Duration::from_secs(120))
}
