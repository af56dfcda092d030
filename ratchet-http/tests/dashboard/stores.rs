//! The databases that the cases run on.

use std::env;
use std::sync::Arc;

use anyhow::{Result, bail};
use ratchet_core::SharedStore;
use ratchet_store_sqlite::SqliteStore;
use tempfile::TempDir;

const POSTGRES: &str = "RATCHET_TEST_POSTGRES_URL";

/// A kind of database.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    name: &'static str,
    /// The server and the variable that names it; none: it needs no server.
    server: Option<(&'static str, Option<String>)>,
}

impl Store {
    pub(crate) const fn sqlite() -> Self {
        Self { name: "sqlite", server: None }
    }

    pub(crate) fn postgres() -> Self {
        Self { name: "postgres", server: Some((POSTGRES, env::var(POSTGRES).ok())) }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Why there is none.
    pub(crate) fn missing(&self) -> Option<String> {
        match &self.server {
            Some((variable, None)) => Some(format!("{variable} is not set")),
            _ => None,
        }
    }

    /// A new, empty database.
    pub(crate) async fn create(&self) -> Result<Database> {
        match &self.server {
            None => {
                let folder = tempfile::tempdir()?;
                let file = folder.path().join("jobs.db");
                let url = format!("sqlite://{}", file.display());
                let store = Arc::new(SqliteStore::connect(&url).await?);
                Ok(Database { store, place: Place::Folder(folder) })
            }
            Some((variable, _)) => bail!("{variable} is not supported yet"),
        }
    }
}

/// A database of a case.
pub(crate) struct Database {
    pub(crate) store: SharedStore,
    place: Place,
}

enum Place {
    Folder(TempDir),
}

impl Database {
    /// Takes it away.
    pub(crate) async fn take_away(self) -> Result<()> {
        drop(self.store);
        match self.place {
            Place::Folder(folder) => folder.close()?,
        }
        Ok(())
    }
}
