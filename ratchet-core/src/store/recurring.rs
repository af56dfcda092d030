use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{
    DueRecurring, Fired, Guarded, PutOutcome, PutRecurring, RecurringClaimRequest, RecurringFiring,
    RecurringPage, RecurringRecord, RetireRecurring,
};
use crate::name::Name;
use crate::store::Changed;

/// Stores recurring definitions, and fires their slots.
///
/// Any node may fire any definition. A node first claims the definition, and no other node can
/// claim it until the lease of the claim ends. A firing takes effect only with the current token of
/// the definition. [`RecurringRecord`] computes every change of a definition, so the changes are
/// the same on every backend.
#[async_trait]
pub trait RecurringStore: Debug + Send + Sync {
    /// Stores a definition under its name, and replaces an existing definition of this name.
    ///
    /// # Contract
    /// - **[recurring.create]** If no definition has the name, the call stores the result of
    ///   [`RecurringRecord::created`] for the database's time, and returns `Created`. Of concurrent
    ///   calls for one name, exactly one creates the definition.
    /// - **[recurring.edit]** If a definition has the name, the call stores the result of
    ///   [`RecurringRecord::edited`], which takes effect at once, and returns `Changed`. If the new
    ///   definition is the same as the old one, nothing changes, a claim of the definition stays
    ///   valid, and the call returns `Unchanged`.
    /// - **[recurring.repair]** If the stored definition cannot be read, the call replaces it by
    ///   the result of [`RecurringRecord::created`] and returns `Changed`. An open claim of the old
    ///   definition is then stale.
    /// - **[recurring.permit]** If the jobs of the definition need a permit of a resource whose
    ///   number of permits was never set, the call is `Invalid` (field `permit`), and nothing
    ///   changes.
    ///
    /// # Errors
    /// A failure of the store. The call can be repeated.
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome>;

    /// Reads a definition.
    ///
    /// # Contract
    /// - **[recurring.get]** The call returns the definition with all its data, or `None` if no
    ///   definition has the name.
    ///
    /// # Errors
    /// `Corrupt` if the definition cannot be read, or a failure of the store.
    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>>;

    /// Reads one page of the definitions.
    ///
    /// # Contract
    /// - **[recurring.list]** A page has at most `limit` definitions whose names come after
    ///   `after`, in the byte order of their names. A caller that reads page after page, until
    ///   `next` is `None`, gets every readable definition exactly once.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage>;

    /// Claims definitions whose next slot is due.
    ///
    /// # Contract
    /// - **[recurring.due]** The call claims the definitions that are due at the database's time
    ///   ([`RecurringRecord::is_due`]), up to `limit`, the longest due first and then by name. A
    ///   definition is due if its next slot has come, it is not paused, and no claim of it has an
    ///   unexpired lease.
    /// - **[recurring.claim]** The call stores and returns each claimed definition as
    ///   [`RecurringRecord::claimed`] returns it, with a claim until now + lease. Of concurrent
    ///   calls, only one gets each definition.
    /// - **[recurring.clock]** The answer contains the database's time at which the call decided
    ///   which definitions are due.
    /// - **[recurring.unreadable]** A due definition that cannot be read is claimed too, and the
    ///   answer contains only the number of such definitions. Because of their claims, later calls
    ///   skip these definitions and claim readable ones.
    /// - **[recurring.hint]** The answer contains the time until the first of the definitions that
    ///   this call has not claimed can be claimed: the shortest of their
    ///   [`RecurringRecord::wakes_in`].
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. After a failure, definitions may have been claimed.
    /// These claims end with their lease.
    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring>;

    /// Stores the jobs of due slots, and advances their definitions to the next slot.
    ///
    /// # Contract
    /// - **[recurring.fire]** One write stores the jobs as
    ///   [`JobStore::enqueue`](super::JobStore::enqueue) does, and the definition as
    ///   [`RecurringRecord::fired`] returns it. If a job is a `Duplicate`, its slot is skipped, and
    ///   the definition still advances to the next slot.
    /// - **[recurring.stale]** A firing whose token is not the current token of the definition is
    ///   `Stale`: it stores no job and does not advance the definition. Each edit, pause, resume,
    ///   deletion, claim and firing of the definition makes earlier tokens stale.
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
    /// - **[recurring.pause]** The call stores the result of [`RecurringRecord::with_pause`], and
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
    ///   none. An open claim of the deleted definition is stale, even after a new definition was
    ///   created under the same name. The new definition takes over nothing from the deleted one.
    ///   Only the unique key of an unfinished job that was created under `Overlap::Skip` stays
    ///   taken.
    ///
    /// # Errors
    /// A failure of the store.
    async fn delete(&self, name: &Name) -> Result<Changed>;

    /// Deletes the definitions that programs no longer declare, and returns their names.
    ///
    /// # Contract
    /// - **[recurring.retire]** The call deletes exactly the definitions for which
    ///   [`RetireRecurring::retires`] returns true. The start time for this function is in the row
    ///   of the node that the request names. If the node has no row, the call deletes no
    ///   definition. The call returns the names of the deleted definitions, in order. The guard
    ///   works as in `[guard.write]`.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>>;
}
