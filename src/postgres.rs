//! Ratchet on PostgreSQL.

pub use ratchet_store_postgres::*;

#[cfg(feature = "config")]
use {
    crate::{ConnectError, configured},
    ratchet_config::StoreConfig,
};

/// Returns a PostgreSQL builder with the settings of a configuration.
///
/// # Errors
/// [`ConnectError::NoUrl`] if the configuration has no URL.
#[cfg(feature = "config")]
pub fn configured(config: &StoreConfig) -> Result<Builder, ConnectError> {
    let builder = PostgresStore::builder(configured::url(config)?);
    Ok(with_settings(builder, config))
}

/// Returns a PostgreSQL builder with the settings of a configuration, for the application's own
/// pool. The configuration then needs no URL, and must not set `max_connections`.
///
/// ```no_run
/// use ratchet::postgres::sqlx::PgPool;
///
/// # async fn example(pool: PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let config = ratchet::config::Config::load(None)?;
/// let store = ratchet::postgres::configured_on_pool(&config.store, pool).connect().await?;
/// # let _ = store;
/// # Ok(()) }
/// ```
#[cfg(feature = "config")]
pub fn configured_on_pool(config: &StoreConfig, pool: sqlx::PgPool) -> Builder {
    with_settings(PostgresStore::pool_builder(pool), config)
}

#[cfg(feature = "config")]
fn with_settings(builder: Builder, config: &StoreConfig) -> Builder {
    let own = &config.postgres;
    let mut builder = builder.migrate(config.migrate);
    set!(builder, config, deadline, max_connections, application_name);
    set!(builder, own, schema, acquire_timeout, max_lifetime);
    set!(builder, own, wakeups, session_locks);
    match &own.direct_url {
        Some(direct) => builder.direct(direct.expose()),
        None => builder,
    }
}

/// Converts a migration step to a script for the database's command-line tool.
#[cfg(feature = "config")]
pub(crate) fn step(migration: Migration) -> configured::Migration {
    let (version, name, sql) = (migration.version, migration.name, migration.sql);
    configured::Migration {
        version,
        name: name.to_owned(),
        prelude: "\\set ON_ERROR_STOP on\n",
        script: format!("-- {version}: {name}\nBEGIN;\n{sql}COMMIT;\n\n"),
    }
}
