use async_trait::async_trait;

use super::{Checked, part};
use crate::error::Result;
use crate::model::{FairLimit, FairScope};
use crate::store::{Changed, FairStore, Store};

#[async_trait]
impl<S: Store + ?Sized> FairStore for Checked<S> {
    async fn set_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed> {
        let store = part("set_fair_limit", self.store.fair())?;
        self.call("set_fair_limit", || store.set_fair_limit(scope, max))
            .await
    }

    async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        let store = part("fair_limits", self.store.fair())?;
        self.call("fair_limits", || store.fair_limits()).await
    }
}
