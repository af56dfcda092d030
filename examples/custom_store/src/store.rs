use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::model::{
    Acted, ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Attempt, BatchClosed, BatchPurge,
    BatchRecord, Claim, ClaimRequest, ClaimedJob, Delivered, Detail, DueRecurring, DueRoute,
    Fenced, Finding, Fired, Guard, Guarded, Heartbeat, HeartbeatReply, JobFilter, JobInput,
    JobPage, JobSelector, Link, NodeRecord, NodeStatus, NodeSweep, PageRequest, Parent, PermitInfo,
    PurgeRequest, PutOutcome, PutRecurring, QueueInfo, RateAnswer, RateRequest, ReclaimRequest,
    Reclaimed, RecurringClaimRequest, RecurringFiring, RecurringPage, RecurringRecord, Report,
    Reported, RetireRecurring, Settlement, Signal, StateCounts, SweptNodes,
};
use ratchet_core::store::{
    Acquired, ArchiveStore, Changed, DiagnosticStore, JobStore, LockInfo, LockStore, NodeStore,
    PermitStore, QueueStore, RateStore, RecurringStore, SignalStore, StoreInfo, VersionStore,
    WorkflowStore,
};
use ratchet_core::time::Timestamp;
use ratchet_core::{
    BatchId, ClaimToken, Enqueued, Fence, JobAction, JobId, JobRecord, Name, NewJob, NodeId,
    Result, SharedStore, Store, StoreError, StoreErrorKind,
};

use crate::Meter;

/// Any store, with its calls counted.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet_core::Result<()> {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use custom_store_example::{Meter, MeteredStore};
/// use ratchet_core::{MemoryStore, NewJob, Store};
///
/// let meter = Arc::new(Meter::new(Duration::from_millis(50)));
/// let store = MeteredStore::new(Arc::new(MemoryStore::new()), Arc::clone(&meter));
/// store.jobs().enqueue(&[NewJob::new("greet", "world")]).await?;
/// assert_eq!(meter.counts()["enqueue"].calls, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MeteredStore {
    inner: SharedStore,
    meter: Arc<Meter>,
}

impl MeteredStore {
    /// Counts the calls of `inner` on `meter`.
    #[must_use]
    pub fn new(inner: SharedStore, meter: Arc<Meter>) -> Self {
        Self { inner, meter }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for MeteredStore {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn guards(&self) -> bool {
        self.inner.guards()
    }

    fn patience(&self) -> Duration {
        self.inner.patience()
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

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        // A power that the inner store has not must not seem to be there.
        self.inner.recurring().map(|_| self as &dyn RecurringStore)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        self.inner.archive().map(|_| self as &dyn ArchiveStore)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        self.inner.permits().map(|_| self as &dyn PermitStore)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        self.inner.rates().map(|_| self as &dyn RateStore)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        self.inner.workflows().map(|_| self as &dyn WorkflowStore)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        self.inner.signals().map(|_| self as &dyn SignalStore)
    }

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        let there = self.inner.diagnostics();
        there.map(|_| self as &dyn DiagnosticStore)
    }

    fn connections(&self) -> Option<u32> {
        self.inner.connections()
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        self.inner.coordinator()
    }
}

/// Implements methods of a role trait by counting the same method of the inner store: the
/// expression says where it is found.
macro_rules! metered {
    ($trait:ident by |$inner:ident| $role:expr; {
        $(async fn $method:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)+
    }) => {
        #[deny(clippy::missing_trait_methods)]
        #[async_trait]
        impl $trait for MeteredStore {
            $(async fn $method(&self $(, $argument: $type)*) -> Result<$answer> {
                let $inner = &self.inner;
                let call = $role.$method($($argument),*);
                self.meter.count(stringify!($method), call).await
            })+
        }
    };
}

metered! { JobStore by |inner| inner.jobs(); {
    async fn enqueue(&self, jobs: &[NewJob]) -> Vec<Enqueued>;
    async fn claim_next_batch(&self, request: &ClaimRequest) -> Vec<ClaimedJob>;
    async fn claim_next_batch_optimized(&self, request: &ClaimRequest) -> Vec<Claim>;
    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Vec<Option<JobInput>>;
    async fn settle(&self, settlements: &[Settlement]) -> Vec<Fenced>;
    async fn report(&self, reports: &[Report]) -> Vec<Reported>;
    async fn reclaim(&self, request: &ReclaimRequest) -> Vec<Reclaimed>;
    async fn act(&self, jobs: &JobSelector, action: JobAction) -> Vec<Acted>;
    async fn get(&self, ids: &[JobId], detail: Detail) -> Vec<Option<JobRecord>>;
    async fn list(&self, filter: &JobFilter, page: &PageRequest) -> JobPage;
    async fn count_jobs(&self, filter: &JobFilter) -> StateCounts;
    async fn history(&self, job: JobId) -> Vec<Attempt>;
    async fn purge(&self, request: &PurgeRequest) -> Guarded<u64>;
} }

metered! { QueueStore by |inner| inner.queues(); {
    async fn pause_queue(&self, queue: &Name) -> Changed;
    async fn resume_queue(&self, queue: &Name) -> Changed;
    async fn queues(&self) -> Vec<QueueInfo>;
    async fn due_routes(&self) -> Vec<DueRoute>;
    async fn count_due(&self, queue: &Name, limit: u64) -> u64;
} }

metered! { NodeStore by |inner| inner.nodes(); {
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> HeartbeatReply;
    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Changed;
    async fn nodes(&self) -> Vec<NodeRecord>;
    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Guarded<SweptNodes>;
    async fn database_time(&self) -> Timestamp;
} }

metered! { LockStore by |inner| inner.locks(); {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Acquired;
    async fn renew(&self, name: &Name, owner: &Name, fence: Fence, ttl: Duration) -> Fenced;
    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Fenced;
    async fn inspect(&self, name: &Name) -> Option<LockInfo>;
    async fn list_locks(&self, after: Option<&Name>, limit: usize) -> Vec<(Name, LockInfo)>;
} }

metered! { VersionStore by |inner| inner.versions(); {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Guarded<u64>;
    async fn versions(&self, namespaces: &[Name]) -> Vec<u64>;
} }

metered! { RecurringStore by |inner| inner.recurring().ok_or_else(not_there)?; {
    async fn put(&self, put: &PutRecurring) -> PutOutcome;
    async fn find(&self, name: &Name) -> Option<RecurringRecord>;
    async fn definitions(&self, after: Option<&Name>, limit: usize) -> RecurringPage;
    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> DueRecurring;
    async fn fire(&self, firings: &[RecurringFiring]) -> Vec<Fired>;
    async fn set_paused(&self, name: &Name, paused: bool) -> Changed;
    async fn delete(&self, name: &Name) -> Changed;
    async fn retire(&self, request: &RetireRecurring) -> Guarded<Vec<Name>>;
} }

metered! { PermitStore by |inner| inner.permits().ok_or_else(not_there)?; {
    async fn set_permits(&self, resource: &Name, max: u32) -> Changed;
    async fn permits(&self) -> Vec<PermitInfo>;
} }

metered! { RateStore by |inner| inner.rates().ok_or_else(not_there)?; {
    async fn take(&self, requests: &[RateRequest]) -> Vec<RateAnswer>;
    async fn forget_idle(&self, limit: usize) -> u64;
} }

metered! { ArchiveStore by |inner| inner.archive().ok_or_else(not_there)?; {
    async fn archive(&self, request: &PurgeRequest) -> Guarded<u64>;
    async fn archived(&self, ids: &[JobId]) -> Vec<Option<ArchivedJob>>;
    async fn list_archived(&self, filter: &ArchiveFilter, page: &PageRequest) -> ArchivePage;
    async fn purge_archive(&self, request: &ArchivePurge) -> Guarded<u64>;
} }

metered! { WorkflowStore by |inner| inner.workflows().ok_or_else(not_there)?; {
    async fn create_batch(&self, batch: BatchId) -> Changed;
    async fn close_batch(&self, batch: BatchId) -> BatchClosed;
    async fn batches(&self, ids: &[BatchId]) -> Vec<Option<BatchRecord>>;
    async fn recent_batches(&self, limit: usize, before: Option<BatchId>) -> Vec<BatchRecord>;
    async fn purge_batches(&self, request: &BatchPurge) -> Guarded<u64>;
    async fn parents_of(&self, jobs: &[JobId]) -> Vec<Vec<Link>>;
    async fn children_of(&self, parent: Parent, limit: usize, after: Option<JobId>) -> Vec<Link>;
} }

metered! { SignalStore by |inner| inner.signals().ok_or_else(not_there)?; {
    async fn deliver(&self, signal: &Signal) -> Delivered;
    async fn expire(&self, limit: usize) -> Vec<JobId>;
} }

metered! { DiagnosticStore by |inner| inner.diagnostics().ok_or_else(not_there)?; {
    async fn findings(&self) -> Vec<Finding>;
} }

/// Nobody gets as far as this: the accessors give no role that the inner store has not.
fn not_there() -> StoreError {
    StoreError::new(StoreErrorKind::Other, "a role").with_source("the inner store does not have it")
}
