//! Ratchet on SQLite.
//!
//! [`Client::enqueue_in`](crate::Client::enqueue_in) takes a transaction of [`rusqlite`], on one of
//! the application's connections to the same file. This also works if the store is a
//! [`SharedStore`](crate::SharedStore). A program that passes a transaction of sqlx does not
//! compile.
//!
//! A task that may move between threads cannot hold a rusqlite transaction across an `await`: open
//! the transaction, enqueue and commit inside `tokio::task::spawn_blocking`. There,
//! [`SqliteStore::enqueue_in_blocking`] returns the answers directly, not a future.

pub use ratchet_store_sqlite::*;

#[cfg(feature = "config")]
use {
    crate::{ConnectError, configured},
    ratchet_config::StoreConfig,
};

/// Returns a SQLite builder with the settings of a configuration.
///
/// # Errors
/// [`ConnectError::NoUrl`] if the configuration has no URL.
#[cfg(feature = "config")]
pub fn configured(config: &StoreConfig) -> Result<Builder, ConnectError> {
    let own = &config.sqlite;
    let mut builder = SqliteStore::builder(configured::url(config)?).migrate(config.migrate);
    set!(builder, config, deadline);
    set!(builder, own, busy_timeout, max_pages);
    Ok(match own.synchronous {
        Some(ratchet_config::Synchronous::Normal) => builder.synchronous(Synchronous::Normal),
        Some(_) => builder.synchronous(Synchronous::Full),
        None => builder,
    })
}

/// Converts a migration step to a script for the database's command-line tool.
#[cfg(feature = "config")]
pub(crate) fn step(migration: Migration) -> configured::Migration {
    let (version, name, sql) = (migration.version, migration.name, migration.sql);
    configured::Migration {
        version,
        name: name.to_owned(),
        prelude: ".bail on\n.timeout 30000\n",
        script: format!("-- {version}: {name}\nBEGIN IMMEDIATE;\n{sql}COMMIT;\n\n"),
    }
}
