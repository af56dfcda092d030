use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::id::next_in_time;
use crate::model::{Guard, Guarded};
use crate::name::Name;
use crate::store::VersionStore;

#[async_trait]
impl VersionStore for MemoryStore {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>> {
        self.call("bump", |tables, now| {
            if !tables.is_tenure(guard, now) {
                return Ok(Guarded::Stale);
            }
            let version = tables.versions.entry(namespace.clone()).or_default();
            *version = next_in_time(*version, now);
            Ok(Guarded::Done(*version))
        })
        .await
    }

    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        self.call("versions", |tables, _| {
            let version = |name: &Name| tables.versions.get(name).copied().unwrap_or(0);
            Ok(namespaces.iter().map(version).collect())
        })
        .await
    }
}
