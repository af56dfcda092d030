//! The store traits: the contract between the engine, which decides, and a database, which
//! remembers.
//!
//! Every call goes through the door, [`Checked`]. A store therefore sees only input that is valid,
//! no empty batch and no limit of 0; it needs no deadline of its own, and returns `Contention` at
//! once.
//!
//! Every method documents its contract as clauses with stable ids in brackets, `[claim.order]`.
//! The conformance suite has at least one case per clause and none without one; MUST, SHOULD and
//! MAY have their usual sense.
//!
//! These hold for every method of every trait:
//!
//! - **[errors.kind]** A failure of the store is a [`StoreError`](crate::StoreError) whose kind
//!   tells what the caller can do. Refused input is `Invalid` and names the field, and then nothing
//!   has changed. Losing a race is a value, never an error.
//! - **[errors.poison]** A stored row that cannot be read harms only itself: a batch it is part of
//!   works for the other rows.
//! - **[time.clock]** Everything that depends on the time uses the database's clock, read inside
//!   the call. The caller's clock never matters.
//! - **[time.precision]** Times are kept to the millisecond. Durations are rounded up to it.
//! - **[guard.write]** A call with a [`Guard`](crate::model::Guard) takes effect only if, in the
//!   same write, that lock is held by that owner with that fence and unexpired; otherwise it is
//!   `Stale` and nothing changes. A tenure cannot begin between the look at the lock and the write.
//! - **[model.agrees]** The same calls at the same times return what they return from
//!   [`MemoryStore`](crate::MemoryStore), the executable specification, and leave the same behind.
//!   Only what a clause leaves open may differ, such as which claims a limited pass takes.
//! - **[limits.batch]** Batches of up to [`MAX_BATCH`](crate::limits::MAX_BATCH) items work; no
//!   store sees a larger one.
//!
//! # Cancel safety
//! Dropping the future of any method leaves the store usable: the call has then either taken full
//! effect or none. Which of the two is unknown, as with a lost connection; the engine repeats calls
//! with the same ids and tokens, for which every write is safe.

mod archive;
mod calls;
mod checked;
mod diagnostics;
mod jobs;
mod layer;
mod lock_page;
mod locks;
mod nodes;
mod permits;
mod queues;
mod rates;
mod recurring;
mod signals;
mod stored_lock;
mod transactions;
mod versions;
mod workflows;

use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use archive::ArchiveStore;
pub use checked::{CallPolicy, Checked, ContentionBackoff, LossRepeats, check_enqueue};
pub use diagnostics::DiagnosticStore;
pub use jobs::JobStore;
pub use layer::{Layered, StoreLayer};
pub use lock_page::LockPage;
pub use locks::{Acquired, HeldLock, LockInfo, LockStore, renewed_end};
pub use nodes::NodeStore;
pub use permits::{IfKnown, PermitStore};
pub use queues::{Changed, QueueStore};
pub use rates::RateStore;
pub use recurring::RecurringStore;
pub use signals::SignalStore;
pub use stored_lock::StoredLock;
pub use transactions::{AppConnection, AppTransaction, TransactionStore};
pub use versions::VersionStore;
pub use workflows::WorkflowStore;

use crate::cluster::ClusterCoordinator;

/// One connected database, as the engine holds it: the role traits, bundled.
///
/// Powers that only some stores have are accessors that return an `Option`: what is missing cannot
/// be called.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ratchet::BoxError> {
/// use ratchet::Store;
///
/// fn describe(store: &dyn Store) -> String {
///     let permits = if store.permits().is_some() { "with" } else { "without" };
///     format!("{} {permits} permits", store.info().backend)
/// }
///
/// let store = ratchet::connect("memory:").await?;
/// assert_eq!(describe(&*store), "memory with permits");
/// store.close().await;
/// # Ok(()) }
/// ```
pub trait Store: Debug + Send + Sync + 'static {
    /// Returns the backend's name and version, for logs and reports; nothing may depend on them.
    fn info(&self) -> StoreInfo;

    /// The jobs.
    fn jobs(&self) -> &dyn JobStore;

    /// The queues.
    fn queues(&self) -> &dyn QueueStore;

    /// The nodes and the database's clock.
    fn nodes(&self) -> &dyn NodeStore;

    /// The locks.
    fn locks(&self) -> &dyn LockStore;

    /// The version tokens.
    fn versions(&self) -> &dyn VersionStore;

    /// Returns whether the store has guarded writes. Without them the leader of a cluster sweeps
    /// and purges without a guard. Its successor may do the same at the same time, which does no
    /// harm. Such a store refuses everything else that needs a guard.
    fn guards(&self) -> bool {
        true
    }

    /// Returns how the [door](Checked) calls this store: its deadline, and how often a call is
    /// repeated.
    fn call_policy(&self) -> CallPolicy {
        CallPolicy::default()
    }

    /// Reports that a call was dropped at its deadline, by the [door](Checked) or by the engine. A
    /// store that keeps connections may drop those that are idle: the network may have fallen
    /// silent, and each of them would cost another deadline.
    fn call_timed_out(&self) {}

    /// Whether calls come through a [door](Checked). `Checked` returns true, and a wrapper returns
    /// what the store inside it returns: with two doors, a call that meets contention would be
    /// repeated by both.
    fn is_checked(&self) -> bool {
        false
    }

    /// The recurring definitions, if the store can keep them.
    fn recurring(&self) -> Option<&dyn RecurringStore> {
        None
    }

    /// The archive, if it has one.
    fn archive(&self) -> Option<&dyn ArchiveStore> {
        None
    }

    /// The permits, if the store can limit how many jobs run at once in the cluster.
    fn permits(&self) -> Option<&dyn PermitStore> {
        None
    }

    /// The rates, if the store can limit how many jobs begin in a time.
    fn rates(&self) -> Option<&dyn RateStore> {
        None
    }

    /// Links and batches, if the store has them.
    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        None
    }

    /// Signals, if the store has them.
    fn signals(&self) -> Option<&dyn SignalStore> {
        None
    }

    /// Enqueueing in transactions of the application, if the store can.
    fn transactions(&self) -> Option<&dyn TransactionStore> {
        None
    }

    /// What it can say about the health of its database, if it looks.
    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        None
    }

    /// How many connections to the database are open, if the store knows.
    fn connections(&self) -> Option<u32> {
        None
    }

    /// Wakeups through the database, if it can carry them. Without, clients and nodes that share
    /// one [door](Checked), or its clones, wake each other up: hand a store out as [`Checked::new`]
    /// makes it.
    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        None
    }

    /// Finishes the calls that run, and closes the connections of the store, if it has some: later
    /// calls, also on clones, then fail with `Unavailable`. A second call does nothing.
    ///
    /// Where the application's own connections are used, each store says what becomes of them.
    ///
    /// # Cancel safety
    /// Dropped, the store is closed, and its connections are when they are next idle.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

/// A store that may be shared by nodes, clients and tests.
pub type SharedStore = Arc<dyn Store>;

/// See [`Store::info`].
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// let info = client.store().info();
/// println!("{} {}", info.backend, info.version);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    /// What kind of store it is.
    pub backend: &'static str,
    /// The version of the database.
    pub version: String,
}
