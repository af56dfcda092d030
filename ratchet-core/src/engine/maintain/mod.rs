//! Maintains the node and the cluster: heartbeats, the claims of dead nodes, recurring and old
//! jobs.

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

/// Returns the minimum pause after a pass over all due jobs that took `took`. The pause is 20 times
/// as long, up to 2 minutes, so that a slow database gets few such calls.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(20).min(Duration::from_secs(120))
}
