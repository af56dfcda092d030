use async_trait::async_trait;

use super::{LocalLimiter, RateKey, RateLimiter, StrictLimiter};
use crate::error::Result;
use crate::model::RateAnswer;
use crate::rate::Rate;

/// A rate limiter that counts global keys in the database, and all other keys in the memory of each
/// node. All jobs of a kind share its global key. Other keys are, for example, those of tenants.
///
/// For a key that is not global, each node allows the full rate, and counting needs no store call.
/// If the key function of a limit returns `None` for a job, the job counts under the global key of
/// its kind.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ratchet::BoxError> {
/// use std::time::Duration;
/// use ratchet::{Name, Rate, RateAnswer, RateKey, RateLimiter as _};
/// # use std::sync::Arc;
/// use ratchet::{HybridLimiter, MemoryStore, StrictLimiter};
///
/// let shared = StrictLimiter::new(Arc::new(MemoryStore::new()))?;
/// let limiter = HybridLimiter::new(shared);
/// let key = RateKey::global(Name::new("kind", "mail")?);
/// let rate = Rate::new(1, Duration::from_secs(60));
/// assert_eq!(limiter.take(&key, &rate).await?, RateAnswer::Granted);
/// assert!(matches!(limiter.take(&key, &rate).await?, RateAnswer::Wait(_)));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct HybridLimiter {
    local: LocalLimiter,
    shared: StrictLimiter,
}

impl HybridLimiter {
    /// Creates a limiter that counts global keys with `shared`, and all other keys in memory.
    #[must_use]
    pub fn new(shared: StrictLimiter) -> Self {
        Self {
            local: LocalLimiter::new(),
            shared,
        }
    }
}

#[async_trait]
impl RateLimiter for HybridLimiter {
    async fn take(&self, key: &RateKey, rate: &Rate) -> Result<RateAnswer> {
        match key.key() {
            None => self.shared.take(key, rate).await,
            Some(_) => self.local.take(key, rate).await,
        }
    }
}
