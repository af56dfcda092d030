//! Ratchet on MongoDB.

pub use ratchet_store_mongo::*;

#[cfg(feature = "config")]
use {
    crate::{ConnectError, configured},
    ratchet_config::StoreConfig,
};

/// Makes MongoDB's builder with the settings of a configuration.
///
/// # Errors
/// [`ConnectError::NoUrl`].
#[cfg(feature = "config")]
pub fn configured(config: &StoreConfig) -> Result<Builder, ConnectError> {
    let own = &config.mongo;
    let mut builder = MongoStore::builder(configured::url(config)?).create(config.migrate);
    set!(builder, config, deadline, max_connections, application_name);
    set!(builder, own, database, prefix, journaled, wakeups);
    Ok(builder)
}

/// Returns a step as the tool of the database takes it.
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
