use async_trait::async_trait;

use super::{Checked, part};
use crate::error::Result;
use crate::model::PermitInfo;
use crate::name::Name;
use crate::store::{Changed, IfKnown, PermitStore, Store};

#[async_trait]
impl<S: Store + ?Sized> PermitStore for Checked<S> {
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed> {
        let store = part("set_permits", self.store.permits())?;
        self.call("set_permits", || store.set_permits(resource, max, if_known))
            .await
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        let store = part("permits", self.store.permits())?;
        self.call("permits", || store.permits()).await
    }
}
