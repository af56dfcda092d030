//! Runs the conformance suite on the filtered coordinator, with nodes that poll every queue.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use filtered_coordinator_example::FilteredCoordinator;
use ratchet_conformance::{
    BoxError, CoordinatorFactory, CoordinatorFixture, CoordinatorSuite, Power, Provision,
};
use ratchet_core::Selection;
use ratchet_core::cluster::ClusterCoordinator;

fn main() -> ExitCode {
    let new = || async { Ok(Transport(FilteredCoordinator::new(Selection::All))) };
    let factory = CoordinatorFactory::new(new);
    CoordinatorSuite::new("filtered", &[Power::Delivery]).run(async { Provision::Ready(factory) })
}

/// A transport for one case. Each `connect` adds another node to it.
struct Transport(FilteredCoordinator);

#[async_trait]
impl CoordinatorFixture for Transport {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        Ok(Arc::new(self.0.join(Selection::All)))
    }
}
