//! The conformance suite on PostgreSQL: one schema per case, several handles on it.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{
    Application, BoxError, Fixture, OpenTransaction, Power, Residue, Restart, Suite, TestClock,
    TestDatabase, Transactions, Vandal,
};
use ratchet_core::SharedStore;
use ratchet_core::store::AppConnection;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::server::Schema;

fn main() -> ExitCode {
    let name = server::pooler().map_or("postgres", |_| "pgbouncer");
    // Fewer histories than by default, because a history takes three times as long as on SQLite.
    let powers = [
        Power::STORE,
        &[
            Power::FairKeys,
            Power::FairLimits,
            Power::Transactions,
            Power::RowLocks,
        ],
    ]
    .concat();
    let suite = Suite::new(name, &powers).histories(40);
    let suite = suite.attach(|schema| async move {
        let url = server::SERVER.url().ok_or("the server is not set")?;
        let builder = server::builder(&url, &schema);
        Ok(Arc::new(builder.connect().await?) as SharedStore)
    });
    suite.run(async {
        server::SERVER
            .provision(|url| async move { Ok(PostgresFixture(Schema::reused(&url).await?)) })
    })
}

struct PostgresFixture(Schema);

impl Restart for PostgresFixture {}

#[async_trait]
impl Fixture for PostgresFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let builder = self.0.builder().clock_table("test_clock");
        // So that the queues of most cases and histories share their routes.
        let builder = builder.own_queues(2);
        Ok(Arc::new(builder.connect().await?))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.0)
    }

    fn vandal(&self) -> Option<&dyn Vandal> {
        Some(&self.0)
    }

    async fn renew(&self) -> Result<(), BoxError> {
        self.0.renew().await
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn residue(&self) -> Option<&dyn Residue> {
        Some(&self.0)
    }

    fn address(&self) -> Option<String> {
        Some(self.0.name.clone())
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    async fn teardown(&self) {
        self.0.take_away().await;
    }
}

#[async_trait]
impl Transactions for PostgresFixture {
    async fn open(&self) -> Result<(SharedStore, Box<dyn Application>), BoxError> {
        let url = self.0.url.clone();
        Ok((Fixture::open(self).await?, Box::new(App { url })))
    }
}

/// An application that uses the same database as the store.
struct App {
    url: String,
}

#[async_trait]
impl Application for App {
    async fn begin(&self) -> Result<Box<dyn OpenTransaction>, BoxError> {
        let mut connection = PgConnection::connect(&self.url).await?;
        connection.execute("BEGIN").await?;
        Ok(Box::new(Begun(connection)))
    }
}

struct Begun(PgConnection);

#[async_trait]
impl OpenTransaction for Begun {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Exclusive(&mut self.0)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), BoxError> {
        self.0.execute("COMMIT").await?;
        Ok(())
    }

    async fn roll_back(mut self: Box<Self>) -> Result<(), BoxError> {
        self.0.execute("ROLLBACK").await?;
        Ok(())
    }
}
