//! [`VersionStore`] on MongoDB, through the client for heartbeats and locks.

use std::collections::HashMap;

use async_trait::async_trait;
use mongodb::bson::doc;
use mongodb::options::FindOptions;
use ratchet_core::model::{Guard, Guarded};
use ratchet_core::store::VersionStore;
use ratchet_core::{InvalidInput, Name, Result};

use crate::connection::Tx;
use crate::error::{Failure, Result as Inner};
use crate::pipelines;
use crate::row;
use crate::store::MongoStore;

#[async_trait]
impl VersionStore for MongoStore {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>> {
        // A repeat after a lost reply would increase the version twice.
        self.call_once("bump", || self.bump_version(namespace, guard))
            .await
    }

    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        let texts: Vec<&str> = namespaces.iter().map(Name::as_str).collect();
        self.call("versions", || async {
            let side = self.live();
            let wanted = doc! { "_id": { "$in": texts.clone() } };
            let rows = side
                .plain()
                .find(&side.versions, wanted, FindOptions::default())
                .await?;
            let mut found = HashMap::new();
            for row in rows {
                let name = row::text(&row, "_id")?.unwrap_or_default().to_owned();
                found.insert(name, row::count(&row, "version")?);
            }
            let version = |text: &&str| found.get(*text).copied().unwrap_or(0);
            Ok(texts.iter().map(version).collect())
        })
        .await
    }
}

impl MongoStore {
    async fn bump_version(&self, namespace: &Name, guard: Option<&Guard>) -> Inner<Guarded<u64>> {
        let side = self.live();
        if guard.is_none() {
            let raised = self.raise(&mut side.plain(), namespace).await?;
            return Ok(Guarded::Done(raised));
        }
        let Some(mut guarded) = self.begin_guarded(side, guard).await? else {
            return Ok(Guarded::Stale);
        };
        let raised = self.raise(&mut guarded.tx, namespace).await;
        guarded.finish(self, raised).await
    }

    async fn raise(&self, on: &mut Tx<'_>, namespace: &Name) -> Inner<u64> {
        let this = doc! { "_id": namespace.as_str() };
        let now = self.now(self.live()).await?;
        let next = pipelines::next_in_time("$version", now);
        let raise = vec![doc! { "$set": { "version": next } }];
        let raised = on.change(&self.live().versions, this, raise, true).await?;
        let raised = raised.ok_or_else(|| InvalidInput::new("version", "is missing"));
        let raised = raised.map_err(Failure::from)?;
        Ok(row::count(&raised, "version")?)
    }
}
