//! The databases on which the test cases run.

use std::env;
use std::sync::Arc;

use anyhow::{Context, Result};
use ratchet_core::{JobId, SharedStore};
use ratchet_store_postgres::PostgresStore;
use ratchet_store_sqlite::SqliteStore;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tempfile::TempDir;

const POSTGRES: &str = "RATCHET_TEST_POSTGRES_URL";

/// A kind of database.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    name: &'static str,
    /// The environment variable that contains the URL of the server, and its value if it is set.
    /// `None` if the store needs no server.
    server: Option<(&'static str, Option<String>)>,
}

impl Store {
    pub(crate) const fn sqlite() -> Self {
        Self {
            name: "sqlite",
            server: None,
        }
    }

    pub(crate) fn postgres() -> Self {
        Self {
            name: "postgres",
            server: Some((POSTGRES, env::var(POSTGRES).ok())),
        }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the reason why the store is not available, or `None` if it is available.
    pub(crate) fn missing(&self) -> Option<String> {
        match &self.server {
            Some((variable, None)) => Some(format!("{variable} is not set")),
            _ => None,
        }
    }

    /// Creates an empty database.
    pub(crate) async fn create(&self) -> Result<Database> {
        match &self.server {
            None => {
                let folder = tempfile::tempdir()?;
                let file = folder.path().join("jobs.db");
                let url = format!("sqlite://{}", file.display());
                let store = Arc::new(SqliteStore::connect(&url).await?);
                Ok(Database {
                    store,
                    storage: Storage::Folder(folder),
                })
            }
            Some((variable, url)) => {
                let url = url
                    .clone()
                    .with_context(|| format!("{variable} is not set"))?;
                let schema = format!("dashboard_{}", JobId::new());
                let store = PostgresStore::builder(&url)
                    .schema(&schema)
                    .max_connections(4);
                let store = Arc::new(store.connect().await?);
                Ok(Database {
                    store,
                    storage: Storage::Schema { url, schema },
                })
            }
        }
    }
}

/// The database of a case.
pub(crate) struct Database {
    pub(crate) store: SharedStore,
    storage: Storage,
}

enum Storage {
    Folder(TempDir),
    Schema { url: String, schema: String },
}

impl Database {
    /// Deletes the database.
    pub(crate) async fn take_away(self) -> Result<()> {
        drop(self.store);
        match self.storage {
            Storage::Folder(folder) => folder.close()?,
            Storage::Schema { url, schema } => {
                let mut connection = PgConnection::connect(&url).await?;
                let drop = format!("DROP SCHEMA \"{schema}\" CASCADE");
                connection.execute(AssertSqlSafe(drop)).await?;
            }
        }
        Ok(())
    }
}
