//! Rate limits: how many bodies of a kind begin in a time.
//!
//! A [`RateLimit`] says how many, and who counts them: each node by itself ([`LocalLimiter`]), the
//! database for all of them ([`StrictLimiter`]), or one or the other as the key asks for
//! ([`HybridLimiter`]). Others can be brought: a [`RateLimiter`] is one method.

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
    /// Asks for one start of this key, at this rate, and counts it if it is granted.
    ///
    /// # Errors
    /// A failure of the limiter. It does not count against the job: the job is handed back at no
    /// cost, and its kind is not claimed for a moment.
    ///
    /// # Cancel safety
    /// If the future is dropped, the start may or may not have been counted.
    async fn take(&self, key: &RateKey, rate: &Rate) -> Result<RateAnswer>;
}
