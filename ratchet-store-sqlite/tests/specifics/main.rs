//! Tests of what only SQLite has: files, locks, group commit, transactions of the application.
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

mod archive;
mod claims;
mod diagnostics;
mod fair;
mod files;
mod groups;
mod leadership;
mod plans;
mod routes;
mod schema;
mod signals;
mod transactions;
mod wakeups;

use std::path::PathBuf;
use std::time::Duration;

use ratchet_core::StoreError;
use ratchet_core::store::Checked;
use ratchet_store_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;

/// Returns the text of a statement.
pub(crate) fn statement(file: &str, name: &str) -> String {
    ratchet_sql::render(name, ratchet_sql::statement(file, name))
}

/// A temporary directory with a database.
#[derive(Debug)]
pub(crate) struct TempDatabase(TempDir);

impl TempDatabase {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("jobs.db")
    }

    /// Opens another handle on the database, as another process would.
    pub(crate) async fn open(&self) -> Checked<SqliteStore> {
        SqliteStore::builder(self.path()).connect().await.unwrap()
    }

    /// Opens a handle that waits only briefly for a locked file.
    pub(crate) async fn open_impatient(&self) -> Checked<SqliteStore> {
        let builder = SqliteStore::builder(self.path()).busy_timeout(Duration::from_millis(200));
        builder.connect().await.unwrap()
    }

    /// Opens the database as another program would.
    pub(crate) fn sql(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection
    }

    /// Returns the error of opening the database, which must fail.
    pub(crate) async fn refusal(&self) -> StoreError {
        let builder = SqliteStore::builder(self.path()).busy_timeout(Duration::from_millis(200));
        builder.connect().await.unwrap_err()
    }
}

/// Makes every insert of a critical job fail in the database.
pub(crate) fn refuse_critical_jobs(database: &Connection) {
    database
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON ratchet_jobs WHEN new.priority = 4
             BEGIN SELECT raise(ABORT, 'refused'); END",
        )
        .unwrap();
}
