use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{RateAnswer, RateRequest};

/// Rate limits that hold exactly for the whole cluster.
#[async_trait]
pub trait RateStore: Debug + Send + Sync {
    /// Requests starts, each under its key, and counts those that are granted.
    ///
    /// # Contract
    /// - **[rate.exact]** The requests are answered one after the other, in order, as
    ///   [`Rate::take`](crate::Rate::take) says. Of concurrent calls, each sees the starts that the
    ///   others counted. A request that has to wait counts no start.
    /// - **[rate.refill]** A start that had to wait is granted once the time in the answer has
    ///   passed on the database's clock, if no other request came first.
    /// - **[rate.keys]** Keys are independent: a request for one key does not affect another key.
    /// - **[rate.change]** If a request has a different rate than the request before it, the new
    ///   rate applies from this request on.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. After a failure, starts may have been counted although
    /// no job makes them.
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>>;

    /// Deletes up to `limit` keys that are idle, which means that their state is the same as if
    /// they had never been used. Returns how many keys were deleted.
    ///
    /// # Contract
    /// - **[rate.forget]** The deletion of keys that are as if never used changes no later answer.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn forget_idle(&self, limit: usize) -> Result<u64>;
}
