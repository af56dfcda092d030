//! The conformance suite for coordinators on change streams.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use mongodb::options::ClientOptions;
use ratchet_conformance::{
    BoxError, CoordinatorFixture, CoordinatorSuite, Outage, Power, Proxy, TestDatabase,
};
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::Store;

use crate::server::Space;

fn main() -> ExitCode {
    CoordinatorSuite::new("mongodb", &[Power::Delivery, Power::Outage]).run(async {
        server::SERVER.provision_coordinators(|url| async move { Changes::create(&url).await })
    })
}

/// Collections, and a proxy through which the stores connect to the server.
struct Changes {
    space: Space,
    proxy: Proxy,
}

impl Changes {
    async fn create(url: &str) -> Result<Self, BoxError> {
        let options = ClientOptions::parse(url).await?;
        let host = options.hosts.first().ok_or("the URL names no host")?;
        let proxy = Proxy::to(&host.to_string()).await?;
        let space = Space::create(url).await?;
        Ok(Self { space, proxy })
    }
}

#[async_trait]
impl CoordinatorFixture for Changes {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        // The connection is direct. Otherwise the driver would learn the server's address from the
        // replica set, and bypass the proxy.
        let proxy = format!("mongodb://{}/?directConnection=true", self.proxy.address());
        let space = Space {
            url: proxy,
            prefix: self.space.prefix.clone(),
            database: self.space.database.clone(),
            slot: None,
        };
        let store = space.builder().connect().await?;
        store
            .coordinator()
            .ok_or_else(|| "the store has no coordinator".into())
    }

    fn outage(&self) -> Option<&dyn Outage> {
        Some(&self.proxy)
    }

    async fn teardown(&self) {
        self.space.take_away().await;
    }
}
