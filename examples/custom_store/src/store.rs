//! The handle: one mutex, one clock, and the list of what the store can do.

use std::fmt;
use std::sync::{Arc, Mutex};

use ratchet_core::memory::ManualClock;
use ratchet_core::store::{
    JobStore, LockStore, NodeStore, QueueStore, Store, StoreInfo, VersionStore,
};
use ratchet_core::time;

use crate::tables::Tables;

/// A store in maps behind one mutex: the five required traits, and no optional power.
///
/// Clones share the data, as the connections of several nodes share a database. A node puts the
/// door of the core ([`Checked`](ratchet_core::store::Checked)) in front of every store that has
/// none: it refuses bad input, ends calls at their deadline, and repeats them after contention.
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

    /// Builds an empty store on this clock, which stands for the clock of the database.
    #[must_use]
    pub fn with_clock(clock: ManualClock) -> Self {
        Self {
            tables: Arc::default(),
            clock,
        }
    }

    /// Runs one call as one transaction: no other call sees the tables while it works on them, and
    /// it reads the time once, inside of the transaction, in milliseconds since 1970.
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

/// What is not overridden here is a power that the store does not have: no recurring definitions,
/// no workflows, no permits. The suite skips the cases of those.
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
