use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{
    DueRecurring, Fired, Guarded, PutOutcome, PutRecurring, RecurringClaimRequest, RecurringFiring,
    RecurringPage, RecurringRecord, RetireRecurring,
};
use crate::name::Name;
use crate::store::Changed;

/// Recurring definitions, and the firing of their slots.
///
/// Nodes compete for slots, and any node may fire any definition. A claim keeps other nodes from
/// claiming the definition until its lease ends, and the token decides which firing takes effect.
/// [`RecurringRecord`] computes every change of a definition, so that it is the same on every
/// backend.
#[async_trait]
pub trait RecurringStore: Debug + Send + Sync {
    /// Stores a definition under its name, and replaces an existing definition of this name.
    ///
    /// # Contract
    /// - **[recurring.create]** If no definition has the name, the call stores
    ///   [`RecurringRecord::created`] at the database's time and returns `Created`. Of concurrent
    ///   puts of one name, exactly one creates the definition.
    /// - **[recurring.edit]** If a definition has the name, the call stores
    ///   [`RecurringRecord::edited`], which takes effect at once, and returns `Changed`. If the new
    ///   definition is the same as the old one, nothing changes, a claim of it stays valid, and the
    ///   call returns `Unchanged`.
    /// - **[recurring.repair]** If the stored definition cannot be read, the call replaces it by
    ///   [`RecurringRecord::created`] and returns `Changed`. An open claim of the old definition is
    ///   then stale.
    /// - **[recurring.permit]** A definition whose jobs need a permit of a resource that was never
    ///   set is `Invalid` (field `permit`), and nothing changes.
    ///
    /// # Errors
    /// A failure of the store. The call can be repeated.
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome>;

    /// Reads a definition.
    ///
    /// # Contract
    /// - **[recurring.get]** The call returns the definition with everything known about it, or
    ///   `None` if no definition has the name.
    ///
    /// # Errors
    /// `Corrupt` if the definition cannot be read, or a failure of the store.
    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>>;

    /// Reads one page of the definitions.
    ///
    /// # Contract
    /// - **[recurring.list]** A page has at most `limit` definitions, in the byte order of their
    ///   names, from the first one after the name `after`. A walk that follows `next` until it is
    ///   `None` visits every definition that can be read exactly once.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage>;

    /// Claims definitions whose next slot is due.
    ///
    /// # Contract
    /// - **[recurring.due]** The call claims exactly the definitions that are due at the database's
    ///   time ([`RecurringRecord::is_due`]), the longest due first, then by name, at most `limit`.
    ///   A definition is due if it is not paused, its next slot has come, and it is not claimed or
    ///   the lease of its claim has ended.
    /// - **[recurring.claim]** The call stores and returns each definition that it claims as
    ///   [`RecurringRecord::claimed`], until now + lease. Of concurrent calls, only one gets each
    ///   definition.
    /// - **[recurring.clock]** The answer contains the database's time at which the definitions
    ///   were due.
    /// - **[recurring.unreadable]** A due definition that cannot be read is claimed too, but the
    ///   answer only counts it. The claim keeps it from taking the place of readable definitions in
    ///   later calls.
    /// - **[recurring.hint]** The answer contains the shortest [`RecurringRecord::wakes_in`] of all
    ///   definitions that this call has not claimed.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. After a failure, definitions may have been claimed;
    /// these claims end with their lease.
    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring>;

    /// Stores the jobs of due slots, and advances their definitions to the next slot.
    ///
    /// # Contract
    /// - **[recurring.fire]** One write stores the jobs as
    ///   [`JobStore::enqueue`](super::JobStore::enqueue) would, and the definition as
    ///   [`RecurringRecord::fired`]. A job that is a `Duplicate` was skipped, and the definition
    ///   moves on all the same.
    /// - **[recurring.stale]** A firing whose token is not the current one is `Stale`: it stores no
    ///   job and does not move the definition on. The token is no longer current after the
    ///   definition was edited, paused, resumed, deleted, claimed or fired.
    /// - **[recurring.slot]** Of concurrent firings of one slot, exactly one stores the slot's job.
    /// - **[recurring.atomic]** Each firing takes effect completely or not at all, even if the call
    ///   fails, and a stale firing does not affect the others. The call returns one answer per
    ///   firing, in order.
    /// - **[recurring.origin]** Each job names the definition and the slot that it comes from.
    /// - **[recurring.validate]** The door refuses firings that [`RecurringFiring::validate_all`]
    ///   refuses, so a store never receives them.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. The call can be repeated: a firing that took effect is
    /// then `Stale`.
    async fn fire(&self, firings: &[RecurringFiring]) -> Result<Vec<Fired>>;

    /// Pauses or resumes a definition.
    ///
    /// # Contract
    /// - **[recurring.pause]** The call stores what [`RecurringRecord::with_pause`] returns, and
    ///   returns `Changed`. A paused definition is not due, and an open claim of it is stale. The
    ///   call returns `Unchanged` if no definition has the name, or if the definition is already
    ///   paused or resumed as requested.
    /// - **[recurring.resume]** A resumed definition is due at its next slot in the future.
    ///
    /// # Errors
    /// A failure of the store.
    async fn set_paused(&self, name: &Name, paused: bool) -> Result<Changed>;

    /// Deletes a definition. Its jobs are not deleted.
    ///
    /// # Contract
    /// - **[recurring.delete]** The call deletes the definition, or returns `Unchanged` if there is
    ///   none. An open claim of the deleted definition is stale, even after another definition was
    ///   created under the name, and the new one takes over nothing from it. Only the unique key of
    ///   an unfinished job that was made under `Overlap::Skip` stays taken.
    ///
    /// # Errors
    /// A failure of the store.
    async fn delete(&self, name: &Name) -> Result<Changed>;

    /// Deletes the definitions that programs no longer declare, and returns their names.
    ///
    /// # Contract
    /// - **[recurring.retire]** The call deletes exactly the definitions that
    ///   [`RetireRecurring::retires`] selects for the start time in the node's row, and none if the
    ///   node has no row. It returns their names in order. The guard works as in `[guard.write]`.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>>;
}
