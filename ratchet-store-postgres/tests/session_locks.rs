//! The conformance suite on PostgreSQL with locks that are bound to a database session. It runs the
//! groups on locks, or all groups if `RATCHET_TEST_ALL_GROUPS` is set.
//!
//! Some cases drop a store handle and expect that its locks stay. So the fixture keeps the
//! connections of every handle open until the case ends.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{
    BoxError, Fixture, Power, Residue, Restart, Suite, TestClock, TestDatabase, Vandal,
};
use ratchet_core::SharedStore;
use ratchet_core::store::Checked;
use ratchet_store_postgres::PostgresStore;
use tokio::sync::Mutex;

use crate::server::Schema;

fn main() -> ExitCode {
    // No case kills a process, because its locks would end with its sessions.
    let mut powers = Power::STORE.to_vec();
    powers.retain(|power| *power != Power::Processes);
    powers.extend([Power::FairKeys, Power::FairLimits]);
    let mut suite = Suite::new("postgres-session-locks", &powers);
    if std::env::var_os("RATCHET_TEST_ALL_GROUPS").is_none() {
        suite = suite.groups(&["lock", "guard", "version"]);
    }
    suite.run(async {
        server::SERVER.provision(|url| async move {
            Ok(BoundFixture {
                schema: Schema::reused(&url).await?,
                opened: Mutex::default(),
            })
        })
    })
}

struct BoundFixture {
    schema: Schema,
    opened: Mutex<Vec<Checked<PostgresStore>>>,
}

impl Restart for BoundFixture {}

#[async_trait]
impl Fixture for BoundFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let builder = self.schema.builder().clock_table("test_clock");
        let store = builder.session_locks(true).connect().await?;
        self.opened.lock().await.push(store.clone());
        Ok(Arc::new(store))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.schema)
    }

    fn vandal(&self) -> Option<&dyn Vandal> {
        Some(&self.schema)
    }

    async fn renew(&self) -> Result<(), BoxError> {
        self.schema.renew().await
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn residue(&self) -> Option<&dyn Residue> {
        Some(&self.schema)
    }

    async fn teardown(&self) {
        self.opened.lock().await.clear();
        self.schema.take_away().await;
    }
}
