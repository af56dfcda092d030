//! Limits of the running jobs of each fair key.

use super::Client;
use crate::cluster::Wakeup;
use crate::error::{InvalidInput, Result};
use crate::model::{FairLimit, FairScope};
use crate::store::Changed;

impl Client {
    /// Limits how many jobs of each [fair key](crate::NewJob::fair_key) may run at once in a
    /// queue, in the whole cluster. The limit applies at once, and stays until it is changed or
    /// [removed](Self::remove_fair_limit). With 0, no job of the key starts.
    ///
    /// A limit of one key replaces the limit of its queue, and a limit of a queue replaces that of
    /// a pattern. Of several patterns the longest applies. Jobs that already run continue, even if
    /// more of them run than the new limit allows.
    ///
    /// ```
    /// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
    /// use ratchet::FairScope;
    ///
    /// client.set_fair_limit(&FairScope::queues("render")?, 4).await?;
    /// client.set_fair_limit(&FairScope::key("render", "tenant:7")?, 20).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid`, naming `fair_limit`, if the store has no such limits; or a failure of the store.
    pub async fn set_fair_limit(&self, scope: &FairScope, max: u32) -> Result<Changed> {
        self.change_fair_limit(scope, Some(max)).await
    }

    /// Removes a limit. The answer is `Unchanged` if the scope has none.
    ///
    /// # Errors
    /// As for [`set_fair_limit`](Self::set_fair_limit).
    pub async fn remove_fair_limit(&self, scope: &FairScope) -> Result<Changed> {
        self.change_fair_limit(scope, None).await
    }

    /// Lists the limits of fair keys, ordered by queue or pattern, and then by key.
    ///
    /// # Errors
    /// As for [`set_fair_limit`](Self::set_fair_limit).
    pub async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        self.0
            .calls
            .call("fair_limits", |store| async move {
                let fair = store.fair().ok_or_else(no_limits)?;
                fair.fair_limits().await
            })
            .await
    }

    async fn change_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed> {
        let set = self.0.calls.call("set_fair_limit", |store| async move {
            let fair = store.fair().ok_or_else(no_limits)?;
            fair.set_fair_limit(scope, max).await
        });
        let changed = set.await?;
        if changed == Changed::Changed {
            self.wake(match scope.prefix() {
                None => Wakeup::queue(scope.queue().clone()),
                Some(_) => Wakeup::any(),
            })
            .await;
        }
        Ok(changed)
    }
}

fn no_limits() -> InvalidInput {
    InvalidInput::new("fair_limit", "is not supported by this store")
}
