//! The conformance suite for coordinators on LISTEN and NOTIFY.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{
    BoxError, CoordinatorFixture, CoordinatorSuite, Outage, Power, Proxy, TestDatabase,
};
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::Store;

use crate::server::Schema;

fn main() -> ExitCode {
    CoordinatorSuite::new("postgres", &[Power::Delivery, Power::Outage]).run(async {
        server::SERVER
            .provision_coordinators(|url| async move { Notifications::create(&url).await })
    })
}

/// A schema, and a proxy to the server for the connections that carry wakeups.
struct Notifications {
    schema: Schema,
    proxy: Proxy,
}

impl Notifications {
    async fn create(url: &str) -> Result<Self, BoxError> {
        let proxy = Proxy::to(server::host(url)).await?;
        let schema = Schema::create(url).await?;
        Ok(Self { schema, proxy })
    }
}

#[async_trait]
impl CoordinatorFixture for Notifications {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        let proxy = server::at(&self.schema.url, &self.proxy.address().to_string());
        let store = self.schema.builder().direct(&proxy).connect().await?;
        store
            .coordinator()
            .ok_or_else(|| "the store has no coordinator".into())
    }

    fn outage(&self) -> Option<&dyn Outage> {
        Some(&self.proxy)
    }

    async fn teardown(&self) {
        self.schema.take_away().await;
    }
}
