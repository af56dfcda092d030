//! Rate limits, which cap how many bodies of a kind begin per interval.
//!
//! A [`RateLimit`] has a rate and a limiter, which counts the starts. A [`LocalLimiter`] counts on
//! each node separately, and a [`StrictLimiter`] counts in the database for the whole cluster. A
//! [`HybridLimiter`] counts the global key of each kind in the database, and all other keys on each
//! node separately. You can also implement your own [`RateLimiter`], which has one method.

mod hybrid;
mod key;
mod limit;
mod local;
mod strict;

use std::fmt::Debug;

use async_trait::async_trait;

pub use hybrid::HybridLimiter;
pub use key::RateKey;
pub use limit::RateLimit;
pub(crate) use limit::{Counted, Limit};
pub use local::LocalLimiter;
pub use strict::StrictLimiter;

use crate::error::Result;
use crate::model::RateAnswer;
use crate::rate::Rate;

/// A rate limiter, which decides whether one more body may begin.
///
/// ```
/// use async_trait::async_trait;
/// use ratchet::Rate;
/// use ratchet::{RateKey, RateLimiter};
/// use ratchet::RateAnswer;
///
/// /// Asks a service that all teams share.
/// #[derive(Debug)]
/// struct Quotas;
///
/// #[async_trait]
/// impl RateLimiter for Quotas {
///     async fn take(&self, key: &RateKey, rate: &Rate) -> ratchet::Result<RateAnswer> {
///         // Ask for one start of `key`, at `rate`.
///         # let _ = (key, rate);
///         Ok(RateAnswer::Granted)
///     }
/// }
/// ```
#[async_trait]
pub trait RateLimiter: Debug + Send + Sync + 'static {
    /// Requests one start under `key` at the rate `rate`. If the start is granted, it is counted.
    ///
    /// # Errors
    /// Fails if the limiter itself fails, for example because the database is not available. The
    /// job is then handed back without using an attempt. The node claims no jobs of its kind until
    /// it tries the limiter again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the start may or may not have been counted.
    async fn take(&self, key: &RateKey, rate: &Rate) -> Result<RateAnswer>;
}
