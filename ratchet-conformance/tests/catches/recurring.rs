//! Stores with a defect in recurring definitions.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{
    DueRecurring, Enqueued, Fired, Guarded, PutOutcome, PutRecurring, RecurringClaimRequest,
    RecurringFiring, RecurringPage, RecurringRecord, RetireRecurring,
};
use ratchet_core::store::{Changed, RecurringStore};
use ratchet_core::{Name, NewJob, Result};

use crate::sabotage::{Sabotage, Sabotaged};

#[async_trait]
impl RecurringStore for Sabotaged {
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome> {
        let mut put = put.clone();
        if self.is(Sabotage::LeavesGhosts) {
            let name = put.definition.name().clone();
            let mut memory = self.memory();
            put.incarnation = *memory.incarnations.entry(name).or_insert(put.incarnation);
        }
        let name = put.definition.name();
        let spoiled = self.memory().spoiled_definitions.contains(name);
        if spoiled {
            return self.put_over_spoiled(&put).await;
        }
        self.inner.put(&put).await
    }

    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>> {
        let mut found = self.inner.find(name).await?;
        if let Some(record) = &mut found
            && self.memory().without_slot.contains(name)
        {
            record.last_slot = None;
        }
        Ok(found)
    }

    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage> {
        let after = after.filter(|_| !self.is(Sabotage::IgnoresCursors));
        self.inner.definitions(after, limit).await
    }

    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring> {
        let mut request = request.clone();
        if self.is(Sabotage::ForgetsLeases) {
            request.lease = Duration::from_millis(1);
        }
        let mut due = self.inner.claim_due_recurring(&request).await?;
        if self.is(Sabotage::ClaimsDefinitionsEarly) && due.definitions.is_empty() {
            // Claims slots up to 200 ms early, as a store does that uses its caller's clock.
            let soon = |left: &Duration| *left <= Duration::from_millis(200);
            let left = due.next_in.filter(soon);
            let page = self.inner.definitions(None, request.limit).await?;
            due.definitions = left.map(|_| page.definitions).unwrap_or_default();
        }
        if self.is(Sabotage::HidesTheNextSlot) {
            due.next_in = None;
        }
        if self.is(Sabotage::HidesWhatComesAfterAPause) {
            let page = self.inner.definitions(None, 100).await?;
            let paused = page.definitions.iter().any(|record| record.paused);
            due.next_in = due.next_in.filter(|_| !paused);
        }
        Ok(due)
    }

    async fn fire(&self, firings: &[RecurringFiring]) -> Result<Vec<Fired>> {
        let mut firings = firings.to_vec();
        match self.how {
            Sabotage::IgnoresRecurringTokens => {
                for firing in &mut firings {
                    let present = self.inner.find(&firing.token.name).await?;
                    firing.token = present.map_or(firing.token.clone(), |record| record.token());
                }
            }
            Sabotage::TakesTheLastSlotOfEveryFiring => self.take_last_slots(&firings),
            Sabotage::FiresLaterSlotsFirst => {
                // The store creates no jobs for the earlier half of a firing's slots.
                for firing in &mut firings {
                    let behind = firing.jobs.len() / 2;
                    firing.jobs.drain(..behind);
                }
            }
            Sabotage::MovesOnWithoutJobs => {
                let told = |firing: &RecurringFiring| -> Vec<Enqueued> {
                    let ids = firing.jobs.iter().map(NewJob::id);
                    ids.map(Enqueued::Created).collect()
                };
                let told: Vec<Vec<Enqueued>> = firings.iter().map(told).collect();
                firings.iter_mut().for_each(|firing| firing.jobs.clear());
                let answers = self.inner.fire(&firings).await?;
                let answer = |(answer, told)| match answer {
                    Fired::Applied(_) => Fired::Applied(told),
                    Fired::Stale => Fired::Stale,
                };
                return Ok(answers.into_iter().zip(told).map(answer).collect());
            }
            _ => {}
        }
        self.inner.fire(&firings).await
    }

    async fn set_paused(&self, name: &Name, paused: bool) -> Result<Changed> {
        if self.is(Sabotage::ClaimsPausedDefinitions) {
            return Ok(Changed::Changed);
        }
        self.inner.set_paused(name, paused).await
    }

    async fn delete(&self, name: &Name) -> Result<Changed> {
        self.inner.delete(name).await
    }

    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>> {
        if !self.is(Sabotage::RetiresWhateverItDoesNotKnow) {
            return self.inner.retire(request).await;
        }
        let page = self.inner.definitions(None, 100).await?;
        let mut retired = Vec::new();
        for record in page.definitions {
            let name = record.definition.name();
            if record.declared && !request.known.contains(name) {
                self.inner.delete(name).await?;
                retired.push(name.clone());
            }
        }
        Ok(Guarded::Done(retired))
    }
}
