//! A key-value engine in memory.

pub(crate) mod fixture;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ratchet_core::memory::ManualClock;
use ratchet_core::store::StoreInfo;
use ratchet_core::{Result, StoreError, StoreErrorKind};
use ratchet_kv::{Access, Engine, Entry, Order, Transaction};
use tokio::sync::OwnedMutexGuard;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// An engine whose transactions read a snapshot. Either the engine allows one writer at a time, or
/// it is optimistic: a commit then fails if another transaction was committed after the snapshot.
#[derive(Clone, Debug)]
pub(crate) struct MapEngine {
    committed: Arc<Mutex<Committed>>,
    /// The lock of the transaction that may write. `None` if the engine is optimistic.
    writer: Option<Arc<tokio::sync::Mutex<()>>>,
    clock: ManualClock,
}

#[derive(Debug, Default)]
struct Committed {
    map: Map,
    /// The number of committed transactions.
    version: u64,
}

#[derive(Debug)]
pub(crate) struct MapTransaction {
    committed: Arc<Mutex<Committed>>,
    map: Map,
    /// The version of the snapshot.
    version: u64,
    access: Access,
    now: i64,
    _writer: Option<OwnedMutexGuard<()>>,
}

impl MapEngine {
    /// Creates an engine with one writer at a time.
    pub(crate) fn new(clock: ManualClock) -> Self {
        Self {
            writer: Some(Arc::default()),
            ..Self::optimistic(clock)
        }
    }

    /// Creates an optimistic engine, which detects conflicts at the commit.
    pub(crate) fn optimistic(clock: ManualClock) -> Self {
        Self {
            committed: Arc::default(),
            writer: None,
            clock,
        }
    }
}

fn lock(committed: &Mutex<Committed>) -> MutexGuard<'_, Committed> {
    committed.lock().unwrap_or_else(PoisonError::into_inner)
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

    async fn begin(&self, access: Access) -> Result<MapTransaction> {
        let writer = match (&self.writer, access) {
            (Some(writer), Access::Write) => Some(Arc::clone(writer).lock_owned().await),
            _ => None,
        };
        let (map, version) = {
            let committed = lock(&self.committed);
            (committed.map.clone(), committed.version)
        };
        let transaction = MapTransaction {
            committed: Arc::clone(&self.committed),
            map,
            version,
            access,
            now: self.clock.now_millis(),
            _writer: writer,
        };
        // Lets other tasks run, so that their transactions may commit after this one has taken its
        // snapshot. This happens on a real engine too.
        tokio::task::yield_now().await;
        Ok(transaction)
    }
}

#[async_trait]
impl Transaction for MapTransaction {
    async fn now(&mut self) -> Result<i64> {
        Ok(self.now)
    }

    async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.map.get(key).cloned())
    }

    async fn range(
        &mut self,
        keys: Range<Vec<u8>>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let entries = self.map.range(keys);
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        Ok(match order {
            Order::Ascending => entries.map(entry).take(limit).collect(),
            Order::Descending => entries.rev().map(entry).take(limit).collect(),
        })
    }

    async fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.map.insert(key, value);
        Ok(())
    }

    async fn remove(&mut self, key: Vec<u8>) -> Result<()> {
        self.map.remove(&key);
        Ok(())
    }

    async fn commit(self) -> Result<()> {
        if self.access == Access::Read {
            return Ok(());
        }
        let mut committed = lock(&self.committed);
        if committed.version != self.version {
            return Err(StoreError::new(StoreErrorKind::Contention, "commit"));
        }
        committed.map = self.map;
        committed.version += 1;
        Ok(())
    }
}
