//! [`VersionStore`] on SQLite.

use async_trait::async_trait;
use ratchet_core::model::{Guard, Guarded};
use ratchet_core::store::VersionStore;
use ratchet_core::{Name, Result};
use rusqlite::{OptionalExtension, params};

use crate::locks::is_tenure;
use crate::queue::Urgency;
use crate::statements::SQL;
use crate::store::SqliteStore;

#[async_trait]
impl VersionStore for SqliteStore {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>> {
        let (namespace, guard) = (namespace.clone(), guard.cloned());
        self.write("bump", Urgency::Urgent, move |work| {
            if !is_tenure(work, guard.as_ref())? {
                return Ok(Guarded::Stale);
            }
            let mut bump = work.conn.prepare_cached(&SQL.bump_version)?;
            let version = bump.query_row(params![namespace.as_str(), work.now], |row| {
                row.get::<_, i64>(0)
            })?;
            Ok(Guarded::Done(version.cast_unsigned()))
        })
        .await
    }

    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        let namespaces = namespaces.to_vec();
        self.read("versions", move |work| {
            let mut find = work.conn.prepare_cached(&SQL.find_version)?;
            let mut versions = Vec::with_capacity(namespaces.len());
            for namespace in &namespaces {
                let found = find.query_row([namespace.as_str()], |row| row.get::<_, i64>(0));
                versions.push(found.optional()?.unwrap_or(0).cast_unsigned());
            }
            Ok(versions)
        })
        .await
    }
}
