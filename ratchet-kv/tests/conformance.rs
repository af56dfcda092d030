//! Runs the conformance suite on a key-value engine in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Suite, TestClock};
use ratchet_core::memory::ManualClock;
use ratchet_core::store::StoreInfo;
use ratchet_core::{Result, SharedStore, time};
use ratchet_kv::{Access, Engine, Entry, KvStore, Order, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

fn main() -> ExitCode {
    let powers = [
        Power::Clock,
        Power::Recurring,
        Power::Archive,
        Power::Permits,
        Power::Rates,
        Power::Workflows,
        Power::Signals,
    ];
    Suite::new("kv", &powers).run(async { Provision::ready(|| async { Ok(Maps::new()) }) })
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// An engine with one transaction at a time.
#[derive(Debug)]
struct MapEngine {
    map: Arc<Mutex<Map>>,
    clock: ManualClock,
}

#[derive(Debug)]
struct MapTransaction {
    map: OwnedMutexGuard<Map>,
    changed: Map,
    now: i64,
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

/// A database for one case.
struct Maps {
    store: KvStore<MapEngine>,
    clock: ManualClock,
}

impl Maps {
    fn new() -> Self {
        let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
        let engine = MapEngine {
            map: Arc::default(),
            clock: clock.clone(),
        };
        Self {
            store: KvStore::new(engine),
            clock,
        }
    }
}

#[async_trait]
impl Fixture for Maps {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        Ok(Arc::new(self.store.clone()))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }
}
