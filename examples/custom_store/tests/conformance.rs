//! The conformance suite on the metered store: a fixture, and a `main` of one statement.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use custom_store_example::{Meter, MeteredStore};
use ratchet_conformance::{BoxError, Fixture, MemoryFixture, Power, Provision, Suite, TestClock};
use ratchet_core::SharedStore;

fn main() -> ExitCode {
    Suite::new("metered", Power::MEMORY)
        .run(async { Provision::ready(|| async { Ok(Metered(MemoryFixture::new())) }) })
}

/// One database per case; each `open` is another node's handle on it.
struct Metered(MemoryFixture);

#[async_trait]
impl Fixture for Metered {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let meter = Arc::new(Meter::new(Duration::from_millis(50)));
        Ok(Arc::new(MeteredStore::new(self.0.open().await?, meter)))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(self.0.clock())
    }
}
