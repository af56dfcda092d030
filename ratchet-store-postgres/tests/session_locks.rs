//! What the conformance suite says of locks, on PostgreSQL with locks that end with their session.
//! That the rest of the suite passes as well shows
//! `RATCHET_TEST_POSTGRES_URL=…?session_locks=true cargo test --test conformance`.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Suite, TestClock};
use ratchet_core::SharedStore;

use crate::server::Schema;

fn main() -> ExitCode {
    let suite = Suite::new("postgres-session-locks", &[Power::Clock]);
    suite.groups(&["lock", "guard", "version"]).run(async {
        let Some(url) = server::url() else {
            return Provision::unavailable(server::MISSING);
        };
        Provision::ready(move || {
            let url = url.clone();
            async move { Ok(BoundFixture(Schema::create(&url).await?)) }
        })
    })
}

struct BoundFixture(Schema);

#[async_trait]
impl Fixture for BoundFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let builder = self.0.builder().clock_table("test_clock");
        Ok(Arc::new(builder.session_locks(true).connect().await?))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.0)
    }

    async fn teardown(&self) {
        self.0.take_away().await;
    }
}
