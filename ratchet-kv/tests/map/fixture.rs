//! The fixture that runs the conformance suite on a [`MapEngine`].

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Residue, Suite, TestClock, Vandal};
use ratchet_core::memory::ManualClock;
use ratchet_core::store::Checked;
use ratchet_core::{JobId, Name, SharedStore, time};
use ratchet_kv::{KvStore, testing};

use super::MapEngine;

/// Runs the suite on engines that the function `engine` creates.
pub(crate) fn run(name: &str, engine: fn(ManualClock) -> MapEngine) -> ExitCode {
    // A map exists only in this process, so it cannot be restarted or shared with other processes.
    // It also has no diagnostics.
    let lacks = [Power::Restart, Power::Processes, Power::Diagnostics];
    let mut powers = Power::STORE.to_vec();
    powers.extend([Power::FairKeys, Power::FairLimits]);
    powers.retain(|power| !lacks.contains(power));
    let fixture = move || async move { Ok(Maps::new(engine)) };
    Suite::new(name, &powers).run(async move { Provision::ready(fixture) })
}

/// A database for one case.
struct Maps {
    store: KvStore<MapEngine>,
    clock: ManualClock,
}

impl Maps {
    fn new(engine: fn(ManualClock) -> MapEngine) -> Self {
        let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
        Self {
            store: KvStore::new(engine(clock.clone())),
            clock,
        }
    }
}

#[async_trait]
impl Fixture for Maps {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        Ok(Checked::shared(Arc::new(self.store.clone())))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }

    fn vandal(&self) -> Option<&dyn Vandal> {
        Some(self)
    }

    fn residue(&self) -> Option<&dyn Residue> {
        Some(self)
    }
}

#[async_trait]
impl Vandal for Maps {
    async fn spoil(&self, job: JobId) -> Result<(), BoxError> {
        Ok(testing::spoil_job(&self.store, job).await?)
    }

    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        Ok(testing::hide_job(&self.store, job).await?)
    }

    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        Ok(testing::spoil_recurring(&self.store, name).await?)
    }

    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError> {
        Ok(testing::spoil_lock(&self.store, name).await?)
    }
}

#[async_trait]
impl Residue for Maps {
    async fn rows_of_jobs(&self) -> Result<u64, BoxError> {
        Ok(testing::rows_of_jobs(&self.store).await?)
    }
}
