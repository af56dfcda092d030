//! Ratchet on MySQL and MariaDB.

pub use ratchet_store_mysql::*;

#[cfg(feature = "config")]
use {
    crate::{ConnectError, configured},
    ratchet_config::StoreConfig,
};

/// Returns a MySQL builder with the settings of a configuration.
///
/// # Errors
/// [`ConnectError::NoUrl`] if the configuration has no URL.
#[cfg(feature = "config")]
pub fn configured(config: &StoreConfig) -> Result<Builder, ConnectError> {
    let builder = MysqlStore::builder(configured::url(config)?);
    Ok(with_settings(builder, config))
}

/// Returns a MySQL builder with the settings of a configuration, for the application's own pool.
/// The configuration then needs no URL, and must not set `max_connections`.
///
/// ```no_run
/// use ratchet::mysql::sqlx::MySqlPool;
///
/// # async fn example(pool: MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
/// let config = ratchet::config::Config::load(None)?;
/// let store = ratchet::mysql::configured_on_pool(&config.store, pool).connect().await?;
/// # let _ = store;
/// # Ok(()) }
/// ```
#[cfg(feature = "config")]
pub fn configured_on_pool(config: &StoreConfig, pool: sqlx::MySqlPool) -> Builder {
    with_settings(MysqlStore::pool_builder(pool), config)
}

#[cfg(feature = "config")]
fn with_settings(builder: Builder, config: &StoreConfig) -> Builder {
    let own = &config.mysql;
    let mut builder = builder.migrate(config.migrate);
    set!(builder, config, deadline, max_connections, application_name);
    set!(builder, own, schema, acquire_timeout, max_lifetime);
    builder
}

/// Converts a migration step to a script for the database's command-line tool. The server commits
/// after each statement, so the script has no transaction. It can run again if it was interrupted.
#[cfg(feature = "config")]
pub(crate) fn step(migration: Migration) -> configured::Migration {
    let (version, name, sql) = (migration.version, migration.name, migration.sql);
    configured::Migration {
        version,
        name: name.to_owned(),
        prelude: "",
        script: format!("-- {version}: {name}\n{sql};\n\n"),
    }
}
