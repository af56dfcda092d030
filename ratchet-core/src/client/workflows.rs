use serde::Serialize;

use super::{BulkCounts, Client, RetryDelays};
use crate::cluster::Wakeup;
use crate::error::{InvalidInput, Result};
use crate::id::{BatchId, JobId};
use crate::json::Json;
use crate::model::{
    BatchClosed, BatchRecord, Delivered, JobFilter, Link, Parent, Signal, SignalTarget,
};
use crate::name::Name;
use crate::state::JobAction;
use crate::store::{Changed, SignalStore, Store, WorkflowStore};

/// Returns the store's interface for links and batches. Fails if the store has none.
fn workflows(store: &dyn Store) -> Result<&dyn WorkflowStore> {
    let lacks = || InvalidInput::new("batch", "is not supported by this store").into();
    store.workflows().ok_or_else(lacks)
}

fn signals(store: &dyn Store) -> Result<&dyn SignalStore> {
    let lacks = || InvalidInput::new("signal", "is not supported by this store").into();
    store.signals().ok_or_else(lacks)
}

impl Client {
    /// Creates a batch, and returns its id.
    ///
    /// Jobs are added to the batch by enqueueing them with
    /// [`NewJob::in_batch`](crate::NewJob::in_batch), in any number of calls. The batch ends once
    /// it is [closed](Self::close_batch) and all of its jobs have ended.
    ///
    /// To run something at the end of the batch, enqueue a job with
    /// [`NewJob::after_batch`](crate::NewJob::after_batch).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
    /// use std::sync::Arc;
    /// use ratchet::{BatchCondition, MemoryStore, NewJob, Ratchet};
    ///
    /// let client = Ratchet::client(Arc::new(MemoryStore::new()));
    /// let batch = client.create_batch().await?;
    /// let report = NewJob::new("report", &()).after_batch(batch, BatchCondition::Ended);
    /// client.enqueue(report).await?;
    /// for rows in [[1, 2], [3, 4]] {
    ///     let chunk = rows.map(|row| NewJob::new("import", &row).in_batch(batch));
    ///     client.enqueue_all(&chunk).await?;
    /// }
    /// client.close_batch(batch).await?;
    /// assert_eq!(client.batch(batch).await?.map(|batch| batch.total), Some(4));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid`, naming `batch`, if the store has no batches; or a failure of the store. After a
    /// failure there may be a batch whose id is lost. [`open_batch`](Self::open_batch) avoids that:
    /// the caller chooses the id and can repeat the call.
    pub async fn create_batch(&self) -> Result<BatchId> {
        let batch = BatchId::new();
        self.open_batch(batch).await.map(|_| batch)
    }

    /// Creates the batch with this id, or keeps the existing one.
    ///
    /// An application can choose the id and store it, in a file or in its own table. After a crash,
    /// it continues the batch with that id. It can enqueue jobs with [idempotency
    /// keys](crate::NewJob::idempotency_key) into the batch again: a job that is already stored is
    /// not stored twice, even once the batch is closed.
    ///
    /// Returns `Changed` if this call created the batch. A batch that was
    /// [purged](crate::Retention) with its jobs is created anew.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
    /// # use std::sync::Arc;
    /// use ratchet::{BatchId, MemoryStore, NewJob, Ratchet};
    ///
    /// let client = Ratchet::client(Arc::new(MemoryStore::new()));
    /// let batch = BatchId::new(); // kept before it is used
    /// for _start in 0..2 {
    ///     client.open_batch(batch).await?;
    ///     for row in 0..3 {
    ///         let once = format!("{batch} {row}");
    ///         let job = NewJob::new("import", &row).in_batch(batch).idempotency_key(&once);
    ///         client.enqueue(job).await?;
    ///     }
    ///     client.close_batch(batch).await?;
    /// }
    /// assert_eq!(client.batch(batch).await?.map(|batch| batch.total), Some(3));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid`, naming `batch`, if the store has no batches, or a failure of the store; the call
    /// can be repeated.
    pub async fn open_batch(&self, batch: BatchId) -> Result<Changed> {
        let mut backoff = RetryDelays::of("batch");
        let mut tries = 1;
        loop {
            let calls = &self.0.calls;
            let create = calls.call("create_batch", |store| async move {
                workflows(store)?.create_batch(batch).await
            });
            match create.await {
                Err(error) if error.is_transient() && tries < Self::ENQUEUE_TRIES => {
                    tries += 1;
                    tokio::time::sleep(backoff.next(0.5)).await;
                }
                created => return created,
            }
        }
    }

    /// Closes a batch: no more jobs can join it. The batch ends when all of its jobs have ended,
    /// which may be at once.
    ///
    /// The client retries transient failures, as it does for an enqueue. If a failed try may have
    /// closed the batch, a later try returns `Closed`, not `Already`.
    ///
    /// # Errors
    /// `Invalid` if the store has no batches, or a failure of the store; the call can be repeated.
    pub async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed> {
        let mut backoff = RetryDelays::of("batch");
        let mut tries = 1;
        let closed = loop {
            let calls = &self.0.calls;
            let close = calls.call("close_batch", |store| async move {
                workflows(store)?.close_batch(batch).await
            });
            match close.await {
                Err(error) if error.is_transient() && tries < Self::ENQUEUE_TRIES => {
                    tries += 1;
                    tokio::time::sleep(backoff.next(0.5)).await;
                }
                // The previous try may have closed the batch although its answer was lost.
                Ok(BatchClosed::Already) if tries > 1 => break BatchClosed::Closed,
                closed => break closed?,
            }
        };
        if closed == BatchClosed::Closed {
            self.wake(Wakeup::any()).await;
        }
        Ok(closed)
    }

    /// Reads a batch with the counts of its jobs. Returns `None` if there is no such batch.
    ///
    /// # Errors
    /// `Invalid` if the store has no batches, or a failure of the store.
    pub async fn batch(&self, batch: BatchId) -> Result<Option<BatchRecord>> {
        Ok(self.batches(&[batch]).await?.pop().flatten())
    }

    pub(crate) async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>> {
        let calls = &self.0.calls;
        let read = calls.call("batches", |store| async move {
            workflows(store)?.batches(ids).await
        });
        read.await
    }

    /// Closes a batch and cancels its unfinished jobs, in passes of limited size. Waiting jobs end
    /// at once, and running bodies are asked to stop within one heartbeat interval. When the last
    /// job has ended, the jobs that wait for the batch are unblocked or cancelled, as after any end
    /// of a batch.
    ///
    /// # Errors
    /// `Invalid` if the store has no batches; or a failure of the store. After a failure some jobs
    /// may have been cancelled, and the call can be repeated.
    pub async fn cancel_batch(&self, batch: BatchId) -> Result<BulkCounts> {
        self.close_batch(batch).await?;
        let children = JobFilter::all().batch(batch);
        self.bulk(children, JobAction::Cancel, u64::MAX).run().await
    }

    /// Delivers a signal to every job that waits for one of this name; see
    /// [`NewJob::wait_for`](crate::NewJob::wait_for). Each job receives only the first signal.
    ///
    /// # Errors
    /// `Invalid` for a bad name, a payload that does not serialize or is larger than 64 KiB, or a
    /// store without signals; or a failure of the store. The call can be repeated, because a job
    /// that has received a signal receives no other.
    pub async fn signal<T: Serialize + ?Sized + Sync>(
        &self,
        key: &str,
        payload: &T,
    ) -> Result<Delivered> {
        let key = Name::new("signal", key)?;
        let payload = Json::encode("payload", payload)?;
        self.deliver(Signal::new(SignalTarget::Key(key), payload))
            .await
    }

    /// Delivers a signal to this job, whatever the name of the signal that the job waits for.
    ///
    /// # Errors
    /// As for [`signal`](Self::signal).
    pub async fn signal_job<T: Serialize + ?Sized + Sync>(
        &self,
        job: JobId,
        payload: &T,
    ) -> Result<Delivered> {
        let payload = Json::encode("payload", payload)?;
        self.deliver(Signal::new(SignalTarget::Job(job), payload))
            .await
    }

    async fn deliver(&self, signal: Signal) -> Result<Delivered> {
        let (calls, signal) = (&self.0.calls, &signal);
        let deliver = calls.call("deliver", |store| async move {
            signals(store)?.deliver(signal).await
        });
        let delivered = deliver.await?;
        if matches!(delivered, Delivered::To(_)) {
            self.wake(Wakeup::any()).await;
        }
        Ok(delivered)
    }

    /// Returns the links of a job to its parents: the jobs and batches that it waits, or waited,
    /// for.
    ///
    /// # Errors
    /// `Invalid` if the store has no links, or a failure of the store.
    pub async fn parents_of(&self, job: JobId) -> Result<Vec<Link>> {
        let calls = &self.0.calls;
        let read = calls.call("parents_of", |store| async move {
            workflows(store)?.parents_of(&[job]).await
        });
        Ok(read.await?.pop().unwrap_or_default())
    }

    /// Returns the links of several jobs to their parents, in the order of `jobs`, which may have
    /// at most [`MAX_BATCH`](crate::limits::MAX_BATCH) entries.
    ///
    /// # Errors
    /// `Invalid` if there are too many jobs or the store has no links, or a failure of the store.
    pub async fn parents_of_all(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        let calls = &self.0.calls;
        let read = calls.call("parents_of", |store| async move {
            workflows(store)?.parents_of(jobs).await
        });
        read.await
    }

    /// Returns up to `limit` links of the jobs that wait, or waited, for a job or a batch, ordered
    /// by the id of the child. With `after`, only links of children with greater ids.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or if the store has no links; or a failure of the store.
    pub async fn children_of(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        let calls = &self.0.calls;
        let read = calls.call("children_of", |store| async move {
            workflows(store)?.children_of(parent, limit, after).await
        });
        read.await
    }

    /// Lists up to `limit` batches, the newest first. With `before`, only batches older than that
    /// one.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or if the store has no batches; or a failure of the store.
    pub async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>> {
        let calls = &self.0.calls;
        let read = calls.call("recent_batches", |store| async move {
            workflows(store)?.recent_batches(limit, before).await
        });
        read.await
    }
}
