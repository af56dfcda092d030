//! Runs the conformance suite on the store: a fixture, its powers, and a `main` of one statement.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use custom_store_example::RedbEngine;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Restart, Suite, TestClock};
use ratchet_core::memory::ManualClock;
use ratchet_core::{SharedStore, time};
use ratchet_kv::KvStore;
use tempfile::TempDir;
use tokio::sync::Mutex;

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
    Suite::new("redb", &powers).run(async { Provision::ready(Files::new) })
}

/// A database for one case. Each `open` returns another node's handle on it.
struct Files {
    store: Mutex<Option<KvStore<RedbEngine>>>,
    clock: ManualClock,
    folder: TempDir,
}

impl Files {
    async fn new() -> Result<Self, BoxError> {
        let files = Self {
            store: Mutex::default(),
            clock: ManualClock::new(time::from_millis(1_790_000_000_123)),
            folder: tempfile::tempdir()?,
        };
        files.end_processes().await?;
        Ok(files)
    }
}

#[async_trait]
impl Fixture for Files {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let store = self.store.lock().await.clone();
        Ok(Arc::new(store.ok_or("the file is closed")?))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }
}

#[async_trait]
impl Restart for Files {
    async fn end_processes(&self) -> Result<(), BoxError> {
        let mut store = self.store.lock().await;
        // The file can be opened again when the last handle on it is dropped.
        *store = None;
        let clock = self.clock.clone();
        let file = self.folder.path().join("jobs.redb");
        let engine = RedbEngine::with_clock(file, move || clock.now_millis()).await?;
        *store = Some(KvStore::new(engine));
        Ok(())
    }
}
