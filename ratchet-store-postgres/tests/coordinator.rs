//! The conformance suite for coordinators on LISTEN and NOTIFY.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{
    BoxError, CoordinatorFactory, CoordinatorFixture, CoordinatorSuite, Line, Outage, Place, Power,
    Provision,
};
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::Store;

use crate::server::Schema;

fn main() -> ExitCode {
    CoordinatorSuite::new("postgres", &[Power::Delivery, Power::Outage]).run(async {
        let Some(url) = server::url() else {
            return Provision::unavailable(server::MISSING);
        };
        Provision::Ready(CoordinatorFactory::new(move || {
            let url = url.clone();
            async move { Notifications::create(&url).await }
        }))
    })
}

/// A schema, and a line to the server for what carries wakeups.
struct Notifications {
    schema: Schema,
    line: Line,
}

impl Notifications {
    async fn create(url: &str) -> Result<Self, BoxError> {
        let line = Line::to(server::host(url)).await?;
        let schema = Schema::create(url).await?;
        Ok(Self { schema, line })
    }
}

#[async_trait]
impl CoordinatorFixture for Notifications {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        let line = server::at(&self.schema.url, &self.line.address().to_string());
        let store = self.schema.builder().direct(&line).connect().await?;
        store
            .coordinator()
            .ok_or_else(|| "the store has no coordinator".into())
    }

    fn outage(&self) -> Option<&dyn Outage> {
        Some(&self.line)
    }

    async fn teardown(&self) {
        self.schema.take_away().await;
    }
}
