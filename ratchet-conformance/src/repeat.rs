//! Repeats calls that the database gave up because of others, or did not answer in time, as the
//! engine does: under load a store may fail so, and the contract allows the call to be made again.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::model::*;
use ratchet_core::store::{
    Acquired, ArchiveStore, CallPolicy, Changed, DiagnosticStore, IfKnown, JobStore, LockInfo,
    LockStore, NodeStore, PermitStore, QueueStore, RateStore, RecurringStore, SignalStore, Store,
    StoreInfo, TransactionStore, VersionStore, WorkflowStore,
};
use ratchet_core::time::Timestamp;
use ratchet_core::{
    BatchId, ClaimToken, Enqueued, Fence, JobAction, JobId, JobRecord, JobState, Name, NewJob,
    NodeId, Result, SharedStore, StoreErrorKind,
};

use crate::notes::Notes;

/// A handle whose calls are repeated, and counted in the notes of its case.
pub(crate) struct Repeating {
    inner: SharedStore,
    notes: Arc<Notes>,
}

/// After which errors a call is repeated.
#[derive(Clone, Copy)]
enum Repeat {
    /// After contention, which has changed nothing.
    AfterContention,
    /// After a timeout, too: whether or not the call took effect, the next one returns the same.
    AfterContentionOrTimeout,
}

impl Repeat {
    const fn after(self, kind: StoreErrorKind) -> bool {
        match kind {
            StoreErrorKind::Contention => true,
            StoreErrorKind::Timeout => matches!(self, Self::AfterContentionOrTimeout),
            _ => false,
        }
    }
}

impl Repeating {
    const FIRST_PAUSE: Duration = Duration::from_millis(5);
    const LONGEST_PAUSE: Duration = Duration::from_millis(500);

    pub(crate) fn new(inner: SharedStore, notes: Arc<Notes>) -> Self {
        Self { inner, notes }
    }

    /// Makes a call until it ends otherwise, or little of the case's time is left.
    async fn call<T, F>(&self, repeat: Repeat, call: impl Fn() -> F + Send + Sync) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
        T: Send,
    {
        let mut pause = Self::FIRST_PAUSE;
        loop {
            let error = match call().await {
                Err(error) if repeat.after(error.kind()) && !self.notes.is_late() => error,
                Err(error) => {
                    self.notes.note_error(&error);
                    return Err(error);
                }
                answered => return answered,
            };
            self.notes.repeated(&error);
            drop(error);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Self::LONGEST_PAUSE);
        }
    }
}

impl fmt::Debug for Repeating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Store for Repeating {
    fn info(&self) -> StoreInfo {
        self.inner.info()
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

    fn guards(&self) -> bool {
        self.inner.guards()
    }

    fn is_checked(&self) -> bool {
        self.inner.is_checked()
    }

    fn call_policy(&self) -> CallPolicy {
        self.inner.call_policy()
    }

    fn call_timed_out(&self) {
        self.inner.call_timed_out();
    }

    fn transactions(&self) -> Option<&dyn TransactionStore> {
        self.inner.transactions()
    }

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        self.inner.recurring().is_some().then_some(self)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        self.inner.archive().is_some().then_some(self)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        self.inner.permits().is_some().then_some(self)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        self.inner.rates().is_some().then_some(self)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        self.inner.workflows().is_some().then_some(self)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        self.inner.signals().is_some().then_some(self)
    }

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        self.inner.diagnostics().is_some().then_some(self)
    }

    fn connections(&self) -> Option<u32> {
        self.inner.connections()
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        self.inner.coordinator()
    }
}

/// Writes the accessors of the parts that only some stores have. [`Repeating`] shows only those that
/// are there.
macro_rules! optional {
    ($($accessor:ident -> $part:ident;)+) => {$(
        fn $accessor(store: &dyn Store) -> &dyn $part {
            store.$accessor().expect("a part is reached through its accessor")
        }
    )+};
}

optional! {
    recurring -> RecurringStore;
    archive -> ArchiveStore;
    permits -> PermitStore;
    rates -> RateStore;
    workflows -> WorkflowStore;
    signals -> SignalStore;
    diagnostics -> DiagnosticStore;
}

/// Writes the traits of the parts: each method with when its call is repeated.
macro_rules! repeating {
    ($($part:ident by $accessor:path {
        $($repeat:ident $method:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty;)+
    })+) => {$(
        #[async_trait]
        impl $part for Repeating {$(
            async fn $method(&self, $($argument: $type),*) -> Result<$answer> {
                let part = $accessor(&*self.inner);
                self.call(Repeat::$repeat, || part.$method($($argument),*)).await
            }
        )+}
    )+};
}

repeating! {
    JobStore by Store::jobs {
        AfterContentionOrTimeout enqueue(jobs: &[NewJob]) -> Vec<Enqueued>;
        AfterContention claim_next_batch(request: &ClaimRequest) -> Vec<ClaimedJob>;
        AfterContention claim_next_batch_optimized(request: &ClaimRequest) -> Vec<Claim>;
        AfterContentionOrTimeout load_inputs(tokens: &[ClaimToken]) -> Vec<Option<JobInput>>;
        AfterContentionOrTimeout settle(settlements: &[Settlement]) -> Vec<Fenced>;
        AfterContentionOrTimeout report(reports: &[Report]) -> Vec<Reported>;
        AfterContention reclaim(request: &ReclaimRequest) -> Vec<Reclaimed>;
        AfterContention act(jobs: &JobSelector, action: JobAction) -> Vec<Acted>;
        AfterContentionOrTimeout get(ids: &[JobId], detail: Detail) -> Vec<Option<JobRecord>>;
        AfterContentionOrTimeout list(filter: &JobFilter, page: &PageRequest) -> JobPage;
        AfterContention act_on(jobs: &[JobId], from: &[JobState], action: JobAction) -> Vec<Acted>;
        AfterContentionOrTimeout select(filter: &JobFilter, page: &PageRequest) -> Vec<JobId>;
        AfterContentionOrTimeout count_jobs(filter: &JobFilter) -> StateCounts;
        AfterContentionOrTimeout history(job: JobId) -> Vec<Attempt>;
        AfterContention purge(request: &PurgeRequest) -> Guarded<u64>;
    }

    QueueStore by Store::queues {
        AfterContention pause_queue(queue: &Name) -> Changed;
        AfterContention resume_queue(queue: &Name) -> Changed;
        AfterContentionOrTimeout queues() -> Vec<QueueInfo>;
        AfterContentionOrTimeout due_routes() -> Vec<DueRoute>;
        AfterContentionOrTimeout count_due(queue: &Name, limit: u64) -> u64;
    }

    NodeStore by Store::nodes {
        AfterContention heartbeat(heartbeat: &Heartbeat) -> HeartbeatReply;
        AfterContention set_node_status(node: NodeId, status: NodeStatus) -> Changed;
        AfterContentionOrTimeout nodes() -> Vec<NodeRecord>;
        AfterContention sweep_nodes(sweep: &NodeSweep) -> Guarded<SweptNodes>;
        AfterContentionOrTimeout database_time() -> Timestamp;
    }

    LockStore by Store::locks {
        AfterContention acquire(name: &Name, owner: &Name, ttl: Duration) -> Acquired;
        AfterContentionOrTimeout renew(name: &Name, owner: &Name, fence: Fence, ttl: Duration) -> Fenced;
        AfterContention release(name: &Name, owner: &Name, fence: Fence) -> Fenced;
        AfterContentionOrTimeout inspect(name: &Name) -> Option<LockInfo>;
        AfterContentionOrTimeout list_locks(after: Option<&Name>, limit: usize) -> Vec<(Name, LockInfo)>;
    }

    VersionStore by Store::versions {
        AfterContention bump(namespace: &Name, guard: Option<&Guard>) -> Guarded<u64>;
        AfterContentionOrTimeout versions(namespaces: &[Name]) -> Vec<u64>;
    }

    RecurringStore by recurring {
        AfterContention put(put: &PutRecurring) -> PutOutcome;
        AfterContentionOrTimeout find(name: &Name) -> Option<RecurringRecord>;
        AfterContentionOrTimeout definitions(after: Option<&Name>, limit: usize) -> RecurringPage;
        AfterContention claim_due_recurring(request: &RecurringClaimRequest) -> DueRecurring;
        AfterContention fire(firings: &[RecurringFiring]) -> Vec<Fired>;
        AfterContention set_paused(name: &Name, paused: bool) -> Changed;
        AfterContention delete(name: &Name) -> Changed;
        AfterContention retire(request: &RetireRecurring) -> Guarded<Vec<Name>>;
    }

    ArchiveStore by archive {
        AfterContention archive(request: &PurgeRequest) -> Guarded<u64>;
        AfterContentionOrTimeout archived(ids: &[JobId]) -> Vec<Option<ArchivedJob>>;
        AfterContentionOrTimeout list_archived(filter: &ArchiveFilter, page: &PageRequest) -> ArchivePage;
        AfterContention purge_archive(request: &ArchivePurge) -> Guarded<u64>;
    }

    PermitStore by permits {
        AfterContention set_permits(resource: &Name, max: u32, if_known: IfKnown) -> Changed;
        AfterContentionOrTimeout permits() -> Vec<PermitInfo>;
    }

    RateStore by rates {
        AfterContention take(requests: &[RateRequest]) -> Vec<RateAnswer>;
        AfterContention forget_idle(limit: usize) -> u64;
    }

    WorkflowStore by workflows {
        AfterContention create_batch(batch: BatchId) -> Changed;
        AfterContention close_batch(batch: BatchId) -> BatchClosed;
        AfterContentionOrTimeout batches(ids: &[BatchId]) -> Vec<Option<BatchRecord>>;
        AfterContentionOrTimeout recent_batches(limit: usize, before: Option<BatchId>) -> Vec<BatchRecord>;
        AfterContention purge_batches(request: &BatchPurge) -> Guarded<u64>;
        AfterContentionOrTimeout parents_of(jobs: &[JobId]) -> Vec<Vec<Link>>;
        AfterContentionOrTimeout children_of(parent: Parent, limit: usize, after: Option<JobId>) -> Vec<Link>;
    }

    SignalStore by signals {
        AfterContention deliver(signal: &Signal) -> Delivered;
        AfterContention expire(limit: usize) -> Vec<JobId>;
    }

    DiagnosticStore by diagnostics {
        AfterContentionOrTimeout findings() -> Vec<Finding>;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use ratchet_core::memory::{Fault, MemoryStore};

    use super::*;
    use crate::build::job;
    use crate::runner::time_limit;

    /// A handle on an empty store whose first `count` calls fail in this way, and its notes.
    fn failing(kind: StoreErrorKind, count: u64) -> (Repeating, Arc<Notes>) {
        let (calls, notes) = (AtomicU64::new(0), Arc::new(Notes::default()));
        let store = MemoryStore::new().with_faults(move |_| {
            match calls.fetch_add(1, Ordering::Relaxed) < count {
                true => Fault::Failure(kind),
                false => Fault::None,
            }
        });
        (Repeating::new(Arc::new(store), Arc::clone(&notes)), notes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_contended_call_is_repeated_and_counted() {
        let (store, notes) = failing(StoreErrorKind::Contention, 3);
        let request = ClaimRequest::new(NodeId::new(), 1);
        store.jobs().claim_next_batch(&request).await.unwrap();
        let (repeated, last) = notes.repeats();
        assert_eq!(repeated, 3);
        assert!(last.unwrap().contains("claim_next_batch: contention"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_call_whose_second_answer_is_the_first_is_repeated_after_a_timeout() {
        let (store, notes) = failing(StoreErrorKind::Timeout, 1);
        store.jobs().enqueue(&[job()]).await.unwrap();
        assert_eq!(notes.repeats().0, 1);
        let (store, notes) = failing(StoreErrorKind::Timeout, 1);
        let request = ClaimRequest::new(NodeId::new(), 1);
        let error = store.jobs().claim_next_batch(&request).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Timeout);
        assert_eq!(notes.repeats().0, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn every_other_error_is_returned_at_once() {
        let misconfigured = StoreErrorKind::Misconfigured;
        for kind in [
            StoreErrorKind::Unavailable,
            StoreErrorKind::Corrupt,
            misconfigured,
        ] {
            let (store, notes) = failing(kind, 1);
            let error = store.jobs().enqueue(&[job()]).await.unwrap_err();
            assert_eq!((error.kind(), notes.repeats().0), (kind, 0));
            let failure = format!("enqueue: {error:?}");
            assert_eq!(notes.shows_refusal(&failure), kind == misconfigured);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn contention_that_does_not_end_is_returned_before_the_case_must_end() {
        let (store, notes) = failing(StoreErrorKind::Contention, u64::MAX);
        let ended = tokio::time::timeout(time_limit(""), store.jobs().enqueue(&[job()])).await;
        let error = ended.expect("before the deadline").unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Contention);
        assert!(notes.repeats().0 > 1);
    }
}
