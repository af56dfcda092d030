use async_trait::async_trait;

use super::{Checked, check, part};
use crate::error::Result;
use crate::limits::check_limit;
use crate::model::{RateAnswer, RateRequest};
use crate::store::{RateStore, Store};

#[async_trait]
impl<S: Store + ?Sized> RateStore for Checked<S> {
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>> {
        let store = part("take", self.store.rates())?;
        check("take", RateRequest::validate_all(requests))?;
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        self.call("take", || store.take(requests)).await
    }

    async fn forget_idle(&self, limit: usize) -> Result<u64> {
        let store = part("forget_idle", self.store.rates())?;
        check("forget_idle", check_limit("limit", limit))?;
        self.call("forget_idle", || store.forget_idle(limit)).await
    }
}
