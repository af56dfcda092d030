//! Stores with a defect in limits of fair keys.

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::memory::Snapshot;
use ratchet_core::model::*;
use ratchet_core::store::{Changed, FairStore};
use serde_json::Value;

use crate::sabotage::{Sabotage, Sabotaged};

/// Each sabotage of this module, with a case that catches it.
pub(crate) const CATCHES: &[(Sabotage, &str)] = &[
    (
        Sabotage::IgnoresFairLimits,
        "fair_limit::no_more_jobs_of_a_key_run_than_its_limit",
    ),
    (
        Sabotage::LimitsAllKeysOfTheQueue,
        "fair_limit::a_key_at_its_limit_delays_no_other",
    ),
    (
        Sabotage::TakesPatternsForQueues,
        "fair_limit::the_most_specific_limit_applies",
    ),
    (
        Sabotage::KeepsRemovedFairLimits,
        "fair_limit::a_changed_limit_applies_at_once",
    ),
    (
        Sabotage::FreesNoPlaceBySettlements,
        "fair_limit::no_more_jobs_of_a_key_run_than_its_limit",
    ),
    (
        Sabotage::FreesNoPlaceByReclaims,
        "fair_limit::every_end_of_a_claim_frees_its_place_at_once",
    ),
    (
        Sabotage::FreesNoPlaceByActions,
        "fair_limit::another_job_gets_the_place_that_a_job_cannot_use",
    ),
    (
        Sabotage::FreesNoPlaceByExpiries,
        "fair_limit::another_job_gets_the_place_of_a_job_that_expired",
    ),
    (
        Sabotage::FreesNoPlaceByEnqueues,
        "fair_limit::another_job_gets_the_place_of_a_job_that_was_debounced",
    ),
    (
        Sabotage::FreesNoPlaceByLimits,
        "fair_limit::a_changed_limit_applies_at_once",
    ),
];

impl Sabotaged {
    /// Deletes the freed entries of fair keys if the store has this defect, so that the call before
    /// has freed no place.
    pub(crate) fn forget_freed(&self, how: Sabotage) {
        if !self.is(how) {
            return;
        }
        let data = self
            .inner
            .snapshot()
            .encode()
            .expect("the data is serializable");
        let mut data: Value = serde_json::from_str(&data).expect("the data is JSON");
        data.as_object_mut()
            .expect("the data is an object")
            .remove("freed");
        let data = Snapshot::decode(&data.to_string()).expect("the entries are optional");
        self.inner.rewind(&data);
    }
}

#[async_trait]
impl FairStore for Sabotaged {
    async fn set_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed> {
        let inner = &self.inner;
        match self.how {
            Sabotage::IgnoresFairLimits => {
                let none = max.map(|_| u32::MAX);
                inner.set_fair_limit(scope, none).await
            }
            // The defect: the limit of one key becomes that of all keys.
            Sabotage::LimitsAllKeysOfTheQueue => {
                let all = FairScope::queues(scope.queue())?;
                inner.set_fair_limit(&all, max).await
            }
            Sabotage::TakesPatternsForQueues => match scope.prefix() {
                Some(prefix) if !prefix.is_empty() => {
                    let literal = FairScope::queues(prefix)?;
                    inner.set_fair_limit(&literal, max).await
                }
                _ => inner.set_fair_limit(scope, max).await,
            },
            Sabotage::KeepsRemovedFairLimits if max.is_none() => {
                let limits = inner.fair_limits().await?;
                let exists = limits.iter().any(|limit| limit.scope == *scope);
                Ok(Changed::when(exists))
            }
            _ => {
                let changed = inner.set_fair_limit(scope, max).await;
                self.forget_freed(Sabotage::FreesNoPlaceByLimits);
                changed
            }
        }
    }

    async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        self.inner.fair_limits().await
    }
}
