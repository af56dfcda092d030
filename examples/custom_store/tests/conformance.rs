//! Runs the conformance suite on the store: a fixture, its powers, and a `main` of one statement.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use custom_store_example::MapStore;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Suite, TestClock};
use ratchet_core::memory::ManualClock;
use ratchet_core::{SharedStore, time};

fn main() -> ExitCode {
    Suite::new("map", &[Power::Clock]).run(async { Provision::ready(|| async { Ok(Maps::new()) }) })
}

/// A database for one case. Each `open` returns another node's handle on it.
struct Maps {
    store: MapStore,
    clock: ManualClock,
}

impl Maps {
    fn new() -> Self {
        let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
        let store = MapStore::with_clock(clock.clone());
        Self { store, clock }
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
