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
/// Nodes race for slots, and any of them may fire any definition: a claim keeps the others away for
/// a while, and the token decides. What a definition becomes is said by
/// [`RecurringRecord`], so that it is the same on every backend.
#[async_trait]
pub trait RecurringStore: Debug + Send + Sync {
    /// Stores a definition under its name, in place of the one that is there.
    ///
    /// # Contract
    /// - **[recurring.create]** Where there is none, [`RecurringRecord::created`] is stored, at the
    ///   database's time, and the answer is `Created`. Of concurrent puts of one name one creates.
    /// - **[recurring.edit]** Where there is one, [`RecurringRecord::edited`] is stored and takes
    ///   effect at once: `Changed`. If it is the same nothing changes, and a claim of it stays
    ///   good: `Unchanged`.
    /// - **[recurring.repair]** A definition that cannot be read is replaced by
    ///   [`RecurringRecord::created`], and an open claim of it is stale: `Changed`.
    /// - **[recurring.permit]** A definition whose jobs need a permit of a resource that was never
    ///   set is `Invalid` on the field `permit`, and nothing has changed.
    ///
    /// # Errors
    /// A failure of the store. The call can be repeated.
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome>;

    /// Reads a definition.
    ///
    /// # Contract
    /// - **[recurring.get]** The definition with everything known about it, or none.
    ///
    /// # Errors
    /// `Corrupt` if the definition cannot be read, or a failure of the store.
    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>>;

    /// Reads one page of the definitions.
    ///
    /// # Contract
    /// - **[recurring.list]** By name (its bytes), behind the given one, at most `limit`. Walking
    ///   by `next` until there is none visits every definition that can be read exactly once.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage>;

    /// Claims definitions whose next slot has come.
    ///
    /// # Contract
    /// - **[recurring.due]** Exactly those that [`RecurringRecord::is_due`] at the database's time:
    ///   not paused, with a next slot that has come, and not claimed, or claimed longer ago than
    ///   the lease. The longest due first, then by name, at most `limit`.
    /// - **[recurring.claim]** Each is stored and returned as [`RecurringRecord::claimed`] until
    ///   now + lease. Concurrent claims return each to one claimer only.
    /// - **[recurring.clock]** The answer says the database's time at which they were due.
    /// - **[recurring.unreadable]** One that cannot be read is claimed, so that it does not stand
    ///   in the way of the others, and only counted in the answer.
    /// - **[recurring.hint]** The answer says the least [`RecurringRecord::wakes_in`] of all
    ///   definitions that it has not claimed.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store; then claims may have been made, which end with their
    /// lease.
    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring>;

    /// Makes the jobs of due slots and moves their definitions on.
    ///
    /// # Contract
    /// - **[recurring.fire]** The jobs are stored as
    ///   [`JobStore::enqueue`](super::JobStore::enqueue) would store them, and the definition as
    ///   [`RecurringRecord::fired`], in one write. A job that is a `Duplicate` was skipped, and the
    ///   definition moves on all the same.
    /// - **[recurring.stale]** A firing whose token is not the present one, because the definition
    ///   was edited, paused, deleted, claimed or fired meanwhile, is `Stale`: no job, no move.
    /// - **[recurring.slot]** Of concurrent firings of a slot one makes its job.
    /// - **[recurring.atomic]** Each firing takes effect whole or not at all, also if the call
    ///   fails; a stale one does not disturb the others. One answer per firing, in order.
    /// - **[recurring.origin]** Each job tells the definition and the slot that it is of.
    /// - **[recurring.validate]** No store sees what [`RecurringFiring::validate_all`] refuses.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. The call can be repeated: what took effect is `Stale`
    /// then.
    async fn fire(&self, firings: &[RecurringFiring]) -> Result<Vec<Fired>>;

    /// Pauses or resumes a definition.
    ///
    /// # Contract
    /// - **[recurring.pause]** What [`RecurringRecord::with_pause`] says is stored: `Changed`. A
    ///   paused definition is not due; an open claim of it is stale. `Unchanged` if there is none
    ///   of this name, or it is so already.
    /// - **[recurring.resume]** A resumed definition is due at its next slot in the future.
    ///
    /// # Errors
    /// A failure of the store.
    async fn set_paused(&self, name: &Name, paused: bool) -> Result<Changed>;

    /// Deletes a definition. Its jobs stay.
    ///
    /// # Contract
    /// - **[recurring.delete]** It is gone, and an open claim of it is stale, also once there is
    ///   another definition of this name, which knows nothing of this one; what is left is the
    ///   unique key of an unfinished job that was made under `Overlap::Skip`. `Unchanged` if there
    ///   is none.
    ///
    /// # Errors
    /// A failure of the store.
    async fn delete(&self, name: &Name) -> Result<Changed>;

    /// Deletes the definitions that programs declared once and do not any more; their names.
    ///
    /// # Contract
    /// - **[recurring.retire]** Exactly those that [`RetireRecurring::retires`], for the time at
    ///   which the row of the node says that it began; without a row, none. In order of name. The
    ///   guard is obeyed as everywhere.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>>;
}
