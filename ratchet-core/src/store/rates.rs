use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{RateAnswer, RateRequest};

/// Exact rate limits for the whole cluster.
#[async_trait]
pub trait RateStore: Debug + Send + Sync {
    /// Requests starts of jobs, each under a key, and counts the granted starts.
    ///
    /// # Contract
    /// - **[rate.exact]** The store answers the requests one after the other, in order, as
    ///   [`Rate::take`](crate::Rate::take) does. It processes concurrent calls one after the other
    ///   too, so each includes the starts that earlier calls counted. A request that has to wait
    ///   counts no start.
    /// - **[rate.refill]** A start that had to wait is granted to a new request after the time in
    ///   the answer has passed on the database's clock, if no other request came first.
    /// - **[rate.keys]** Keys are independent: a request for one key does not affect another key.
    /// - **[rate.change]** If a request has a different rate than the request before it, the new
    ///   rate applies from this request on.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. After a failure, starts may have been counted although
    /// no job has started.
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>>;

    /// Deletes up to `limit` idle keys, and returns how many. A key is idle if its state is the
    /// same as if the key had never been used.
    ///
    /// # Contract
    /// - **[rate.forget]** The deletion of idle keys changes no later answer.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn forget_idle(&self, limit: usize) -> Result<u64>;
}
