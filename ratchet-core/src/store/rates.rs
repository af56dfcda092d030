use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{RateAnswer, RateRequest};

/// Rates that the whole cluster shares, exactly.
#[async_trait]
pub trait RateStore: Debug + Send + Sync {
    /// Asks for starts, each under its key, and counts those that are granted.
    ///
    /// # Contract
    /// - **[rate.exact]** Each request is answered as [`Rate::take`](crate::Rate::take) says, one
    ///   after the other in order; of concurrent calls each sees what the others counted. One that
    ///   waits counts nothing.
    /// - **[rate.refill]** Time is the database's: a start that had to wait is granted after the
    ///   time that the answer gave.
    /// - **[rate.keys]** Keys have nothing to do with each other.
    /// - **[rate.change]** A request may come with another rate than the one before it: what it
    ///   allows holds from there on.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store; then starts may have been counted in vain.
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>>;

    /// Deletes keys that are as if they had never been used, at most `limit` of them, and returns
    /// how many.
    ///
    /// # Contract
    /// - **[rate.forget]** No later answer changes by it.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn forget_idle(&self, limit: usize) -> Result<u64>;
}
