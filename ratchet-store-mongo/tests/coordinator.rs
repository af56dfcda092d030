//! The conformance suite for coordinators on change streams.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{
    BoxError, CoordinatorFactory, CoordinatorFixture, CoordinatorSuite, Power, Provision,
};
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::Store;

use crate::server::Space;

fn main() -> ExitCode {
    CoordinatorSuite::new("mongodb", &[Power::Delivery]).run(async {
        let Some(url) = server::url(server::URL) else {
            return Provision::unavailable(server::missing(server::URL));
        };
        Provision::Ready(CoordinatorFactory::new(move || {
            let url = url.clone();
            async move { Ok(Changes(Space::create(&url).await?)) }
        }))
    })
}

struct Changes(Space);

#[async_trait]
impl CoordinatorFixture for Changes {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        let store = self.0.builder().connect().await?;
        store
            .coordinator()
            .ok_or_else(|| "the store has no coordinator".into())
    }

    async fn teardown(&self) {
        self.0.take_away().await;
    }
}
