//! [`VersionStore`] on SQL. Its calls use the connection for heartbeats and locks.

use std::collections::HashMap;

use async_trait::async_trait;
use ratchet_core::model::{Guard, Guarded};
use ratchet_core::store::VersionStore;
use ratchet_core::{Name, Result};

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result as Inner;
use crate::row;
use crate::store::SqlStore;

#[async_trait]
impl<D: Dialect> VersionStore for SqlStore<D> {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>> {
        // A repeated bump could raise the version twice. This is harmless, except to callers that
        // count the changes.
        self.call_once("bump", || self.bump_version(namespace, guard))
            .await
    }

    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        let texts: Vec<&str> = namespaces.iter().map(Name::as_str).collect();
        self.call("versions", || async {
            let find = self.sql().find_versions.query().bind(&texts);
            let mut found = HashMap::new();
            for row in self.live().await?.rows(find).await? {
                found.insert(row.try_get::<String>(0)?, row::seq(&row, 1)?);
            }
            let version = |text: &&str| found.get(*text).copied().unwrap_or(0);
            Ok(texts.iter().map(version).collect())
        })
        .await
    }
}

impl<D: Dialect> SqlStore<D> {
    async fn bump_version(&self, namespace: &Name, guard: Option<&Guard>) -> Inner<Guarded<u64>> {
        let Some(mut lease) = self.begin_guarded(self.live().await?, guard).await? else {
            return Ok(Guarded::Stale);
        };
        let bumped = async {
            let bump = self.sql().bump_version.query();
            let bump = bump.bind(namespace.as_str());
            let mut version = 0;
            for row in lease.rows(bump).await? {
                version = row::seq(&row, 0)?;
            }
            Ok(Guarded::Done(version))
        }
        .await;
        lease.end(bumped).await
    }
}
