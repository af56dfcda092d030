//! The cases of the conformance suite with several processes, on a bucket in a directory.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Restart, Suite, TestClock};
use ratchet_core::memory::ManualClock;
use ratchet_core::{SharedStore, time};
use ratchet_store_object::{Builder, ObjectStore};
use tempfile::TempDir;

fn main() -> ExitCode {
    let attach = |url: String| async move {
        let store = builder(url).connect().await?;
        Ok(Arc::new(store) as SharedStore)
    };
    let powers = [Power::MEMORY, &[Power::Restart, Power::Processes]].concat();
    Suite::new("object-directory", &powers)
        .groups(&["concurrency", "restart"])
        .attach(attach)
        .run(async { Provision::ready(|| async { Directory::new() }) })
}

/// Snapshots follow each other so closely that the cases use them.
fn builder(url: String) -> Builder {
    ObjectStore::builder(url).snapshot_every(7)
}

struct Directory {
    directory: TempDir,
    clock: ManualClock,
}

impl Directory {
    fn new() -> Result<Self, BoxError> {
        Ok(Self {
            directory: TempDir::new()?,
            clock: ManualClock::new(time::from_millis(1_790_000_000_123)),
        })
    }

    fn url(&self) -> String {
        format!("file://{}", self.directory.path().display())
    }
}

impl Restart for Directory {}

#[async_trait]
impl Fixture for Directory {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let builder = builder(self.url()).manual_clock(self.clock.clone());
        Ok(Arc::new(builder.connect().await?))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
    }
}
