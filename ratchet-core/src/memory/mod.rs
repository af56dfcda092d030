//! The in-memory store: the executable specification of the store traits, and a store for tests.
//!
//! The store applies the pure rules of the core to plain maps under one lock. So its code shows
//! what every other store must do. Tests can set its clock and make its calls fail.
//!
//! # A deterministic state machine
//!
//! The data is a state machine, and [`MemoryStore`] is a lock around it. Every store call that
//! writes is a [`Command`]. [`Snapshot::apply`] applies a command to the data at a time that the
//! caller passes, and returns an [`Answer`]. The same data, time and command always give the same
//! data and the same answer, in every process that runs the same version of Ratchet:
//!
//! - **Time.** The data reads no clock. The store reads its clock once per call, under the lock.
//! - **Ids.** The data creates no id and uses no random number. The ids of jobs, batches, nodes and
//!   recurring definitions come with the command.
//! - **Order.** The data iterates only over sorted maps and sets.
//! - **Time zones.** The slots of a schedule depend on the time-zone data of the process. So a
//!   command that needs the next slot of a definition contains this slot. A process cannot decode
//!   a cron expression without the feature `cron`, or with a time zone that it does not know.
//! - **The end of a call.** Each command ends with the update of the jobs and batches that depend
//!   on the jobs that it ended. Nothing is left to do for the next command.
//!
//! Calls that only read are no commands. They read the data at the store's current time, and never
//! change it. Faults, deadlines, wakeups and the clock belong to the store, not to the data.
//!
//! An [`Entry`] is a command with its time. Entries, answers and snapshots have a serialized form
//! with a version. [`MemoryStore::with_log`] passes the entry of each command to a log. A snapshot
//! and the entries that follow it in the log rebuild the data of the store.

mod archive;
mod arg;
mod clock;
mod command;
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
mod shared;
mod signals;
mod snapshot;
mod tables;
#[cfg(test)]
mod tests;
mod unchanged;
mod versions;
mod workflows;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub use arg::Arg;
pub use clock::ManualClock;
pub use command::{Answer, Command, Entry};
pub use faults::Fault;
pub use shared::CommandLog;
pub use snapshot::Snapshot;

use crate::cluster::{ClusterCoordinator, InProcessCoordinator};
use crate::error::{Result, StoreError, StoreErrorKind};
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
    data: Arc<Mutex<Snapshot>>,
    clock: ManualClock,
    faults: FaultPlan,
    log: Option<Arc<Log>>,
    /// The log that orders the commands of several processes. `None` if all commands come from
    /// this process.
    shared: Option<Arc<dyn CommandLog>>,
    policy: CallPolicy,
    coordinator: InProcessCoordinator,
}

/// Receives each command with its answer.
type Log = dyn Fn(&Entry<'_>, &Answer) + Send + Sync;

impl MemoryStore {
    /// Creates an empty store. Its clock starts at the current time and runs with tokio's clock,
    /// which tests can pause.
    #[must_use]
    pub fn new() -> Self {
        Self {
            data: Arc::default(),
            clock: ManualClock::running(time::wall_clock()),
            faults: FaultPlan::default(),
            log: None,
            shared: None,
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

    /// Passes each command with its answer to `log`, in the order in which the commands take
    /// effect. The store waits for `log`, which must not call the store. Commands of clones that
    /// already exist are not logged, nor are the changes of [`lose_nodes`](Self::lose_nodes) and
    /// [`rewind`](Self::rewind).
    #[must_use]
    pub fn with_log(mut self, log: impl Fn(&Entry<'_>, &Answer) + Send + Sync + 'static) -> Self {
        self.log = Some(Arc::new(log));
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
        self.data().0.nodes.clear();
    }

    /// Returns a copy of all data. [`rewind`](Self::rewind) restores it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.data().clone()
    }

    /// Replaces all data by that of a snapshot, like a failover to a lagging copy or a restore from
    /// a backup. Running nodes continue, and the clock is not set back.
    pub fn rewind(&self, to: &Snapshot) {
        *self.data() = to.clone();
    }

    fn data(&self) -> MutexGuard<'_, Snapshot> {
        self.data
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// Runs a store call that writes: applies a command at the store's current time, or appends it
    /// to the shared log. Injects the fault that is planned for this call.
    async fn write<T>(&self, mut command: Command<'_>) -> Result<T>
    where
        T: TryFrom<Answer, Error = StoreError> + Send,
    {
        let operation = command.operation();
        if let Some(log) = &self.shared {
            let answer = log.append(command.into_owned()).await;
            return answer
                .and_then(T::try_from)
                .map_err(|error| error.during(operation));
        }
        self.faults
            .around(operation, move || {
                let mut data = self.data();
                let now = self.clock.now_millis();
                data.complete(&mut command, now);
                let entry = Entry::new(now, command);
                let answer = data.apply(&entry);
                if let Some(log) = &self.log {
                    log(&entry, &answer);
                }
                T::try_from(answer).map_err(|error| error.during(operation))
            })
            .await
    }

    /// Runs a store call that only reads, at the store's current time. Injects the fault that is
    /// planned for this call.
    async fn read<T: Send>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Tables, i64) -> T + Send,
    ) -> Result<T> {
        if let Some(log) = &self.shared {
            log.refresh()
                .await
                .map_err(|error| error.during(operation))?;
            // After a panic while a command was applied, the data is that of no log.
            let data = self.data.lock().map_err(|broken| {
                StoreError::new(StoreErrorKind::Other, operation).with_source(broken.to_string())
            })?;
            return Ok(read(&data.0, log.now()));
        }
        self.faults
            .around(operation, || {
                let data = self.data();
                let now = self.clock.now_millis();
                Ok(read(&data.0, now))
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
