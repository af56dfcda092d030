//! The engine: runs jobs on any store, over `dyn` store traits. One loop per file.
//!
//! ```text
//!            wakeups ─▶ poller ──claims──▶ ready queue ──▶ executor slots ──▶ settler ─▶ store
//! store ◀──────────────────┘                                  │ running set
//!                   heartbeat · reporter · leader ─▶ reclaimer · maintenance
//! ```
//!
//! The poller claims only as many jobs as there are free slots and prefetch places. The slots of
//! the executor run the bodies. The settler ends claims, many in one call. Each pool has its own
//! poller, ready queue and slots. The heartbeat shows the cluster that the node is alive, and
//! receives cancel requests. The reporter sends what bodies report. The leader loops campaign for
//! the node's roles. On the leader of the role `maintenance`, the reclaimer takes back the claims
//! of dead nodes, and the maintenance loop deletes old jobs. Every node fires recurring
//! definitions. Each loop survives every failure of the store and its own panics.
//!
//! # Layers
//! A module uses only modules on lines below its own; `cargo xtask boundaries` enforces this.
//!
//! ```text
//! build · manual_run                     makes a node; runs one job at a time, for tests
//! node                                   the public handle
//! drain · loops                          end and start a run
//! run                                    one run: builds the handles of its loops
//! shared                                 what all runs of a node share
//! claim · maintain · node_status         poller, prefetch; heartbeat, reclaimer, recurring and so on
//! execute                                slots, reporter, admission
//! lead                                   roles, leader, daemon, gate
//! settle                                 the claims that the node holds, and the settler
//! membership                             identity, interval of heartbeats, liveness
//! failure_log                            the log lines of failed attempts and dead letters
//! pools · common · hooks · supervisor    pools and their ready queues; store, settings and jitter
//! settings · stats · totals · panic_text
//! ```
//!
//! `Run` and `Shared` are above all loops, and hold a part of each. So no loop gets a whole `Run`
//! or `Shared`. Each loop gets the following handles, and `Common` (store, settings, jitter) if it
//! needs that:
//!
//! | loop | handles |
//! |---|---|
//! | `claim::poller` | identity, interval, claims, running, fairness, gate, wake queue, coordinator |
//! | `claim::prefetch` `lead::gate` | claims |
//! | `execute::executor` | identity, liveness, claims, running, reporter, gate, admission, suspects, newer payloads, registry, state, client, totals |
//! | `execute::reporter` | running |
//! | `settle::settler` | claims, fairness, interval, client, wake queue, totals |
//! | `lead::leader` | identity, interval, the candidacy of its role |
//! | `lead::daemon` | client, state, the candidacy of its role |
//! | `maintain::heartbeat` | identity, interval, liveness, claims, running, roles, gate, wake queue, totals |
//! | `maintain::undelivered` | heartbeat, claims, client, wake queue |
//! | `maintain::reclaimer` | heartbeat, liveness, running, roles, hooks, totals, wake queue |
//! | `maintain::recurring` | identity, client, wake queue, coordinator, totals |
//! | `maintain::maintenance` | roles, totals |
//! | `maintain::backlog` | roles |

mod build;
mod claim;
mod common;
mod drain;
mod execute;
mod failure_log;
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

pub use build::{BuildError, JobTypes, NodeBuilder, Ratchet};
pub use hooks::NodeHook;
pub use lead::daemon::{DaemonContext, DaemonResult};
#[cfg(feature = "testing")]
pub(crate) use manual_run::ManualRun;
pub use node::{Node, RunError};
pub use settings::pool::{Pool, SYSTEM_QUEUE};
pub use settings::retention::{Retain, Retention};
pub use stats::{NodeStats, PoolStats};
