//! Rate limits: how many bodies of a kind begin per interval.
//!
//! A [`RateLimit`] defines the rate and where starts are counted: on each node separately
//! ([`LocalLimiter`]), in the database for the whole cluster ([`StrictLimiter`]), or in either,
//! depending on the key ([`HybridLimiter`]). You can also implement your own [`RateLimiter`], which
//! has one method.

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

/// Decides whether one more body may begin.
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
    /// Requests one start under this key, at this rate. A granted start is counted.
    ///
    /// # Errors
    /// A failure of the limiter. It uses no attempt of the job: the job is handed back, and jobs of
    /// its kind are not claimed until the limiter is tried again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the start may or may not have been counted.
    async fn take(&self, key: &RateKey, rate: &Rate) -> Result<RateAnswer>;
}
