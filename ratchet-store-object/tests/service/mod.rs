//! The conformance suite on a service that speaks HTTP: one prefix per case, several handles on it.
//! Emulators are slow, so it runs all groups only if `RATCHET_TEST_ALL_GROUPS` is set.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::RetryConfig;
use ratchet_conformance::{BoxError, Fixture, Power, Restart, Suite, TestClock, TestServer};
use ratchet_core::memory::ManualClock;
use ratchet_core::{SharedStore, time};
use ratchet_store_object::{Builder, ObjectStore, object_store};
use uuid::Uuid;

type Client = Arc<dyn object_store::ObjectStore>;

/// Creates the client for a bucket at this endpoint.
pub(crate) type Connect = fn(endpoint: &str, bucket: &str) -> Result<Client, BoxError>;

/// The store repeats requests itself.
pub(crate) fn no_repeats() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

pub(crate) fn run(server: TestServer, name: &str, connect: Connect) -> ExitCode {
    let powers = [Power::MEMORY, &[Power::Restart, Power::Processes]].concat();
    let attach = move |prefix: String| async move {
        let url = server.url().ok_or("the server is not set")?;
        let store = builder(client(&url, connect)?, &prefix).connect().await?;
        Ok(Arc::new(store) as SharedStore)
    };
    let mut suite = Suite::new(name, &powers).histories(5).attach(attach);
    if std::env::var_os("RATCHET_TEST_ALL_GROUPS").is_none() {
        // Those that put at the same time. The others run on a bucket in memory.
        suite = suite.groups(&["concurrency", "link_race", "lock", "migrate", "restart"]);
    }
    suite.run(async {
        server.provision(move |url| async move { Ok(Prefix::new(client(&url, connect)?)) })
    })
}

/// Creates a client, which belongs to the runtime of one case, like its connections.
fn client(url: &str, connect: Connect) -> Result<Client, BoxError> {
    let (endpoint, bucket) = url.rsplit_once('/').ok_or("the URL names no bucket")?;
    connect(endpoint, bucket)
}

/// Snapshots follow each other so closely that the cases use them.
fn builder(client: Client, prefix: &str) -> Builder {
    ObjectStore::on(client, prefix).snapshot_every(7)
}

/// The objects of one case.
struct Prefix {
    client: Client,
    prefix: String,
    clock: ManualClock,
}

impl Prefix {
    fn new(client: Client) -> Self {
        Self {
            client,
            prefix: Uuid::new_v4().simple().to_string(),
            clock: ManualClock::new(time::from_millis(1_790_000_000_123)),
        }
    }
}

impl Restart for Prefix {}

#[async_trait]
impl Fixture for Prefix {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let builder = builder(Arc::clone(&self.client), &self.prefix);
        let store = builder.manual_clock(self.clock.clone()).connect().await?;
        Ok(Arc::new(store))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn address(&self) -> Option<String> {
        Some(self.prefix.clone())
    }
}
