//! The builders of the backends, with what is configured.

#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "sqlserver",
    feature = "mongo"
))]
use {crate::connect::ConnectError, ratchet_config::StoreConfig};

/// Calls a setter of the builder for each value that is set.
#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "sqlserver",
    feature = "mongo"
))]
macro_rules! set {
    ($builder:ident, $section:expr, $($name:ident),*) => {
        $(if let Some(value) = $section.$name.clone() {
            $builder = $builder.$name(value);
        })*
    };
}

/// The URL of a configuration.
#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "sqlserver",
    feature = "mongo"
))]
fn url(config: &StoreConfig) -> Result<&str, ConnectError> {
    let url = config.url.as_ref().ok_or(ConnectError::NoUrl)?;
    Ok(url.expose())
}

/// SQLite's builder with what is configured.
///
/// # Errors
/// [`ConnectError::NoUrl`].
#[cfg(feature = "sqlite")]
pub fn sqlite(config: &StoreConfig) -> Result<crate::sqlite::Builder, ConnectError> {
    use ratchet_config::Synchronous;

    let own = &config.sqlite;
    let mut builder = crate::sqlite::SqliteStore::builder(url(config)?).migrate(config.migrate);
    set!(builder, config, deadline);
    set!(builder, own, busy_timeout, max_pages);
    Ok(match own.synchronous {
        Some(Synchronous::Normal) => builder.synchronous(crate::sqlite::Synchronous::Normal),
        Some(_) => builder.synchronous(crate::sqlite::Synchronous::Full),
        None => builder,
    })
}

/// PostgreSQL's builder with what is configured.
///
/// # Errors
/// [`ConnectError::NoUrl`].
#[cfg(feature = "postgres")]
pub fn postgres(config: &StoreConfig) -> Result<crate::postgres::Builder, ConnectError> {
    let own = &config.postgres;
    let mut builder = crate::postgres::PostgresStore::builder(url(config)?).migrate(config.migrate);
    set!(builder, config, deadline, max_connections, application_name);
    set!(
        builder,
        own,
        schema,
        acquire_timeout,
        max_lifetime,
        wakeups,
        session_locks
    );
    Ok(match &own.direct_url {
        Some(direct) => builder.direct(direct.expose()),
        None => builder,
    })
}

/// SQL Server's builder with what is configured.
///
/// # Errors
/// [`ConnectError::NoUrl`].
#[cfg(feature = "sqlserver")]
pub fn sqlserver(config: &StoreConfig) -> Result<crate::sqlserver::Builder, ConnectError> {
    use ratchet_config::Encryption as Configured;

    use crate::sqlserver::Encryption;

    let own = &config.sqlserver;
    let mut builder =
        crate::sqlserver::SqlServerStore::builder(url(config)?).migrate(config.migrate);
    set!(builder, config, deadline, max_connections, application_name);
    set!(
        builder,
        own,
        schema,
        acquire_timeout,
        max_lifetime,
        locking_reads
    );
    if let Some(encryption) = own.encryption {
        builder = builder.encryption(match encryption {
            Configured::Strict => Encryption::Strict,
            Configured::Login => Encryption::Login,
            Configured::Off => Encryption::Off,
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

/// MongoDB's builder with what is configured.
///
/// # Errors
/// [`ConnectError::NoUrl`].
#[cfg(feature = "mongo")]
pub fn mongo(config: &StoreConfig) -> Result<crate::mongo::Builder, ConnectError> {
    let own = &config.mongo;
    let mut builder = crate::mongo::MongoStore::builder(url(config)?).create(config.migrate);
    set!(builder, config, deadline, max_connections, application_name);
    set!(builder, own, database, prefix, journaled, wakeups);
    Ok(builder)
}
