//! Ratchet on SQL Server.

pub use ratchet_store_sqlserver::*;

#[cfg(feature = "config")]
use {
    crate::{ConnectError, configured},
    ratchet_config::StoreConfig,
};

/// Returns a SQL Server builder with the settings of a configuration.
///
/// # Errors
/// [`ConnectError::NoUrl`] if the configuration has no URL.
#[cfg(feature = "config")]
pub fn configured(config: &StoreConfig) -> Result<Builder, ConnectError> {
    use ratchet_config::Encryption as Level;

    let own = &config.sqlserver;
    let mut builder = SqlServerStore::builder(configured::url(config)?).migrate(config.migrate);
    set!(builder, config, deadline, max_connections, application_name);
    set!(builder, own, schema, acquire_timeout, max_lifetime);
    set!(builder, own, locking_reads);
    if let Some(level) = own.encryption {
        builder = builder.encryption(match level {
            Level::Strict => Encryption::Strict,
            Level::Login => Encryption::Login,
            Level::Off => Encryption::Off,
            _ => Encryption::Required,
        });
    }
    if own.trust_any_certificate == Some(true) {
        builder = builder.trust_any_certificate();
    }
    Ok(match &own.trust_authority {
        Some(path) => builder.trust_authority(path.display().to_string()),
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
        prelude: ":on error exit\n",
        script: format!(
            "-- {version}: {name}\nSET XACT_ABORT ON;\nBEGIN TRANSACTION;\n{sql}\
             COMMIT TRANSACTION;\nGO\n\n"
        ),
    }
}
