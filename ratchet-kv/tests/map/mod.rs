//! A key-value engine in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::memory::ManualClock;
use ratchet_core::store::StoreInfo;
use ratchet_kv::{Access, Engine, Entry, Order, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// An engine with one transaction at a time.
#[derive(Clone, Debug)]
pub(crate) struct MapEngine {
    map: Arc<Mutex<Map>>,
    clock: ManualClock,
}

#[derive(Debug)]
pub(crate) struct MapTransaction {
    map: OwnedMutexGuard<Map>,
    changed: Map,
    now: i64,
}

impl MapEngine {
    pub(crate) fn new(clock: ManualClock) -> Self {
        Self {
            map: Arc::default(),
            clock,
        }
    }
}

#[async_trait]
impl Engine for MapEngine {
    type Transaction = MapTransaction;

    fn info(&self) -> StoreInfo {
        StoreInfo {
            backend: "map",
            version: "1".to_owned(),
        }
    }

    async fn begin(&self, _: Access) -> Result<MapTransaction> {
        let map = Arc::clone(&self.map).lock_owned().await;
        Ok(MapTransaction {
            changed: map.clone(),
            map,
            now: self.clock.now_millis(),
        })
    }
}

#[async_trait]
impl Transaction for MapTransaction {
    async fn now(&mut self) -> Result<i64> {
        Ok(self.now)
    }

    async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.changed.get(key).cloned())
    }

    async fn range(
        &mut self,
        keys: Range<Vec<u8>>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let entries = self.changed.range(keys);
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        Ok(match order {
            Order::Ascending => entries.map(entry).take(limit).collect(),
            Order::Descending => entries.rev().map(entry).take(limit).collect(),
        })
    }

    async fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.changed.insert(key, value);
        Ok(())
    }

    async fn remove(&mut self, key: Vec<u8>) -> Result<()> {
        self.changed.remove(&key);
        Ok(())
    }

    async fn commit(mut self) -> Result<()> {
        *self.map = self.changed;
        Ok(())
    }
}
