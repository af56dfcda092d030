use std::sync::Arc;

use ratchet_core::{MemoryStore, SharedStore, StoreError};

/// Connects to the database that the URL names; its scheme chooses the backend.
///
/// | scheme | backend | feature |
/// |---|---|---|
/// | `sqlite://path/to/file.db` | SQLite, one file, any number of processes on one host | `sqlite` |
/// | `postgres://user@host/database` | PostgreSQL, one schema, any number of hosts | `postgres` |
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
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    match scheme {
        "memory" => Ok(Arc::new(MemoryStore::new())),
        "sqlite" => sqlite(url).await,
        "postgres" | "postgresql" => postgres(url).await,
        other => Err(ConnectError::UnknownScheme(
            other.chars().take(32).collect(),
        )),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(url: &str) -> Result<SharedStore, ConnectError> {
    let store = ratchet_store_sqlite::SqliteStore::connect(url).await?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "sqlite"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn sqlite(_url: &str) -> Result<SharedStore, ConnectError> {
    Err(ConnectError::MissingFeature {
        scheme: "sqlite",
        feature: "sqlite",
    })
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<SharedStore, ConnectError> {
    let store = ratchet_store_postgres::PostgresStore::connect(url).await?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "postgres"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn postgres(_url: &str) -> Result<SharedStore, ConnectError> {
    Err(ConnectError::MissingFeature {
        scheme: "postgres",
        feature: "postgres",
    })
}

/// Why [`connect`] gave no store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No backend has this scheme.
    #[error(
        "no backend is known for URLs that begin with `{0}:`; known are sqlite, postgres and memory"
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
    /// The backend could not connect.
    #[error(transparent)]
    Store(#[from] StoreError),
}
