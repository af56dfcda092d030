use std::sync::Arc;

use ratchet_core::{MemoryStore, SharedStore, StoreError};

/// Connects to the database that the URL names; its scheme chooses the backend.
///
/// | scheme | backend | feature |
/// |---|---|---|
/// | `sqlite://path/to/file.db` | SQLite, one file, any number of processes on one host | `sqlite` |
/// | `postgres://user@host/database` | PostgreSQL, one schema, any number of hosts | `postgres` |
/// | `sqlserver://user:password@host/database`, `mssql://…` | SQL Server, one schema, any number of hosts | `sqlserver` |
/// | `mongodb://host/database`, `mongodb+srv://…` | MongoDB, one database, any number of hosts | `mongo` |
/// | `memory:` | the in-memory store: nothing is durable, for tests | always there |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ratchet::ConnectError> {
/// let store = ratchet::connect("memory:").await?;
/// assert_eq!(store.info().backend, "memory");
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ConnectError::UnknownScheme`], [`ConnectError::MissingFeature`] if the program was built
/// without the backend, or what the backend says.
///
/// # Cancel safety
/// Dropped, the connection is given up; a migration that had begun has taken full effect or none.
pub async fn connect(url: &str) -> Result<SharedStore, ConnectError> {
    match scheme(url) {
        "memory" => Ok(Arc::new(MemoryStore::new())),
        "sqlite" => sqlite(url).await,
        "postgres" | "postgresql" => postgres(url).await,
        "sqlserver" | "mssql" => sqlserver(url).await,
        "mongodb" | "mongodb+srv" => mongo(url).await,
        _ => Err(missing(url)),
    }
}

/// Why nothing serves the scheme of a URL.
pub(crate) fn missing(url: &str) -> ConnectError {
    let (scheme, feature) = match scheme(url) {
        "sqlite" => ("sqlite", "sqlite"),
        "postgres" | "postgresql" => ("postgres", "postgres"),
        "sqlserver" | "mssql" => ("sqlserver", "sqlserver"),
        "mongodb" | "mongodb+srv" => ("mongodb", "mongo"),
        other => return ConnectError::UnknownScheme(other.to_owned()),
    };
    ConnectError::MissingFeature { scheme, feature }
}

/// What stands before the first colon, if that can be a scheme; a connection string of another form
/// may hold a password and must not be told to anybody.
pub(crate) fn scheme(url: &str) -> &str {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    match url.split_once(':') {
        Some((scheme, _)) if scheme.len() <= 32 && scheme.chars().all(allowed) => scheme,
        _ => "",
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(url: &str) -> Result<SharedStore, ConnectError> {
    let store = ratchet_store_sqlite::SqliteStore::connect(url).await?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "sqlite"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn sqlite(url: &str) -> Result<SharedStore, ConnectError> {
    Err(missing(url))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<SharedStore, ConnectError> {
    let store = ratchet_store_postgres::PostgresStore::connect(url).await?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "postgres"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn postgres(url: &str) -> Result<SharedStore, ConnectError> {
    Err(missing(url))
}

#[cfg(feature = "sqlserver")]
async fn sqlserver(url: &str) -> Result<SharedStore, ConnectError> {
    let store = ratchet_store_sqlserver::SqlServerStore::connect(url).await?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "sqlserver"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn sqlserver(url: &str) -> Result<SharedStore, ConnectError> {
    Err(missing(url))
}

#[cfg(feature = "mongo")]
async fn mongo(url: &str) -> Result<SharedStore, ConnectError> {
    let store = ratchet_store_mongo::MongoStore::connect(url).await?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "mongo"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn mongo(url: &str) -> Result<SharedStore, ConnectError> {
    Err(missing(url))
}

/// Why [`connect`] gave no store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No backend has this scheme.
    #[error(
        "no backend is known for URLs that begin with `{0}:`; known are sqlite, postgres, \
         sqlserver, mssql, mongodb, mongodb+srv and memory"
    )]
    UnknownScheme(String),
    /// The backend exists but is not compiled in.
    #[error("`{scheme}:` URLs need ratchet's Cargo feature `{feature}`, which is not enabled")]
    MissingFeature {
        /// The scheme of the URL.
        scheme: &'static str,
        /// The feature to enable.
        feature: &'static str,
    },
    /// The configuration names no database.
    #[cfg(feature = "config")]
    #[error("store.url is not set, nor is store.url_file")]
    NoUrl,
    /// The backend refuses a setting of the configuration.
    #[cfg(feature = "config")]
    #[error("{key}: {source}")]
    Setting {
        /// The key, as `store.max_connections`.
        key: String,
        /// What the backend says.
        source: StoreError,
    },
    /// The backend could not connect.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unknown_schemes_are_named_and_nothing_else_of_the_url() {
        let error = connect("mysql://bob:secret@db/jobs").await.unwrap_err();
        assert!(error.to_string().contains("`mysql:`"), "{error}");
        for url in ["Server=db;Password=secret", "", "p:w@secret", "a b:secret"] {
            let error = connect(url).await.unwrap_err();
            assert!(matches!(error, ConnectError::UnknownScheme(_)), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[cfg(not(feature = "sqlite"))]
    #[tokio::test]
    async fn a_missing_feature_is_named() {
        let error = connect("sqlite://x.db").await.unwrap_err();
        assert!(
            error.to_string().contains("Cargo feature `sqlite`"),
            "{error}"
        );
    }
}
