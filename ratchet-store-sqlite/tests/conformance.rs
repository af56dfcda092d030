//! The conformance suite on SQLite: one file per case, with several handles on it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_conformance::{
    Application, BoxError, Fixture, OpenTransaction, Power, Provision, Residue, Restart, Suite,
    TestClock, Transactions, Vandal,
};
use ratchet_core::memory::ManualClock;
use ratchet_core::store::AppConnection;
use ratchet_core::{JobId, Name, SharedStore, time};
use ratchet_store_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;

fn main() -> ExitCode {
    let attach = |path: String| async move {
        Ok(Arc::new(SqliteStore::builder(path).connect().await?) as SharedStore)
    };
    let more = [Power::FairKeys, Power::FairLimits, Power::Transactions];
    let powers = [Power::STORE, &more].concat();
    Suite::new("sqlite", &powers)
        .attach(attach)
        .run(async { Provision::ready(|| async { SqliteFixture::new() }) })
}

struct SqliteFixture {
    directory: TempDir,
    clock: ManualClock,
}

impl SqliteFixture {
    fn new() -> Result<Self, BoxError> {
        Ok(Self {
            directory: TempDir::new()?,
            clock: ManualClock::new(time::from_millis(1_790_000_000_123)),
        })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("jobs.db")
    }
}

impl Restart for SqliteFixture {}

#[async_trait]
impl Fixture for SqliteFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let builder = SqliteStore::builder(self.path()).manual_clock(self.clock.clone());
        // So that the queues of most cases and histories share their routes.
        let builder = builder.own_queues(2);
        Ok(Arc::new(builder.connect().await?))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(&self.clock)
    }

    fn vandal(&self) -> Option<&dyn Vandal> {
        Some(self)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn residue(&self) -> Option<&dyn Residue> {
        Some(self)
    }

    fn address(&self) -> Option<String> {
        Some(self.path().display().to_string())
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }
}

#[async_trait]
impl Residue for SqliteFixture {
    async fn rows_of_jobs(&self) -> Result<u64, BoxError> {
        let database = Connection::open(self.path())?;
        database.busy_timeout(std::time::Duration::from_secs(5))?;
        let mut rows = 0;
        for table in ratchet_sql::JOB_TABLES {
            let count = format!("SELECT count(*) FROM ratchet_{table}");
            rows += database.query_row(&count, [], |row| row.get::<_, i64>(0))?;
        }
        Ok(rows.try_into()?)
    }
}

#[async_trait]
impl Vandal for SqliteFixture {
    async fn spoil(&self, job: JobId) -> Result<(), BoxError> {
        let database = Connection::open(self.path())?;
        database.busy_timeout(std::time::Duration::from_secs(5))?;
        database.execute(
            "UPDATE ratchet_job_data SET retry = CAST(x'ff' AS TEXT)
             WHERE id = (SELECT data FROM ratchet_jobs WHERE id = ?1)",
            [job.as_bytes()],
        )?;
        Ok(())
    }

    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        let database = Connection::open(self.path())?;
        database.busy_timeout(std::time::Duration::from_secs(5))?;
        let spoil = "UPDATE ratchet_jobs SET route = 4711 WHERE id = ?1";
        database.execute(spoil, [job.as_bytes()])?;
        Ok(())
    }

    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        let database = Connection::open(self.path())?;
        database.busy_timeout(std::time::Duration::from_secs(5))?;
        database.execute(
            "UPDATE ratchet_recurring SET definition = CAST(x'ff' AS TEXT) WHERE name = ?1",
            [name.as_str()],
        )?;
        Ok(())
    }

    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError> {
        let database = Connection::open(self.path())?;
        database.busy_timeout(std::time::Duration::from_secs(5))?;
        database.execute(
            "INSERT INTO ratchet_locks (name, owner, fence, expires_at)
             SELECT name || char(1), owner, fence, expires_at FROM ratchet_locks WHERE name = ?1",
            [name.as_str()],
        )?;
        database.execute(
            "UPDATE ratchet_locks SET owner = '' WHERE name = ?1",
            [name.as_str()],
        )?;
        Ok(())
    }

    async fn lose_routes(&self) -> Result<(), BoxError> {
        let database = Connection::open(self.path())?;
        database.busy_timeout(std::time::Duration::from_secs(5))?;
        for table in ratchet_sql::JOB_TABLES.iter().chain(&["lanes"]) {
            database.execute(&format!("DELETE FROM ratchet_{table}"), [])?;
        }
        database.execute("DELETE FROM ratchet_routes WHERE id > 1", [])?;
        Ok(())
    }

    async fn spoil_schema(&self) -> Result<(), BoxError> {
        let database = Connection::open(self.path())?;
        database.busy_timeout(std::time::Duration::from_secs(5))?;
        database.execute("DROP TABLE ratchet_migrations", [])?;
        Ok(())
    }
}

#[async_trait]
impl Transactions for SqliteFixture {
    async fn open(&self) -> Result<(SharedStore, Box<dyn Application>), BoxError> {
        let path = self.path();
        Ok((Fixture::open(self).await?, Box::new(App { path })))
    }
}

/// An application that uses the same file as the store.
struct App {
    path: PathBuf,
}

#[async_trait]
impl Application for App {
    async fn begin(&self) -> Result<Box<dyn OpenTransaction>, BoxError> {
        let connection = Connection::open(&self.path)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        Ok(Box::new(Begun(connection)))
    }
}

struct Begun(Connection);

#[async_trait]
impl OpenTransaction for Begun {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Shared(&self.0)
    }

    async fn commit(self: Box<Self>) -> Result<(), BoxError> {
        Ok(self.0.execute_batch("COMMIT")?)
    }

    async fn roll_back(self: Box<Self>) -> Result<(), BoxError> {
        Ok(self.0.execute_batch("ROLLBACK")?)
    }
}
