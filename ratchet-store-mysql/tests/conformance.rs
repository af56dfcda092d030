//! The conformance suite on MySQL or MariaDB: one database per case, several handles on it.

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
use sqlx::mysql::MySqlConnection;
use sqlx::{Connection as _, Executor as _};

use crate::server::Database;

fn main() -> ExitCode {
    // Fewer histories than by default, because a history takes several times as long as on SQLite.
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
    let suite = Suite::new("mysql", &powers).histories(40);
    let suite = suite.attach(|database| async move {
        let url = server::SERVER.url().ok_or("the server is not set")?;
        let builder = server::builder(&server::with_database(&url, &database));
        Ok(Arc::new(builder.connect().await?) as SharedStore)
    });
    suite.run(async {
        server::SERVER
            .provision(|url| async move { Ok(MysqlFixture(Database::reused(&url).await?)) })
    })
}

struct MysqlFixture(Database);

impl Restart for MysqlFixture {}

#[async_trait]
impl Fixture for MysqlFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let builder = self.0.builder().clock_table("test_clock");
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
impl Transactions for MysqlFixture {
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
        let mut connection = MySqlConnection::connect(&self.url).await?;
        connection.execute("BEGIN").await?;
        Ok(Box::new(Begun(connection)))
    }
}

struct Begun(MySqlConnection);

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
