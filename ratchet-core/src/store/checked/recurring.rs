use async_trait::async_trait;

use super::{Checked, check, part};
use crate::error::Result;
use crate::limits::check_limit;
use crate::model::{
    DueRecurring, Fired, Guarded, PutOutcome, PutRecurring, RecurringClaimRequest, RecurringFiring,
    RecurringPage, RecurringRecord, RetireRecurring,
};
use crate::name::Name;
use crate::store::{Changed, RecurringStore, Store};

#[async_trait]
impl<S: Store + ?Sized> RecurringStore for Checked<S> {
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome> {
        let store = part("put", self.store.recurring())?;
        self.call("put", || store.put(put)).await
    }

    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>> {
        let store = part("find", self.store.recurring())?;
        self.call("find", || store.find(name)).await
    }

    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage> {
        let store = part("definitions", self.store.recurring())?;
        check("definitions", check_limit("limit", limit))?;
        self.call("definitions", || store.definitions(after, limit))
            .await
    }

    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring> {
        const OPERATION: &str = "claim_due_recurring";
        let store = part(OPERATION, self.store.recurring())?;
        check(OPERATION, request.validate())?;
        self.call(OPERATION, || store.claim_due_recurring(request))
            .await
    }

    async fn fire(&self, firings: &[RecurringFiring]) -> Result<Vec<Fired>> {
        let store = part("fire", self.store.recurring())?;
        check("fire", RecurringFiring::validate_all(firings))?;
        if firings.is_empty() {
            return Ok(Vec::new());
        }
        self.call("fire", || store.fire(firings)).await
    }

    async fn set_paused(&self, name: &Name, paused: bool) -> Result<Changed> {
        let store = part("set_paused", self.store.recurring())?;
        self.call("set_paused", || store.set_paused(name, paused))
            .await
    }

    async fn delete(&self, name: &Name) -> Result<Changed> {
        let store = part("delete", self.store.recurring())?;
        self.call("delete", || store.delete(name)).await
    }

    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>> {
        let store = part("retire", self.store.recurring())?;
        check("retire", request.validate())?;
        self.call("retire", || store.retire(request)).await
    }
}
