//! What brings the schema of a configured database up to date, to be read or run by hand.

use ratchet_config::StoreConfig;

use super::explained;
use crate::connect::{ConnectError, missing, scheme};

/// A step of Ratchet's schema, as the tools of the database take it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Its number; they begin at 1.
    pub version: u32,
    /// What it is called.
    pub name: String,
    /// What the tool must be told before the first script: to stop at an error instead of going on,
    /// and committing, behind it.
    pub prelude: &'static str,
    /// What to run with `sqlite3`, `psql`, `sqlcmd` or `mongosh`: one transaction, where there are
    /// such.
    pub script: String,
}

#[derive(Clone, Copy)]
enum Which {
    All,
    Pending,
}

/// Every step, in order: what brings an empty database there. The database is not looked at.
///
/// # Errors
/// [`ConnectError::NoUrl`], or whatever is wrong with the settings.
///
/// # Cancel safety
/// Nothing is changed.
pub async fn migrations(config: &StoreConfig) -> Result<Vec<Migration>, ConnectError> {
    list(config, Which::All).await
}

/// The steps that connecting with `store.migrate` would apply to this database, in order. Nothing is
/// changed.
///
/// # Errors
/// As for [`connect_configured`](crate::connect_configured).
///
/// # Cancel safety
/// Nothing is changed.
pub async fn pending_migrations(config: &StoreConfig) -> Result<Vec<Migration>, ConnectError> {
    list(config, Which::Pending).await
}

#[cfg_attr(
    not(any(
        feature = "sqlite",
        feature = "postgres",
        feature = "sqlserver",
        feature = "mongo"
    )),
    expect(unused_variables, clippy::unused_async, reason = "as with a backend")
)]
async fn list(config: &StoreConfig, which: Which) -> Result<Vec<Migration>, ConnectError> {
    let url = config.url.as_ref().ok_or(ConnectError::NoUrl)?.expose();
    let listed = match scheme(url) {
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let builder = super::sqlite(config)?;
            match which {
                Which::All => Ok(builder.migrations()),
                Which::Pending => builder.pending_migrations().await,
            }
            .map(all)
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let builder = super::postgres(config)?;
            match which {
                Which::All => Ok(builder.migrations()),
                Which::Pending => builder.pending_migrations().await,
            }
            .map(all)
        }
        #[cfg(feature = "sqlserver")]
        "sqlserver" | "mssql" => {
            let builder = super::sqlserver(config)?;
            match which {
                Which::All => Ok(builder.migrations()),
                Which::Pending => builder.pending_migrations().await,
            }
            .map(all)
        }
        #[cfg(feature = "mongo")]
        "mongodb" | "mongodb+srv" => {
            let builder = super::mongo(config)?;
            match which {
                Which::All => Ok(builder.migrations()),
                Which::Pending => builder.pending_migrations().await,
            }
            .map(all)
        }
        // It has no schema.
        "memory" => Ok(Vec::new()),
        _ => return Err(missing(url)),
    };
    listed.map_err(|error| explained(config, error))
}

#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "sqlserver",
    feature = "mongo"
))]
fn all<M: Into<Migration>>(migrations: Vec<M>) -> Vec<Migration> {
    migrations.into_iter().map(Into::into).collect()
}

#[cfg(feature = "sqlite")]
impl From<crate::sqlite::Migration> for Migration {
    fn from(migration: crate::sqlite::Migration) -> Self {
        let crate::sqlite::Migration { version, name, .. } = migration;
        let sql = migration.script();
        Self {
            version,
            name: name.to_owned(),
            prelude: ".bail on\n.timeout 30000\n",
            script: format!("-- {version}: {name}\nBEGIN IMMEDIATE;\n{sql}COMMIT;\n\n"),
        }
    }
}

#[cfg(feature = "postgres")]
impl From<crate::postgres::Migration> for Migration {
    fn from(migration: crate::postgres::Migration) -> Self {
        let crate::postgres::Migration {
            version, name, sql, ..
        } = migration;
        Self {
            version,
            name: name.to_owned(),
            prelude: "\\set ON_ERROR_STOP on\n",
            script: format!("-- {version}: {name}\nBEGIN;\n{sql}COMMIT;\n\n"),
        }
    }
}

#[cfg(feature = "sqlserver")]
impl From<crate::sqlserver::Migration> for Migration {
    fn from(migration: crate::sqlserver::Migration) -> Self {
        let crate::sqlserver::Migration {
            version, name, sql, ..
        } = migration;
        Self {
            version,
            name: name.to_owned(),
            prelude: ":on error exit\n",
            script: format!(
                "-- {version}: {name}\nSET XACT_ABORT ON;\nBEGIN TRANSACTION;\n{sql}\
                 COMMIT TRANSACTION;\nGO\n\n"
            ),
        }
    }
}

#[cfg(feature = "mongo")]
impl From<crate::mongo::Migration> for Migration {
    fn from(migration: crate::mongo::Migration) -> Self {
        let crate::mongo::Migration {
            version,
            name,
            script,
            ..
        } = migration;
        Self {
            version,
            name: name.to_owned(),
            // The scripts see to it themselves.
            prelude: "",
            script: format!("// {version}: {name}\n{script}\n"),
        }
    }
}
