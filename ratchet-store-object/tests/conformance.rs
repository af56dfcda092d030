//! The conformance suite on a bucket in memory, with several handles on it.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::memory::InMemory;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Restart, Suite, TestClock};
use ratchet_core::memory::ManualClock;
use ratchet_core::{SharedStore, time};
use ratchet_store_object::{Builder, ObjectStore, object_store};

fn main() -> ExitCode {
    let powers = [Power::MEMORY, &[Power::Restart]].concat();
    Suite::new("object", &powers).run(async { Provision::ready(|| async { Ok(Bucket::new()) }) })
}

struct Bucket {
    objects: Arc<InMemory>,
    clock: ManualClock,
}

impl Bucket {
    fn new() -> Self {
        Self {
            objects: Arc::new(InMemory::new()),
            clock: ManualClock::new(time::from_millis(1_790_000_000_123)),
        }
    }

    /// Snapshots follow each other so closely that the cases use them.
    fn builder(&self) -> Builder {
        let objects: Arc<InMemory> = Arc::clone(&self.objects);
        ObjectStore::on(objects, "ratchet").snapshot_every(7)
    }
}

impl Restart for Bucket {}

#[async_trait]
impl Fixture for Bucket {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let builder = self.builder().manual_clock(self.clock.clone());
        Ok(Arc::new(builder.connect().await?))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }
}
