//! The server that the tests use, and a schema of its own for each test.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, TestClock, Vandal};
use ratchet_core::{JobId, Name, time};
use ratchet_store_sqlserver::{Builder, SqlServerStore, Transaction};
use tokio::sync::Mutex;

/// Why tests that need a server cannot run.
pub(crate) const MISSING: &str = "RATCHET_TEST_SQLSERVER_URL is not set";

/// The server, as somebody who may create schemas in its database.
pub(crate) fn url() -> Option<String> {
    std::env::var("RATCHET_TEST_SQLSERVER_URL").ok()
}

/// A schema for one test.
pub(crate) struct Schema {
    pub(crate) url: String,
    pub(crate) name: String,
    /// Through which tests run statements of their own: its schema has nothing of the test in it.
    hand: Mutex<Hand>,
}

/// A connection of the driver's.
struct Hand {
    client: tiberius::Client<tokio_util::compat::Compat<tokio::net::TcpStream>>,
}
