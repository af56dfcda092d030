//! Ratchet on MongoDB.

pub use ratchet_store_mongo::*;

#[cfg(feature = "config")]
use {
    crate::{ConnectError, configured},
    ratchet_config::StoreConfig,
};

/// Returns a MongoDB builder with the settings of a configuration.
///
/// # Errors
/// [`ConnectError::NoUrl`] if the configuration has no URL.
#[cfg(feature = "config")]
pub fn configured(config: &StoreConfig) -> Result<Builder, ConnectError> {
    let builder = MongoStore::builder(configured::url(config)?);
    Ok(with_settings(builder, config))
}

/// Returns a MongoDB builder with the settings of a configuration, for a database of the
/// application's own client. The configuration then needs no URL.
///
/// ```no_run
/// use ratchet::mongo::mongodb::Database;
///
/// # async fn example(database: Database) -> Result<(), Box<dyn std::error::Error>> {
/// let config = ratchet::config::Config::load(None)?;
/// let store = ratchet::mongo::configured_on_database(&config.store, database);
/// let store = store.connect().await?;
/// # let _ = store;
/// # Ok(()) }
/// ```
#[cfg(feature = "config")]
pub fn configured_on_database(config: &StoreConfig, database: mongodb::Database) -> Builder {
    with_settings(MongoStore::database_builder(database), config)
}

#[cfg(feature = "config")]
fn with_settings(builder: Builder, config: &StoreConfig) -> Builder {
    let own = &config.mongo;
    let mut builder = builder.create(config.migrate);
    set!(builder, config, deadline, max_connections, application_name);
    set!(builder, own, database, prefix, journaled, wakeups);
    builder
}

/// Converts a migration step to a script for the database's command-line tool.
#[cfg(feature = "config")]
pub(crate) fn step(migration: Migration) -> configured::Migration {
    let (version, name, script) = (migration.version, migration.name, migration.script);
    configured::Migration {
        version,
        name: name.to_owned(),
        // The script itself stops at an error.
        prelude: "",
        script: format!("// {version}: {name}\n{script}\n"),
    }
}
