use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::{BatchId, JobId};
use crate::model::{BatchClosed, BatchPurge, BatchRecord, Guarded, Link, Parent};
use crate::store::Changed;

/// Links and batches: jobs that wait for other jobs to end, and jobs that are counted together.
///
/// [`JobStore::enqueue`](super::JobStore::enqueue) creates links and adds jobs to batches. Every
/// method that ends jobs decides the links on them. The rules are in
/// [`links::Cascade`](crate::links::Cascade). This trait has the other calls for links and batches.
/// A store without this part never receives a job with links or a batch, because the
/// [door](super::Checked) refuses such jobs.
///
/// # Contract
/// - **[link.wait]** A job that is stored with links is `Blocked`, and never claimed, until all its
///   links are met and its signal, if it waits for one, has come.
/// - **[link.decide]** When a job ends, by whichever method, the same write makes every open link
///   on the job `Met` or `Unmet`, as [`Condition::met_by`](crate::Condition::met_by) returns. A
///   call first ends all jobs that it names, and only then applies the effects of their ends on
///   other jobs.
/// - **[link.release]** The write that decides the last open link of a blocked job makes the job
///   `Pending`, unless the job still waits for a signal. This happens exactly once, even if many
///   parents end at the same time. The job is due at its `run_at` or now, whichever is later.
/// - **[link.cancel]** When a link of a blocked job becomes `Unmet`, the same write makes the job
///   `Cancelled`. This write also frees the job's unique key, counts the job in its batch, and
///   decides the links on the job.
/// - **[link.enqueue]** The enqueue decides a link on a parent that has already ended, and a link
///   on a batch whose counts already decide the link. If the parent ends during the enqueue, the
///   link is decided too.
/// - **[link.missing]** An enqueue is `Invalid` (field `parent`) and stores nothing if a parent of
///   a new job is neither in the call nor stored. The same applies (field `batch`) if the batch of
///   a new job is not stored.
/// - **[link.cycle]** An enqueue is `Invalid` (field `parent`) and stores nothing if a job would
///   wait for itself through its links. This also holds if the cycle exists only because a job is a
///   duplicate of a stored job ([`NewLinks::of`](crate::links::NewLinks::of)).
/// - **[link.duplicate]** If the parent of a job is in the same call and is a `Duplicate`, the job
///   is linked to the stored job that the parent duplicates. If that job was purged, the parent is
///   missing (`[link.missing]`). A job that is itself not stored, or was stored before, gets no
///   links.
/// - **[link.once]** A decided link never changes: if the parent is a dead letter that is requeued
///   and ends again, the link stays as it is.
/// - **[link.requeue]** A requeued job is `Blocked` while it has open links or its signal has not
///   come, and the timeout of the signal starts anew. Unmet links do not block it.
/// - **[link.kept]** The links of a job are kept until the job itself is purged, even if its
///   parents were purged before.
/// - **[batch.join]** The write that stores a new job of a batch increases the total of the batch
///   by one. If the batch is not stored or is closed, the enqueue is `Invalid` (field `batch`) and
///   nothing is stored.
/// - **[batch.count]** The write that ends a job of a batch counts the job in the batch, by its
///   state, and only once. A job that is requeued and ends again is not counted again.
/// - **[batch.end]** A batch ends in the write after which it is closed and all its jobs are
///   counted; the time of this write is its end.
/// - **[batch.callback]** The write that counts a job or closes the batch also decides the links on
///   the batch, as [`BatchCondition::decide`](crate::BatchCondition::decide) returns. Each link is
///   decided once, even if several of the last jobs end at the same time.
/// - **[batch.filter]** A filter by batch selects exactly the jobs of the batch, in lists and in
///   actions.
#[async_trait]
pub trait WorkflowStore: Debug + Send + Sync {
    /// Stores an open batch.
    ///
    /// # Contract
    /// - **[batch.create]** A new batch is open and has no jobs. If the batch is already stored, in
    ///   whatever state, the answer is `Unchanged`. So the call can be repeated.
    ///
    /// # Errors
    /// A failure of the store.
    async fn create_batch(&self, batch: BatchId) -> Result<Changed>;

    /// Closes a batch: no more jobs can join it.
    ///
    /// # Contract
    /// - **[batch.close]** A closed batch stays closed, and the answer says whether this call
    ///   closed the batch. If not, the answer says whether the batch was closed before or is not
    ///   stored. A batch that has no unfinished jobs ends with this call.
    ///
    /// # Errors
    /// A failure of the store.
    async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed>;

    /// Reads batches.
    ///
    /// # Contract
    /// - **[batch.read]** The call returns one answer per id, in order: the record of the batch, or
    ///   `None` if the batch is not stored.
    ///
    /// # Errors
    /// `Invalid` if there are too many ids, or a failure of the store.
    async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>>;

    /// Lists batches, the newest first: up to `limit` batches older than `before`.
    ///
    /// # Contract
    /// - **[batch.list]** The batches are in descending order of id. If `before` is given, only
    ///   batches with lower ids are listed.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>>;

    /// Deletes old ended batches, and returns how many. Their jobs are not deleted.
    ///
    /// # Contract
    /// - **[batch.purge]** The call deletes only batches that ended more than `older_than` ago, the
    ///   earliest end first. It deletes exactly `limit` batches if that many qualify, and fewer
    ///   otherwise.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>>;

    /// Reads the links of jobs to their parents.
    ///
    /// # Contract
    /// - **[link.parents]** The call returns one answer per id, in order: the links of the job as
    ///   they were given, each with its state. The answer is empty for a job that has no links or
    ///   does not exist.
    ///
    /// # Errors
    /// `Invalid` if there are too many ids, or a failure of the store.
    async fn parents_of(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>>;

    /// Reads up to `limit` links of children on a job or a batch, in the order of the children's
    /// ids.
    ///
    /// # Contract
    /// - **[link.children]** The call returns the links on this parent, open and decided, in order
    ///   of the children's ids. Several links of one child are in the order in which the child was
    ///   given them. If `after` is given, only links of children with higher ids are returned.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn children_of(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>>;
}
