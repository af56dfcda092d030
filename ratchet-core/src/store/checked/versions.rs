use async_trait::async_trait;

use super::{Checked, check};
use crate::error::Result;
use crate::limits::check_batch;
use crate::model::{Guard, Guarded};
use crate::name::Name;
use crate::store::{Store, VersionStore};

#[async_trait]
impl<S: Store + ?Sized> VersionStore for Checked<S> {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>> {
        self.call("bump", || self.store.versions().bump(namespace, guard))
            .await
    }

    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        check("versions", check_batch("namespaces", namespaces.len()))?;
        if namespaces.is_empty() {
            return Ok(Vec::new());
        }
        self.call("versions", || self.store.versions().versions(namespaces))
            .await
    }
}
