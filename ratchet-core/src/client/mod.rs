//! The client: enqueues, reads and manages jobs. It never runs them.

mod archive;
mod bulk;
mod call;
mod cluster;
mod diagnostics;
mod fair;
mod fair_keys;
mod flow;
mod pauses;
mod peers;
mod permits;
mod recurring;
mod stream;
mod versions;
mod wake_queue;
mod wakes;
mod workflows;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use archive::ArchiveClient;
pub(crate) use archive::archive;
pub use bulk::{Bulk, BulkCounts};
pub(crate) use call::{Calls, RetryDelays};
pub use flow::{Step, Workflow};
use peers::Peers;
use permits::DeclaredPermits;
pub use recurring::RecurringClient;
pub(crate) use recurring::recurring;
pub use stream::{StreamCounts, StreamError};
pub use versions::VersionWatch;
pub(crate) use wake_queue::{Seat, WakeQueue};
pub use wakes::Wakes;

use crate::cluster::{ClusterCoordinator, JobWakeups, NoopCoordinator, Wakeup};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::id::{JobId, NodeId};
use crate::metrics;
use crate::model::{
    Acted, ActionOutcome, Attempt, Detail, Enqueued, JobFilter, JobPage, JobRecord, JobSelector,
    NewJob, NodeRecord, NodeStatus, PageRequest, QueueInfo, RunAt, StateCounts,
};
use crate::name::Name;
use crate::priority::Priority;
use crate::state::{JobAction, JobState};
use crate::store::{AppTransaction, Changed, SharedStore};

/// Enqueues, reads and manages jobs. Cheap to clone.
///
/// Every call has a deadline. A call that exceeds it fails with `Timeout`, and may or may not have
/// taken effect.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
/// use std::sync::Arc;
/// use ratchet::{MemoryStore, NewJob, Ratchet};
///
/// let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// let id = client.enqueue(NewJob::new("greet", "world")).await?.id();
/// client.cancel(id).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    calls: Arc<Calls>,
    coordinator: Arc<dyn ClusterCoordinator>,
    /// The node to which this client belongs. `None` for a client without a node.
    node: Option<OwnNode>,
    wakes: Wakes,
    peers: Arc<Peers>,
    permits: Arc<DeclaredPermits>,
}

/// The node that a client belongs to.
#[derive(Clone, Debug)]
pub(crate) struct OwnNode {
    /// The id under which the node sends its wakeups.
    pub(crate) source: NodeId,
    /// Wakes the pollers of the node.
    pub(crate) wake_queue: Arc<WakeQueue>,
}

impl Client {
    /// The maximum number of tries of an enqueue. If the last one fails too, its error is returned.
    const ENQUEUE_TRIES: u32 = 3;

    pub(crate) fn new(store: SharedStore) -> Self {
        let coordinator = store.coordinator();
        Self(Arc::new(Inner {
            calls: Arc::new(Calls::of_client(store)),
            coordinator: coordinator.unwrap_or_else(|| Arc::new(NoopCoordinator)),
            node: None,
            wakes: Wakes::default(),
            peers: Arc::default(),
            permits: Arc::default(),
        }))
    }

    pub(crate) fn of_node(
        calls: Arc<Calls>,
        coordinator: Arc<dyn ClusterCoordinator>,
        node: OwnNode,
        permits: BTreeMap<Name, u32>,
    ) -> Self {
        Self(Arc::new(Inner {
            calls,
            coordinator,
            node: Some(node),
            wakes: Wakes::default(),
            peers: Arc::default(),
            permits: Arc::new(DeclaredPermits::new(permits)),
        }))
    }

    /// Returns the same client, except that it sends its wakeups through this coordinator.
    #[must_use]
    pub fn with_coordinator(&self, coordinator: impl ClusterCoordinator) -> Self {
        Self(Arc::new(Inner {
            coordinator: Arc::new(coordinator),
            ..Inner::clone(&self.0)
        }))
    }

    /// Returns the same client, except that it wakes nodes only for the jobs that `wakes` selects.
    #[must_use]
    pub fn with_wakes(&self, wakes: Wakes) -> Self {
        Self(Arc::new(Inner {
            wakes,
            ..Inner::clone(&self.0)
        }))
    }

    /// Returns the store of this client.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        self.0.calls.store()
    }

    /// Enqueues one job; see [`enqueue_all`](Self::enqueue_all).
    ///
    /// Concurrent calls may be sent to the database together, which is faster
    /// ([`CallPolicy::gathers`](crate::store::CallPolicy::gathers)). Each call still returns only
    /// after its own job is stored, and fails only because of its own job or of the database.
    ///
    /// # Errors
    /// As for [`enqueue_all`](Self::enqueue_all).
    ///
    /// # Cancel safety
    /// If the future is dropped, the job may or may not have been enqueued.
    pub async fn enqueue(&self, job: NewJob) -> Result<Enqueued> {
        only(self.enqueue_all(&[job]).await)
    }

    /// Enqueues jobs, all of them or none, and wakes nodes for the jobs that are due at once.
    /// [`with_wakes`](Self::with_wakes) changes which jobs wake nodes.
    ///
    /// A job whose key is taken is a duplicate: it is not stored, and the other jobs are. With
    /// [`NewJob::on_conflict`], it changes the job that has the key. With
    /// [`NewJob::all_or_nothing`], a duplicate keeps the other jobs from being stored, too.
    ///
    /// With the feature `otel`, jobs that have no [trace](NewJob::trace) get the trace of the
    /// caller ([`TraceContext::current`](crate::TraceContext)).
    ///
    /// The client retries transient failures a few times. A retry stores no job twice, because each
    /// job carries its id. For the same reason the caller may repeat a failed call with the same
    /// jobs. However, a retry may [replace a payload](crate::OnConflict#repeated-enqueues) again.
    ///
    /// # Errors
    /// `Invalid`, naming what is wrong with the first bad job; or a failure of the store. If the
    /// failure is not transient, no job was stored. If it is transient, the jobs may have been
    /// stored.
    ///
    /// # Cancel safety
    /// If the future is dropped, the jobs may or may not have been enqueued.
    pub async fn enqueue_all(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        #[cfg(feature = "otel")]
        let traced = crate::otel::traced(jobs);
        #[cfg(feature = "otel")]
        let jobs = &*traced;
        let mut backoff = RetryDelays::of("enqueue");
        let mut tries = 1;
        let answers = loop {
            let enqueued = async {
                self.declare_permits().await?;
                let calls = &self.0.calls;
                calls
                    .call("enqueue", |store| store.jobs().enqueue(jobs))
                    .await
            };
            match enqueued.await {
                Err(error) if error.is_transient() && tries < Self::ENQUEUE_TRIES => {
                    tracing::debug!(%error, "enqueueing failed; retrying after a pause");
                    tries += 1;
                    tokio::time::sleep(backoff.next(0.5)).await;
                }
                other => break other?,
            }
        };
        metrics::enqueued(jobs, &answers);
        let created = jobs.iter().zip(&answers);
        let created = created.filter(|(_, answer)| matches!(answer, Enqueued::Created(_)));
        let created = created.map(|(job, _)| job);
        if let Some(own) = &self.0.node {
            own.wake_queue.jobs_changed();
        }
        self.wake_for(created.filter(|job| self.wakes(job))).await;
        Ok(answers)
    }

    /// Enqueues one job inside a transaction of the application. The job exists once the
    /// transaction commits; a rollback leaves no trace of it. See
    /// [`enqueue_all_in`](Self::enqueue_all_in).
    ///
    /// ```no_run
    /// # use ratchet_core::{Client, NewJob, Result, store::AppTransaction};
    /// # async fn example<S>(client: Client, mut tx: impl AppTransaction<S>) -> Result<()> {
    /// // … what the application changes, in the same transaction
    /// client.enqueue_in(&mut tx, NewJob::new("confirm", &42)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`enqueue_all_in`](Self::enqueue_all_in).
    ///
    /// # Cancel safety
    /// As for [`enqueue_all_in`](Self::enqueue_all_in).
    pub fn enqueue_in<'a, S>(
        &'a self,
        transaction: &'a mut impl AppTransaction<S>,
        job: NewJob,
    ) -> BoxFuture<'a, Result<Enqueued>> {
        self.enqueue_all_in(transaction, &[job]).map(only).boxed()
    }

    /// Enqueues jobs inside a transaction of the application, all of them or none.
    ///
    /// The transaction must be one of the store's driver, in the version that Ratchet re-exports,
    /// on the same database. The store's `TransactionStore::enqueue_on` documents the other
    /// requirements, which nodes are woken after the commit, and what the transaction blocks until
    /// then. The [wakes](Self::with_wakes) of this client decide which jobs wake nodes.
    ///
    /// On SQLite the method itself does the work, on the calling thread, and the returned future is
    /// ready. A transaction of rusqlite cannot be held across an `await` in a task that moves
    /// between threads. In such a task, use `SqliteStore::enqueue_in_blocking` inside
    /// `spawn_blocking`.
    ///
    /// # Errors
    /// `Invalid`, naming what is wrong with the first bad job, or naming `transaction` if the
    /// transaction belongs to another backend than the store. `Misconfigured` if the store does not
    /// support transactions of the application, for example [`MemoryStore`](crate::MemoryStore).
    /// Otherwise as the store documents.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the jobs may be in the transaction, which must be rolled
    /// back.
    pub fn enqueue_all_in<'a, S>(
        &'a self,
        transaction: &'a mut impl AppTransaction<S>,
        jobs: &[NewJob],
    ) -> BoxFuture<'a, Result<Vec<Enqueued>>> {
        #[cfg(feature = "otel")]
        let traced = crate::otel::traced(jobs);
        #[cfg(feature = "otel")]
        let jobs = &*traced;
        match self.store().transactions() {
            Some(store) => {
                if let Some(own) = &self.0.node {
                    own.wake_queue.expect_commit();
                }
                let mut due = self.wakeups(jobs.iter().filter(|job| self.wakes(job)));
                let wakeup = |job| self.wakes(job).then(|| due.next()).flatten();
                let wakeups: JobWakeups = jobs.iter().map(wakeup).collect();
                store.enqueue_on(transaction.connection(), jobs.to_vec(), wakeups)
            }
            None => async {
                Err(
                    StoreError::new(StoreErrorKind::Misconfigured, "enqueue_in").with_source(
                        "the store does not support enqueueing in a transaction of the \
                         application",
                    ),
                )
            }
            .boxed(),
        }
    }

    /// Reads a job.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn job(&self, id: JobId) -> Result<Option<JobRecord>> {
        let mut jobs = self.jobs(&[id], Detail::Whole).await?;
        Ok(jobs.pop().flatten())
    }

    /// Reads jobs: one answer per id, in the order of the ids; `None` for a job that is not stored.
    ///
    /// # Errors
    /// `Invalid` for more than [`MAX_BATCH`](crate::limits::MAX_BATCH) ids, or a failure of the
    /// store.
    pub async fn jobs(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>> {
        let calls = &self.0.calls;
        calls
            .call("get", |store| store.jobs().get(ids, detail))
            .await
    }

    /// Reads one page of the jobs that match the filter.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    pub async fn list(&self, filter: &JobFilter, page: &PageRequest) -> Result<JobPage> {
        self.0
            .calls
            .call("list", |store| store.jobs().list(filter, page))
            .await
    }

    /// Reads the ended claims of a job, from the first to the last.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        self.0
            .calls
            .call("history", |store| store.jobs().history(job))
            .await
    }

    /// Cancels a job. A waiting job ends at once. The node of a running job asks its body to stop,
    /// within one heartbeat interval.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn cancel(&self, job: JobId) -> Result<ActionOutcome> {
        self.act_on(job, JobAction::Cancel).await
    }

    /// Makes a dead letter pending again, and sets its attempts and crashes to zero.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn requeue(&self, job: JobId) -> Result<ActionOutcome> {
        self.act_on(job, JobAction::Requeue).await
    }

    /// Pauses a pending job: no node claims it until it is resumed.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn pause(&self, job: JobId) -> Result<ActionOutcome> {
        self.act_on(job, JobAction::Pause).await
    }

    /// Makes a paused job pending again.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn resume(&self, job: JobId) -> Result<ActionOutcome> {
        self.act_on(job, JobAction::Resume).await
    }

    /// Changes the time at which a waiting job is due.
    ///
    /// # Errors
    /// `Invalid` for a time that cannot be stored, or a failure of the store.
    pub async fn reschedule(&self, job: JobId, due: RunAt) -> Result<ActionOutcome> {
        self.act_on(job, JobAction::Reschedule(due)).await
    }

    /// Gives an unfinished job another priority.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn set_priority(&self, job: JobId, priority: Priority) -> Result<ActionOutcome> {
        self.act_on(job, JobAction::SetPriority(priority)).await
    }

    /// Deletes an ended job with its history. An unfinished job is refused; cancel it first.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn delete(&self, job: JobId) -> Result<ActionOutcome> {
        self.act_on(job, JobAction::Delete).await
    }

    /// Applies the action to every selected job, each independently of the others. For more jobs
    /// than fit in one call, use [`bulk`](Self::bulk).
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    pub async fn act(&self, jobs: &JobSelector, action: JobAction) -> Result<Vec<Acted>> {
        let acted = self
            .0
            .calls
            .call("act", |store| store.jobs().act(jobs, action))
            .await?;
        metrics::acted(action, &acted);
        let ended = ActionOutcome::Became(JobState::Cancelled);
        // Cancelling a job may have unblocked its children or the next job of its lane.
        if (action.may_make_due() && !acted.is_empty())
            || acted.iter().any(|one| one.outcome == ended)
        {
            self.wake(Wakeup::any()).await;
        }
        Ok(acted)
    }

    async fn act_on(&self, job: JobId, action: JobAction) -> Result<ActionOutcome> {
        let acted = self.act(&JobSelector::Ids(vec![job]), action).await?;
        Ok(acted
            .first()
            .map_or(ActionOutcome::NotFound, |acted| acted.outcome))
    }

    /// Lists the queues with their jobs counted by state.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>> {
        self.0
            .calls
            .call("queues", |store| store.queues().queues())
            .await
    }

    /// Counts the jobs that match the filter, by state. With a tag, the store reads only the jobs
    /// that have the tag; without one, it reads the whole table of jobs.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn count(&self, filter: &JobFilter) -> Result<StateCounts> {
        let calls = &self.0.calls;
        let count = calls.call("count_jobs", |store| store.jobs().count_jobs(filter));
        count.await
    }

    /// Lists the nodes, the newest first. Nodes that have ended are listed until they are deleted.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.0
            .calls
            .call("nodes", |store| store.nodes().nodes())
            .await
    }

    /// Asks a node to drain. The node begins to drain at its next heartbeat.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn drain_node(&self, node: NodeId) -> Result<Changed> {
        self.0
            .calls
            .call("set_node_status", |store| {
                store.nodes().set_node_status(node, NodeStatus::Draining)
            })
            .await
    }
}

/// Returns the answer for the only job. Fails if the store returned no answer.
fn only(answers: Result<Vec<Enqueued>>) -> Result<Enqueued> {
    answers?.first().copied().ok_or_else(|| {
        StoreError::new(StoreErrorKind::Other, "enqueue")
            .with_source("the store returned no answer for the job")
    })
}
