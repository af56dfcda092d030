//! The conformance suite on the coordinator of the example. Authors of a coordinator test it like
//! this.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use custom_coordinator_example::RedisCoordinator;
use ratchet::store_api::cluster::ClusterCoordinator;
use ratchet_conformance::{
    BoxError, CoordinatorFactory, CoordinatorFixture, CoordinatorSuite, Outage, Power, Provision,
    Proxy,
};

fn main() -> ExitCode {
    CoordinatorSuite::new("redis", &[Power::Delivery, Power::Outage]).run(async {
        let Ok(server) = std::env::var("RATCHET_TEST_REDIS_URL") else {
            return Provision::unavailable("RATCHET_TEST_REDIS_URL is not set");
        };
        Provision::Ready(CoordinatorFactory::new(move || {
            let server = server.clone();
            async move { Channel::create(&server).await }
        }))
    })
}

/// A separate channel, and a proxy to the server that can be cut.
struct Channel {
    name: String,
    proxy: Proxy,
}

impl Channel {
    async fn create(server: &str) -> Result<Self, BoxError> {
        static CHANNELS: AtomicUsize = AtomicUsize::new(0);
        let number = CHANNELS.fetch_add(1, Ordering::Relaxed);
        let host = server.trim_start_matches("redis://").trim_end_matches('/');
        Ok(Self {
            name: format!("ratchet:test:{}:{number}", std::process::id()),
            proxy: Proxy::to(host).await?,
        })
    }
}

#[async_trait]
impl CoordinatorFixture for Channel {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        let proxy = format!("redis://{}/", self.proxy.address());
        Ok(Arc::new(
            RedisCoordinator::connect(&proxy, &self.name).await?,
        ))
    }

    fn outage(&self) -> Option<&dyn Outage> {
        Some(&self.proxy)
    }
}
