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

mod backlog;
mod builder;
mod bulkhead;
mod claim_ledger;
mod clock_watch;
mod config;
mod courtesy;
mod daemon;
mod drain;
mod edge;
mod executor;
mod heartbeat;
mod hooks;
mod leader;
mod limits;
mod load;
mod maintenance;
#[cfg(feature = "testing")]
mod manual_run;
mod newer;
mod node;
mod outcome;
mod pace;
mod partition;
mod poller;
mod pool;
mod prefetch;
mod presence;
mod ready;
mod reclaimer;
mod recurring;
mod reporter;
mod retention;
mod run;
mod running;
mod settler;
mod shared;
mod span;
mod supervisor;
mod suspects;
mod taking;
mod throttle;
mod totals;
mod undelivered;

pub use builder::{BuildError, NodeBuilder};
pub use daemon::{DaemonContext, DaemonResult};
pub use hooks::NodeHook;
#[cfg(feature = "testing")]
pub(crate) use manual_run::ManualRun;
pub use node::{Node, RunError};
pub use pool::{Pool, SYSTEM_QUEUE};
pub use retention::{Retain, Retention};
pub use shared::{NodeStats, PoolStats};

use crate::client::Client;
use crate::store::SharedStore;

/// Where everything starts.
#[derive(Clone, Copy, Debug)]
pub struct Ratchet;

impl Ratchet {
    /// Begins a node on this store.
    pub fn builder(store: SharedStore) -> NodeBuilder {
        NodeBuilder::new(store)
    }

    /// A client of this store: to enqueue and look after jobs without running any.
    #[must_use]
    pub fn client(store: SharedStore) -> Client {
        Client::new(store)
    }
}
