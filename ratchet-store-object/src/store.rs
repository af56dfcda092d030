//! The store: the traits of the memory store, whose commands come from the log.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ratchet_core::Result;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::memory::MemoryStore;
use ratchet_core::model::{Finding, Severity};
use ratchet_core::store::{
    ArchiveStore, CallPolicy, Checked, DiagnosticStore, JobStore, LockStore, NodeStore,
    PermitStore, QueueStore, RateStore, RecurringStore, SignalStore, Store, StoreInfo,
    VersionStore, WorkflowStore,
};

use crate::bucket;
use crate::config::Builder;
use crate::coordinator::ObjectCoordinator;
use crate::log::{Log, SharedLog};

/// By how many milliseconds the clock of the machine may differ from the server's without a
/// finding.
const CLOCK_AGREES_TO: i64 = 1_000;

/// A store that keeps its data in a bucket. The [documentation of the crate](crate) describes how.
///
/// Clones share the data. Calls need a Tokio runtime with timers and I/O enabled.
///
/// ```no_run
/// use ratchet_store_object::ObjectStore;
///
/// # async fn example() -> Result<(), ratchet_core::StoreError> {
/// let store = ObjectStore::connect("s3://company-jobs/shop").await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ObjectStore {
    replica: MemoryStore,
    pub(crate) log: Arc<Log>,
    coordinator: ObjectCoordinator,
    deadline: Duration,
}

impl ObjectStore {
    /// Opens the store at this URL with the default settings. See [`Builder`] for the URLs.
    ///
    /// # Errors
    /// The same as for [`Builder::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future changes no data.
    pub async fn connect(url: impl Into<String>) -> Result<Checked<Self>> {
        Self::builder(url).connect().await
    }

    /// Returns the settings of a store at this URL.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url.into())
    }

    /// Returns the settings of a store in this object store, in which the names of all objects
    /// begin with `prefix`.
    ///
    /// The client should not repeat requests (`RetryConfig::max_retries`), because the store does.
    pub fn on(store: Arc<dyn object_store::ObjectStore>, prefix: impl Into<String>) -> Builder {
        Builder::on(store, prefix.into())
    }

    pub(crate) fn new(log: Arc<Log>, pauses: [Duration; 2], deadline: Duration) -> Self {
        let shared = SharedLog(Arc::clone(&log));
        Self {
            replica: MemoryStore::replicated(Arc::clone(&log.data), Arc::new(shared)),
            coordinator: ObjectCoordinator::new(Arc::clone(&log), pauses),
            log,
            deadline,
        }
    }
}

impl Store for ObjectStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            backend: "object",
            version: self.log.bucket.describe(),
        }
    }

    fn jobs(&self) -> &dyn JobStore {
        &self.replica
    }

    fn queues(&self) -> &dyn QueueStore {
        &self.replica
    }

    fn nodes(&self) -> &dyn NodeStore {
        &self.replica
    }

    fn locks(&self) -> &dyn LockStore {
        &self.replica
    }

    fn versions(&self) -> &dyn VersionStore {
        &self.replica
    }

    fn call_policy(&self) -> CallPolicy {
        // The log itself tries again after a lost race.
        CallPolicy::within(self.deadline).retries(0)
    }

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        Some(&self.replica)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        Some(&self.replica)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        Some(&self.replica)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        Some(&self.replica)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        Some(&self.replica)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        Some(&self.replica)
    }

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        Some(self)
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        Some(Arc::new(self.coordinator.clone()))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.log.close())
    }
}

#[async_trait]
impl DiagnosticStore for ObjectStore {
    async fn findings(&self) -> Result<Vec<Finding>> {
        let refreshed = self.log.refresh().await;
        refreshed.map_err(|failure| failure.during("findings"))?;
        let mut findings = Vec::new();
        if let Err(failure) = bucket::check_service(&self.log.bucket).await {
            let failure = failure.during("findings");
            if failure.kind().is_transient() {
                return Err(failure);
            }
            let summary = "the object storage no longer does what the store needs";
            let finding = Finding::new("object_storage", Severity::Error, summary)
                .detail(failure.to_string())
                .remedy(
                    "give the processes the rights to put, read, list and delete objects, on a \
                     service with conditional writes",
                );
            findings.push(finding);
        }
        let ahead = self.log.clock.machine_ahead();
        if ahead.abs() > CLOCK_AGREES_TO {
            let summary = "the clock of this machine differs from that of the object storage";
            let finding = Finding::new("machine_clock", Severity::Warning, summary)
                .detail(format!("it is {ahead} ms ahead"))
                .remedy("synchronize the clock of this machine, such as with NTP");
            findings.push(finding);
        }
        Ok(findings)
    }
}
