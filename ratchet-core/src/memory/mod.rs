//! The in-memory store: the executable specification of the store traits, and a store for tests.
//!
//! The store applies the pure rules of the core to plain maps under one lock. So its code shows
//! what every other store must do. Tests can set its clock and make its calls fail.

mod archive;
mod clock;
mod diagnostics;
mod enqueue;
mod faults;
mod indexes;
mod jobs;
mod lanes;
mod links;
mod locks;
mod nodes;
mod permits;
mod queues;
mod rates;
mod recurring;
mod signals;
mod tables;
mod versions;
mod workflows;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub use clock::ManualClock;
pub use faults::Fault;

use crate::cluster::{ClusterCoordinator, InProcessCoordinator};
use crate::error::Result;
use crate::store::{
    ArchiveStore, CallPolicy, DiagnosticStore, JobStore, LockStore, NodeStore, PermitStore,
    QueueStore, RateStore, RecurringStore, SignalStore, Store, StoreInfo, VersionStore,
    WorkflowStore,
};
use crate::time;
use faults::FaultPlan;
use tables::Tables;

/// A store that keeps its data in the memory of the process. The data is lost when the process
/// ends. All clones share the data, so each clone can serve one node of a test cluster.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
/// use ratchet::Detail;
/// use ratchet_core::store::JobStore;
/// use ratchet::{MemoryStore, NewJob};
///
/// let store = MemoryStore::new();
/// let enqueued = store.enqueue(&[NewJob::new("greet", "world")]).await?;
/// assert!(store.get(&[enqueued[0].id()], Detail::Whole).await?[0].is_some());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    clock: ManualClock,
    faults: FaultPlan,
    policy: CallPolicy,
    coordinator: InProcessCoordinator,
}

/// A copy of all data that a [`MemoryStore`] had at one moment.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
/// # use std::sync::Arc;
/// use ratchet::{MemoryStore, NewJob, Ratchet};
///
/// let store = MemoryStore::new();
/// let before = store.snapshot();
/// let client = Ratchet::client(Arc::new(store.clone()));
/// let id = client.enqueue(NewJob::new("greet", "Ada")).await?.id();
/// store.rewind(&before);
/// assert!(client.job(id).await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Snapshot(Tables);

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}

impl MemoryStore {
    /// Creates an empty store. Its clock starts at the current time and runs with tokio's clock,
    /// which tests can pause.
    #[must_use]
    pub fn new() -> Self {
        Self {
            tables: Arc::default(),
            clock: ManualClock::running(time::wall_clock()),
            faults: FaultPlan::default(),
            // Contention occurs only if a test injects it. The test then expects the error, so the
            // call must not be retried.
            policy: CallPolicy::default().retries(0),
            coordinator: InProcessCoordinator::of_only_process(),
        }
    }

    /// Creates an empty store that uses this clock.
    #[must_use]
    pub fn with_clock(clock: ManualClock) -> Self {
        Self {
            clock,
            ..Self::new()
        }
    }

    /// Injects faults into the calls of this store. Each call first passes its name, such as
    /// `enqueue`, to `plan`, which returns the fault for the call. Clones that already exist are
    /// not affected.
    #[must_use]
    pub fn with_faults(
        mut self,
        plan: impl Fn(&'static str) -> Fault + Send + Sync + 'static,
    ) -> Self {
        self.faults = FaultPlan::new(plan);
        self
    }

    /// Sets the deadline of each store call. The default is 10 s. Clones that already exist are not
    /// affected.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline = deadline;
        self
    }

    /// Deletes the records of all nodes, like a restore from a backup that lacks them. Running
    /// nodes register again with their next heartbeat.
    pub fn lose_nodes(&self) {
        self.tables().nodes.clear();
    }

    /// Returns a copy of all data. [`rewind`](Self::rewind) restores it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.tables().clone())
    }

    /// Replaces all data by that of a snapshot, like a failover to a lagging copy or a restore from
    /// a backup. Running nodes continue, and the clock is not set back.
    pub fn rewind(&self, to: &Snapshot) {
        *self.tables() = to.0.clone();
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// Runs `work`, one store call, on the tables at the store's current time. Injects the fault
    /// that is planned for this call.
    async fn call<T: Send>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Tables, i64) -> Result<T> + Send,
    ) -> Result<T> {
        self.faults
            .around(operation, || {
                let mut tables = self.tables();
                let now = self.clock.now_millis();
                let answer = work(&mut tables, now)?;
                tables.follow_ends(now);
                Ok(answer)
            })
            .await
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryStore")
    }
}

impl Store for MemoryStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            backend: "memory",
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn jobs(&self) -> &dyn JobStore {
        self
    }

    fn queues(&self) -> &dyn QueueStore {
        self
    }

    fn nodes(&self) -> &dyn NodeStore {
        self
    }

    fn locks(&self) -> &dyn LockStore {
        self
    }

    fn versions(&self) -> &dyn VersionStore {
        self
    }

    fn call_policy(&self) -> CallPolicy {
        self.policy
    }

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        Some(self)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        Some(self)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        Some(self)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        Some(self)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        Some(self)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        Some(self)
    }

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        Some(self)
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        Some(Arc::new(self.coordinator.clone()))
    }
}
