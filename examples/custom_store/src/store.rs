//! The handle: one mutex, one clock, and the list of the store's parts.

use std::fmt;
use std::sync::{Arc, Mutex};

use ratchet_core::memory::ManualClock;
use ratchet_core::store::{
    JobStore, LockStore, NodeStore, QueueStore, Store, StoreInfo, VersionStore,
};
use ratchet_core::time;

use crate::tables::Tables;

/// A store that keeps all data in maps behind one mutex. It implements the five required traits,
/// and none of the optional parts of a store.
///
/// Clones share the data, as the connections of several nodes share a database. A node wraps its
/// store in [`Checked`](ratchet_core::store::Checked), unless the store is wrapped already.
/// `Checked` rejects invalid input, ends calls at their deadline, and repeats calls after
/// contention.
#[derive(Clone)]
pub struct MapStore {
    tables: Arc<Mutex<Tables>>,
    clock: ManualClock,
}

impl MapStore {
    /// Creates an empty store that uses the clock of this host.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(ManualClock::running(time::wall_clock()))
    }

    /// Creates an empty store that uses `clock` as the clock of the database.
    #[must_use]
    pub fn with_clock(clock: ManualClock) -> Self {
        Self {
            tables: Arc::default(),
            clock,
        }
    }

    /// Calls `work` as one transaction. No other call can access the tables while `work` runs.
    /// `work` receives the tables and the current time, in milliseconds since 1970.
    pub(crate) fn transaction<T>(&self, work: impl FnOnce(&mut Tables, i64) -> T) -> T {
        let tables = self.tables.lock();
        let mut tables = tables.unwrap_or_else(|broken| broken.into_inner());
        work(&mut tables, self.clock.now_millis())
    }
}

impl Default for MapStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MapStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MapStore")
    }
}

/// Implements no optional part of a store: recurring definitions, workflows and permits are
/// missing. The conformance suite skips the cases for missing parts.
impl Store for MapStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            backend: "map",
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn jobs(&self) -> &dyn JobStore {
        self
    }

    fn queues(&self) -> &dyn QueueStore {
        self
    }

    fn nodes(&self) -> &dyn NodeStore {
        self
    }

    fn locks(&self) -> &dyn LockStore {
        self
    }

    fn versions(&self) -> &dyn VersionStore {
        self
    }
}
