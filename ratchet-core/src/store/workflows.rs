use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::{BatchId, JobId};
use crate::model::{BatchClosed, BatchPurge, BatchRecord, Guarded, Link, Parent};
use crate::store::Changed;

/// Links and batches: jobs that wait for the ends of others, and jobs that are counted together.
///
/// Links and memberships are made by [`JobStore::enqueue`](super::JobStore::enqueue) and decided by
/// whatever ends jobs, all with the rules of [`links::Cascade`](crate::links::Cascade); what is
/// here is beside that. A store without this power sees no such job: they are refused before.
///
/// # Contract
/// - **[link.wait]** A job stored with links is `Blocked`, and never claimed, until all its links
///   are met and its signal, if it waits for one, has come.
/// - **[link.decide]** When a job ends, by whichever method, every open link on it becomes `Met` or
///   `Unmet`, as [`Condition::met_by`](crate::Condition::met_by) says, in the same write. The named
///   jobs of a call end first; what their ends do to others comes after.
/// - **[link.release]** A blocked job with no open link and no signal to come becomes `Pending` in
///   the write that decides its last link: once, however many parents end at once. It is due when
///   it was or now, whichever is later.
/// - **[link.cancel]** A blocked job of which a link becomes `Unmet` becomes `Cancelled` in the
///   same write, frees its unique key, is counted in its batch, and its own children are decided.
/// - **[link.enqueue]** A link on a parent that has ended before is decided in the enqueue; so is
///   one on a batch that stands so already. No end is missed in between.
/// - **[link.missing]** An enqueue with a new job whose parent is neither in the call nor stored is
///   `Invalid`, naming `parent`, and so is one whose batch is not stored, naming `batch`; nothing
///   is stored.
/// - **[link.cycle]** So is an enqueue whose jobs would wait for themselves, also where duplicates
///   make them do so ([`NewLinks::of`](crate::links::NewLinks::of)).
/// - **[link.duplicate]** A job whose parent in the same call is a `Duplicate` is linked to the job
///   that stands for it; if that was purged, it is missing as any other. One that is not stored
///   itself, or is stored already, gets no links.
/// - **[link.once]** A decided link stays as it was decided: a dead letter that is requeued and
///   ends again decides nothing again.
/// - **[link.requeue]** A requeued job waits, `Blocked`, while it has open links or its signal has
///   not come; the time for the signal begins anew. Unmet links do not hold it.
/// - **[link.kept]** Links stay until the child is purged, also when the parent was purged.
/// - **[batch.join]** A new job in a batch makes its total one larger, in the same write. If the
///   batch is not stored or closed, the enqueue is `Invalid`, naming `batch`, and nothing is
///   stored.
/// - **[batch.count]** A child that ends is counted by its state, in the same write, once: not
///   again when it is requeued and ends again.
/// - **[batch.end]** A batch has ended, with the time of that write, as soon as it is closed and
///   all its children were counted.
/// - **[batch.callback]** Links on a batch are decided as
///   [`BatchCondition::decide`](crate::BatchCondition::decide) says, in the write that counts the
///   child or closes the batch: once, however many of the last children end at once.
/// - **[batch.filter]** A filter by batch lists, and acts on, exactly its children.
#[async_trait]
pub trait WorkflowStore: Debug + Send + Sync {
    /// Stores an open batch.
    ///
    /// # Contract
    /// - **[batch.create]** It is open and has no children. One that is stored already, whatever
    ///   became of it, is `Unchanged`, so that the call can be repeated.
    ///
    /// # Errors
    /// A failure of the store.
    async fn create_batch(&self, batch: BatchId) -> Result<Changed>;

    /// Lets no more jobs join a batch.
    ///
    /// # Contract
    /// - **[batch.close]** Answers what became of it; closed, it stays so. A batch that has no
    ///   unfinished children ends with this call.
    ///
    /// # Errors
    /// A failure of the store.
    async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed>;

    /// Reads batches.
    ///
    /// # Contract
    /// - **[batch.read]** One answer per id, in order: how the batch stands, or none.
    ///
    /// # Errors
    /// `Invalid` if there are too many, or a failure of the store.
    async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>>;

    /// Lists batches, the newest first: up to `limit` of those older than `before`.
    ///
    /// # Contract
    /// - **[batch.list]** In descending order of id; only ids below `before`, if it is given.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>>;

    /// Deletes old ended batches, and says how many. Their children are not touched.
    ///
    /// # Contract
    /// - **[batch.purge]** Only batches that ended longer ago than asked; the longest ended first.
    ///   It deletes exactly `limit` batches if that many qualify, and fewer otherwise.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>>;

    /// Reads what jobs wait, or waited, for.
    ///
    /// # Contract
    /// - **[link.parents]** One answer per id, in order: the links of the job as they were given,
    ///   with what became of them; empty for a job that has no links or does not exist.
    ///
    /// # Errors
    /// `Invalid` if there are too many, or a failure of the store.
    async fn parents_of(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>>;

    /// Reads who waits, or waited, for a job or a batch: up to `limit` links, in order of child.
    ///
    /// # Contract
    /// - **[link.children]** The links on this parent, open and decided, in order of child and then
    ///   as given there; only of children with ids above `after`, if it is given.
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
