use async_trait::async_trait;

use super::{LocalLimiter, RateKey, RateLimiter, StrictLimiter};
use crate::error::Result;
use crate::model::RateAnswer;
use crate::rate::Rate;

/// Counts starts under global keys, which all jobs of a kind share, in the database. Counts starts
/// under all other keys, such as those of tenants, in the memory of each node.
///
/// Under a key that is not global, each node allows the full rate, and no store call is needed. A
/// job for which the key function returns `None` counts under the global key of its kind.
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
    /// Creates a limiter that uses `shared` for global keys.
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
