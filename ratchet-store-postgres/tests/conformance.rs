//! The conformance suite on PostgreSQL: one schema per case, several handles on it.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Fixture, Power, Provision, Suite, TestClock, Vandal};
use ratchet_core::{JobId, Name, SharedStore};

use crate::server::Schema;

fn main() -> ExitCode {
    let name = server::pooler().map_or("postgres", |_| "pgbouncer");
    Suite::new(name, Power::STORE).run(async {
        let Some(url) = server::url() else {
            return Provision::unavailable(server::MISSING);
        };
        Provision::ready(move || {
            let url = url.clone();
            async move { Ok(PostgresFixture(Schema::create(&url).await?)) }
        })
    })
}

struct PostgresFixture(Schema);

#[async_trait]
impl Fixture for PostgresFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let builder = self.0.builder().clock_table("test_clock");
        Ok(Arc::new(builder.connect().await?))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.0)
    }

    fn vandal(&self) -> Option<&dyn Vandal> {
        Some(self)
    }

    async fn teardown(&self) {
        self.0.take_away().await;
    }
}

#[async_trait]
impl Vandal for PostgresFixture {
    async fn spoil(&self, job: JobId) -> Result<(), BoxError> {
        let spoil = "UPDATE {schema}.job_data SET retry = '{' WHERE id = '{job}'";
        self.0
            .execute(&spoil.replace("{job}", &job.to_string()))
            .await?;
        Ok(())
    }

    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        let spoil = "UPDATE {schema}.recurring SET definition = '{' WHERE name = '{name}'";
        self.0
            .execute(&spoil.replace("{name}", name.as_str()))
            .await?;
        Ok(())
    }
}
