//! The engine: what runs jobs. One loop per file, all of them over `dyn` store traits.
//!
//! ```text
//!            wakeups ─▶ poller ──claims──▶ ready queue ──▶ executor slots ──▶ settler ─▶ store
//! store ◀──────────────────┘                                  │ running set
//!                   heartbeat · reporter · leader ─▶ reclaimer · maintenance
//! ```
//!
//! The poller claims only what there is room for; the slots of the executor run the bodies; the
//! settler ends claims, many at a time. Poller, ready queue and slots exist once per pool. The
//! heartbeat keeps the node alive and learns of cancels, the reporter tells what bodies say. The
//! leader loops campaign for the node's roles; on the node that leads in maintenance the reclaimer
//! takes back what dead nodes held, and old jobs are deleted. Every node fires recurring
//! definitions. Each loop survives every store failure and its own panics.

mod build;
mod claim;
mod common;
mod drain;
mod execute;
mod hooks;
mod lead;
mod loops;
mod maintain;
#[cfg(feature = "testing")]
mod manual_run;
mod membership;
mod node;
mod node_status;
mod panic_text;
mod pools;
mod run;
mod settings;
mod settle;
mod shared;
mod stats;
mod supervisor;
mod totals;

pub use build::{BuildError, NodeBuilder, Ratchet};
pub use hooks::NodeHook;
pub use lead::daemon::{DaemonContext, DaemonResult};
#[cfg(feature = "testing")]
pub(crate) use manual_run::ManualRun;
pub use node::{Node, RunError};
pub use settings::pool::{Pool, SYSTEM_QUEUE};
pub use settings::retention::{Retain, Retention};
pub use stats::{NodeStats, PoolStats};
