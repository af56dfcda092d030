use std::sync::Arc;

use async_trait::async_trait;

use super::{RateKey, RateLimiter};
use crate::client::Calls;
use crate::error::{InvalidInput, Result, StoreError, StoreErrorKind};
use crate::model::{RateAnswer, RateRequest};
use crate::rate::Rate;
use crate::store::SharedStore;

/// A rate limiter that counts starts exactly, for the whole cluster, in the database. Each start
/// costs one store call.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ratchet::BoxError> {
/// use std::time::Duration;
/// use ratchet::{Name, Rate, RateAnswer, RateKey, RateLimiter as _};
/// # use std::sync::Arc;
/// use ratchet::{MemoryStore, StrictLimiter};
///
/// let limiter = StrictLimiter::new(Arc::new(MemoryStore::new()))?;
/// let key = RateKey::global(Name::new("kind", "mail")?);
/// let rate = Rate::new(1, Duration::from_secs(60));
/// assert_eq!(limiter.take(&key, &rate).await?, RateAnswer::Granted);
/// assert!(matches!(limiter.take(&key, &rate).await?, RateAnswer::Wait(_)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct StrictLimiter {
    calls: Arc<Calls>,
}

impl StrictLimiter {
    /// Creates a limiter that counts in this store.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the store does not support rate limits.
    pub fn new(store: SharedStore) -> Result<Self, InvalidInput> {
        match store.rates() {
            None => Err(no_rates()),
            Some(_) => Ok(Self::over(Arc::new(Calls::of_client(store)))),
        }
    }

    /// Creates a limiter that makes its store calls through `calls`.
    pub(crate) const fn over(calls: Arc<Calls>) -> Self {
        Self { calls }
    }
}

fn no_rates() -> InvalidInput {
    InvalidInput::new("store", "does not support rate limits")
}

#[async_trait]
impl RateLimiter for StrictLimiter {
    async fn take(&self, key: &RateKey, rate: &Rate) -> Result<RateAnswer> {
        const OPERATION: &str = "take";
        let request = &[RateRequest::new(key.name(), *rate)];
        let take = self.calls.call(OPERATION, |store| async move {
            let rates = store.rates().ok_or_else(no_rates)?;
            rates.take(request).await
        });
        let answers = take.await?;
        answers.first().copied().ok_or_else(|| {
            StoreError::new(StoreErrorKind::Other, OPERATION)
                .with_source("the store returned no answer for the request")
        })
    }
}
