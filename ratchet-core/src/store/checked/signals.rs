use async_trait::async_trait;

use super::{Checked, check, part};
use crate::error::Result;
use crate::id::JobId;
use crate::limits::check_limit;
use crate::model::{Delivered, Signal};
use crate::store::{SignalStore, Store};

#[async_trait]
impl<S: Store + ?Sized> SignalStore for Checked<S> {
    async fn deliver(&self, signal: &Signal) -> Result<Delivered> {
        let store = part("deliver", self.store.signals())?;
        check("deliver", signal.validate())?;
        self.call("deliver", || store.deliver(signal)).await
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        let store = part("expire", self.store.signals())?;
        check("expire", check_limit("limit", limit))?;
        self.call("expire", || store.expire(limit)).await
    }
}
