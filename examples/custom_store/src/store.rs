//! The handle: one mutex, one clock, and the list of the store's parts.

use std::fmt;
use std::sync::{Arc, Mutex};

use ratchet_core::memory::ManualClock;
use ratchet_core::store::{
    JobStore, LockStore, NodeStore, QueueStore, Store, StoreInfo, VersionStore,
};
use ratchet_core::time;

use crate::tables::Tables;

/// A store of maps behind one mutex: the five required traits, and no optional part.
///
/// Clones share the data, as the connections of several nodes share a database. A node wraps every
/// store in the core's checks ([`Checked`](ratchet_core::store::Checked)), unless it already has
/// them. The checks refuse invalid input, end calls at their deadline, and repeat calls after
/// contention.
#[derive(Clone)]
pub struct MapStore {
    tables: Arc<Mutex<Tables>>,
    clock: ManualClock,
}

impl MapStore {
    /// Builds an empty store on the clock of this host.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(ManualClock::running(time::wall_clock()))
    }

    /// Builds an empty store on this clock, which represents the clock of the database.
    #[must_use]
    pub fn with_clock(clock: ManualClock) -> Self {
        Self {
            tables: Arc::default(),
            clock,
        }
    }

    /// Runs one call as one transaction: no other call sees the tables while it works. The time is
    /// read once inside the transaction, in milliseconds since 1970.
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

/// The optional parts that are not overridden here are missing: there are no recurring definitions,
/// workflows or permits. The suite skips their cases.
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
