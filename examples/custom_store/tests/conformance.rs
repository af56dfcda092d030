//! Runs the conformance suite on the store: a fixture, its powers, and a `main` of one statement.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use custom_store_example::RedbEngine;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Suite, TestClock};
use ratchet_core::memory::ManualClock;
use ratchet_core::{SharedStore, time};
use ratchet_kv::KvStore;
use tempfile::TempDir;

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
    Suite::new("redb", &powers).run(async { Provision::ready(Files::new) })
}

/// A database for one case. Each `open` returns another node's handle on it.
struct Files {
    store: KvStore<RedbEngine>,
    clock: ManualClock,
    _folder: TempDir,
}

impl Files {
    async fn new() -> Result<Self, BoxError> {
        let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
        let now = clock.clone();
        let folder = tempfile::tempdir()?;
        let engine =
            RedbEngine::with_clock(folder.path().join("db"), move || now.now_millis()).await?;
        Ok(Self {
            store: KvStore::new(engine),
            clock,
            _folder: folder,
        })
    }
}

#[async_trait]
impl Fixture for Files {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        Ok(Arc::new(self.store.clone()))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }
}
