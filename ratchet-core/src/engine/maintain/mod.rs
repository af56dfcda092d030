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

/// Returns the minimum pause after a pass over all due jobs: 20 times `took`, the duration of the
/// pass, and at most 2 minutes. The slower the database, the fewer passes it gets.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(20).min(Duration::from_secs(120))
}
