//! Runs the suite on the smallest store that the contract allows: it has only the required parts,
//! and lacks each [`StoreFeature`].

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Fixture, MemoryFixture, Power, Provision, Suite, TestClock};
use ratchet_core::store::{
    JobStore, LockStore, NodeStore, QueueStore, StoreFeature, StoreInfo, VersionStore,
};
use ratchet_core::{MemoryStore, SharedStore, Store};

/// The in-memory store without its optional parts.
#[derive(Debug)]
struct Smallest(MemoryStore);

impl Store for Smallest {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        Store::jobs(&self.0)
    }

    fn queues(&self) -> &dyn QueueStore {
        Store::queues(&self.0)
    }

    fn nodes(&self) -> &dyn NodeStore {
        Store::nodes(&self.0)
    }

    fn locks(&self) -> &dyn LockStore {
        Store::locks(&self.0)
    }

    fn versions(&self) -> &dyn VersionStore {
        Store::versions(&self.0)
    }

    fn lacks(&self, _: StoreFeature) -> Option<&'static str> {
        Some("the smallest store has only what the contract requires")
    }
}

struct SmallestFixture(MemoryFixture);

#[async_trait]
impl Fixture for SmallestFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        Ok(Arc::new(Smallest(self.0.store())))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(self.0.clock())
    }
}

fn main() -> ExitCode {
    Suite::new("smallest", &[Power::Clock])
        .run(async { Provision::ready(|| async { Ok(SmallestFixture(MemoryFixture::new())) }) })
}
