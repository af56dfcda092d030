//! Runs the conformance suite on the store. The file has a fixture, the list of its powers (what it
//! can do to a database), and a `main` of one statement.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use custom_store_example::RedbEngine;
use ratchet::store_api::time;
use ratchet::{JobId, ManualClock, Name, SharedStore};
use ratchet_conformance::{
    BoxError, Fixture, MachineClock, Power, Provision, Residue, Restart, Suite, TestClock, Vandal,
};
use ratchet_kv::{KvStore, testing};
use tempfile::TempDir;
use tokio::sync::Mutex;

fn main() -> ExitCode {
    // `KvStore` has every part except diagnostics, and the fixture below has every power.
    let more = [Power::MachineClock, Power::FairKeys, Power::FairLimits];
    let powers = Power::STORE.iter().chain(&more).copied();
    let powers: Vec<Power> = powers
        .filter(|power| *power != Power::Diagnostics)
        .collect();
    Suite::new("redb", &powers)
        .attach(|file| async {
            Ok(Arc::new(custom_store_example::open(file).await?) as SharedStore)
        })
        .run(async { Provision::ready(|| async { Files::new() }) })
}

/// A database for one case. Each `open` returns another node's handle on it.
struct Files {
    store: Mutex<Option<KvStore<RedbEngine>>>,
    clock: ManualClock,
    folder: TempDir,
}

impl Files {
    fn new() -> Result<Self, BoxError> {
        Ok(Self {
            store: Mutex::default(),
            clock: ManualClock::new(time::from_millis(1_790_000_000_123)),
            folder: tempfile::tempdir()?,
        })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("jobs.redb")
    }

    /// Opens the file, unless it is already open.
    async fn store(&self) -> Result<KvStore<RedbEngine>, BoxError> {
        let mut store = self.store.lock().await;
        if store.is_none() {
            let clock = self.clock.clone();
            let engine = RedbEngine::with_clock(self.file(), move || clock.now_millis()).await?;
            *store = Some(KvStore::new(engine));
        }
        Ok(store.clone().ok_or("the database file is closed")?)
    }
}

#[async_trait]
impl Fixture for Files {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        Ok(Arc::new(self.store().await?))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn vandal(&self) -> Option<&dyn Vandal> {
        Some(self)
    }

    fn residue(&self) -> Option<&dyn Residue> {
        Some(self)
    }

    fn address(&self) -> Option<String> {
        Some(self.file().display().to_string())
    }

    fn machine_clock(&self) -> Option<&dyn MachineClock> {
        Some(self)
    }
}

#[async_trait]
impl MachineClock for Files {
    async fn open(&self, machine: ManualClock) -> Result<SharedStore, BoxError> {
        let machine = move || machine.now_millis();
        Ok(Arc::new(
            custom_store_example::open_with(self.file(), machine).await?,
        ))
    }
}

#[async_trait]
impl Vandal for Files {
    async fn spoil(&self, job: JobId) -> Result<(), BoxError> {
        Ok(testing::spoil_job(&self.store().await?, job).await?)
    }

    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        Ok(testing::hide_job(&self.store().await?, job).await?)
    }

    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        Ok(testing::spoil_recurring(&self.store().await?, name).await?)
    }

    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError> {
        Ok(testing::spoil_lock(&self.store().await?, name).await?)
    }
}

#[async_trait]
impl Residue for Files {
    async fn rows_of_jobs(&self) -> Result<u64, BoxError> {
        Ok(testing::rows_of_jobs(&self.store().await?).await?)
    }
}

#[async_trait]
impl Restart for Files {
    async fn end_processes(&self) -> Result<(), BoxError> {
        // Drops the last handle on the file. Then the next call of `store` can open the file again.
        *self.store.lock().await = None;
        Ok(())
    }
}
