//! The store traits: the contract between the engine, which makes decisions, and a database, which
//! stores data.
//!
//! The engine makes every call through the door, [`Checked`]. So a store gets only valid input, no
//! empty batch and no limit of 0. A store needs no deadline of its own. After contention, it
//! returns `Contention` at once, and the door repeats the call.
//!
//! Every method documents its contract as clauses with stable ids in brackets, such as
//! `[claim.order]`. The conformance suite has at least one case per clause, and no case without a
//! clause. MUST, SHOULD and MAY have the meaning of RFC 2119.
//!
//! These clauses hold for every method of every trait:
//!
//! - **[errors.kind]** A failed call returns a [`StoreError`](crate::StoreError) whose kind shows
//!   how the caller can react. Refused input is `Invalid`: the error names the field, and nothing
//!   has changed. A call that loses a race returns a value, never an error.
//! - **[errors.poison]** A stored row that cannot be read affects no other row: a call that
//!   encounters such a row still works for the other rows.
//! - **[time.clock]** Everything that depends on the time uses the database's clock, read inside
//!   the call. The caller's clock never matters.
//! - **[time.precision]** Times are stored to the millisecond. Durations are rounded up to whole
//!   milliseconds.
//! - **[guard.write]** A call with a [`Guard`](crate::model::Guard) takes effect only if the
//!   guard's owner holds the guard's lock, unexpired and with the guard's fence; otherwise the call
//!   returns `Stale` and changes nothing. The store checks this in the same write, so no other
//!   owner can acquire the lock between the check and the write.
//! - **[model.agrees]** The same calls at the same times return the same values, and leave the same
//!   data, as with [`MemoryStore`](crate::MemoryStore), the executable specification. Only what a
//!   clause leaves open may differ, such as which claims a limited pass takes.
//! - **[durability.restart]** What a call has stored remains when every process that uses the
//!   database has ended. Only a store for tests, such as [`MemoryStore`](crate::MemoryStore), may
//!   lose it.
//! - **[limits.batch]** A batch of up to [`MAX_BATCH`](crate::limits::MAX_BATCH) items works; the
//!   door refuses a larger one, so a store never receives it.
//!
//! # Cancel safety
//! Dropping the future of any method leaves the store usable. The call has then taken effect
//! completely or not at all; which of the two is unknown, as after a lost connection. The engine
//! repeats calls with the same ids and tokens, which is safe for every write.

mod archive;
mod calls;
mod checked;
mod diagnostics;
mod fair;
mod features;
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
pub use fair::FairStore;
pub(crate) use features::JobFeatures;
pub use features::StoreFeature;
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

/// The adapter to a database. It has one accessor for each part of the store.
///
/// If a store may lack a part, the accessor returns an `Option`, so a missing part cannot be
/// called.
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
    /// Returns the backend's name and version, for logs and reports. The behavior of the engine
    /// must not depend on these values.
    fn info(&self) -> StoreInfo;

    /// Returns the part that stores jobs.
    fn jobs(&self) -> &dyn JobStore;

    /// Returns the part that pauses and lists queues.
    fn queues(&self) -> &dyn QueueStore;

    /// Returns the part that stores nodes and reads the database's clock.
    fn nodes(&self) -> &dyn NodeStore;

    /// Returns the part that stores locks.
    fn locks(&self) -> &dyn LockStore;

    /// Returns the part that stores the versions of namespaces.
    fn versions(&self) -> &dyn VersionStore;

    /// Returns why the store lacks a feature, or `None` if it has the feature. The default is that
    /// the store has all features.
    ///
    /// The reason is shown to the application: it says what is missing and what to do, such as
    /// "the server has no transactions; make it a replica set".
    fn lacks(&self, feature: StoreFeature) -> Option<&'static str> {
        let _ = feature;
        None
    }

    /// Returns the deadline of a call and the maximum number of repetitions, which the
    /// [door](Checked) uses when it calls this store.
    fn call_policy(&self) -> CallPolicy {
        CallPolicy::default()
    }

    /// Notifies the store that the [door](Checked) or the engine dropped a call at its deadline. A
    /// store with a connection pool may close its idle connections: if the network no longer
    /// responds, each of them would cause another timeout.
    fn call_timed_out(&self) {}

    /// Returns whether calls of this store already go through a [door](Checked). `Checked` returns
    /// true. A wrapper around a store returns the value of its inner store. This prevents a second
    /// door, which would repeat calls after contention once more.
    fn is_checked(&self) -> bool {
        false
    }

    /// Returns the part for recurring definitions, if the store supports them.
    fn recurring(&self) -> Option<&dyn RecurringStore> {
        None
    }

    /// Returns the part for the archive, if the store has an archive.
    fn archive(&self) -> Option<&dyn ArchiveStore> {
        None
    }

    /// Returns the part for permits, if the store can limit how many jobs run at once in the
    /// cluster.
    fn permits(&self) -> Option<&dyn PermitStore> {
        None
    }

    /// Returns the part for limits of fair keys, if the store has fair keys and can limit how many
    /// jobs of a key run at once in the cluster.
    fn fair(&self) -> Option<&dyn FairStore> {
        None
    }

    /// Returns the part for rates, if the store can limit how many jobs start per interval.
    fn rates(&self) -> Option<&dyn RateStore> {
        None
    }

    /// Returns the part for links and batches, if the store supports them.
    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        None
    }

    /// Returns the part for signals, if the store supports them.
    fn signals(&self) -> Option<&dyn SignalStore> {
        None
    }

    /// Returns the part that enqueues jobs in transactions of the application, if the store
    /// supports this.
    fn transactions(&self) -> Option<&dyn TransactionStore> {
        None
    }

    /// Returns the part that checks the database's health, if the store has such checks.
    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        None
    }

    /// Returns the number of open connections to the database, if the store knows it.
    fn connections(&self) -> Option<u32> {
        None
    }

    /// Returns a coordinator that sends wakeups through the database, if the store has one. If it
    /// has none, wakeups reach only clients and nodes that share one [door](Checked) or its clones.
    /// In this case, give all of them the store that one call of [`Checked::new`] returned.
    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        None
    }

    /// Waits for the running calls to finish, and closes the store's own connections. Later calls
    /// of the store and its clones fail with `Unavailable`. Closing the store again does nothing.
    ///
    /// The application may have supplied the connections. The documentation of the store says what
    /// happens to them.
    ///
    /// # Cancel safety
    /// If the future is dropped, the store is closed nevertheless. A connection that is in use is
    /// closed when its call has finished.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

/// A store that nodes, clients and tests can share.
pub type SharedStore = Arc<dyn Store>;

/// The name and version of a store's backend, from [`Store::info`].
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// let info = client.store().info();
/// println!("{} {}", info.backend, info.version);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    /// The name of the backend, such as `memory`.
    pub backend: &'static str,
    /// The version of the database.
    pub version: String,
}
