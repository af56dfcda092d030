use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::Result;
use crate::id::next_in_time;
use crate::model::{Guard, Guarded};
use crate::name::Name;
use crate::store::VersionStore;

#[async_trait]
impl VersionStore for MemoryStore {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>> {
        self.write(Command::Bump {
            namespace: namespace.clone(),
            guard: guard.cloned(),
        })
        .await
    }

    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        self.read("versions", |tables, _| {
            let version = |name: &Name| tables.versions.get(name).copied().unwrap_or(0);
            namespaces.iter().map(version).collect()
        })
        .await
    }
}

impl Tables {
    pub(super) fn bump(
        &mut self,
        namespace: &Name,
        guard: Option<&Guard>,
        now: i64,
    ) -> Guarded<u64> {
        if !self.is_tenure(guard, now) {
            return Guarded::Stale;
        }
        let version = self.versions.entry(namespace.clone()).or_default();
        *version = next_in_time(*version, now);
        Guarded::Done(*version)
    }
}
