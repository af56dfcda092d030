//! Stores with a defect in limits of fair keys.

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::model::*;
use ratchet_core::store::{Changed, FairStore};

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
];

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
            _ => inner.set_fair_limit(scope, max).await,
        }
    }

    async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        self.inner.fair_limits().await
    }
}
