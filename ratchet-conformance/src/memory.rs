//! The fixture of the in-memory store, for the suite's own tests and for stores that wrap it.

use async_trait::async_trait;
use ratchet_core::memory::ManualClock;
use ratchet_core::{MemoryStore, SharedStore, time};
use std::sync::Arc;

use crate::fixture::{BoxError, Fixture, TestClock};

/// A fixture with an in-memory store ([`MemoryStore`]) whose clock a test can set.
#[derive(Debug)]
pub struct MemoryFixture {
    store: MemoryStore,
    clock: ManualClock,
}

impl MemoryFixture {
    /// Creates a fixture with an empty store. The clock first shows a fixed time in the year 2026.
    #[must_use]
    pub fn new() -> Self {
        let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
        Self {
            store: MemoryStore::with_clock(clock.clone()),
            clock,
        }
    }

    /// Returns a handle on the in-memory store. Use this method to test a store that wraps this
    /// store.
    #[must_use]
    pub fn store(&self) -> MemoryStore {
        self.store.clone()
    }

    /// Returns the clock that the store uses.
    #[must_use]
    pub const fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl Default for MemoryFixture {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Fixture for MemoryFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        Ok(Arc::new(self.store()))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }
}
