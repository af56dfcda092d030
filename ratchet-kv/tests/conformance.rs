//! Runs the conformance suite on a key-value engine in memory.

mod map;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Restart, Suite, TestClock};
use ratchet_core::memory::ManualClock;
use ratchet_core::{SharedStore, time};
use ratchet_kv::KvStore;

use map::MapEngine;

fn main() -> ExitCode {
    let powers = [
        Power::Clock,
        Power::Restart,
        Power::Recurring,
        Power::Archive,
        Power::Permits,
        Power::Rates,
        Power::Workflows,
        Power::Signals,
    ];
    Suite::new("kv", &powers).run(async { Provision::ready(|| async { Ok(Maps::new()) }) })
}

/// A database for one case.
struct Maps {
    store: KvStore<MapEngine>,
    clock: ManualClock,
}

impl Maps {
    fn new() -> Self {
        let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
        let engine = MapEngine::new(clock.clone());
        Self {
            store: KvStore::new(engine),
            clock,
        }
    }
}

/// The maps are the database, so they remain.
impl Restart for Maps {}

#[async_trait]
impl Fixture for Maps {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        Ok(Arc::new(self.store.clone()))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }
}
