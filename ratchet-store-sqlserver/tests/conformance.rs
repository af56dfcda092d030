//! The conformance suite on SQL Server, or on Babelfish in its place: one schema per case, with
//! several handles on it. Every case runs on either server.
//!
//! Results on Babelfish do not show how SQL Server locks. Babelfish has no locks on ranges and
//! indexes, no lock escalation and no hints. So no call skips a locked row there, and claims run
//! one after the other (see `Words`).

#[allow(dead_code, reason = "each test binary uses its part of this module")]
mod server;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{
    Application, BoxError, Fixture, OpenTransaction, Power, Residue, Restart, Suite, TestClock,
    TestDatabase, Transactions, Vandal,
};
use ratchet_core::SharedStore;
use ratchet_core::store::{AppConnection, Checked};
use ratchet_store_sqlserver::{SqlServerStore, Transaction};

use crate::server::Schema;

fn main() -> ExitCode {
    // Fewer histories than by default, because each of their steps takes many round trips, and
    // Babelfish parses each statement again.
    let powers = [Power::STORE, &[Power::Transactions]].concat();
    let suite = Suite::new("sqlserver", &powers).histories(30);
    let suite = suite.attach(|schema| async move {
        let url = server::SERVER.url().ok_or("the server is not set")?;
        let store = server::builder(&url, &schema).connect().await?;
        Ok(Arc::new(store) as SharedStore)
    });
    suite.run(async {
        server::SERVER
            .provision(|url| async move { Ok(SqlServerFixture(Schema::create(&url).await?)) })
    })
}

struct SqlServerFixture(Schema);

impl Restart for SqlServerFixture {}

#[async_trait]
impl Fixture for SqlServerFixture {
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
impl Transactions for SqlServerFixture {
    async fn open(&self) -> Result<(SharedStore, Box<dyn Application>), BoxError> {
        let builder = self.0.builder().clock_table("test_clock");
        let store = builder.connect().await?;
        Ok((Arc::new(store.clone()), Box::new(App(store))))
    }
}

/// An application that begins transactions through the store.
struct App(Checked<SqlServerStore>);

#[async_trait]
impl Application for App {
    async fn begin(&self) -> Result<Box<dyn OpenTransaction>, BoxError> {
        Ok(Box::new(Begun(self.0.begin().await?)))
    }
}

struct Begun(Transaction);

#[async_trait]
impl OpenTransaction for Begun {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Exclusive(&mut self.0)
    }

    async fn commit(self: Box<Self>) -> Result<(), BoxError> {
        Ok(self.0.commit().await?)
    }

    async fn roll_back(self: Box<Self>) -> Result<(), BoxError> {
        Ok(self.0.rollback().await?)
    }
}
