//! Stores as a configuration says: connecting, and each backend's own builder with what is
//! configured, for those who add something to it.

use std::sync::Arc;

use ratchet_config::StoreConfig;
use ratchet_core::{MemoryStore, SharedStore, StoreError};

use crate::connect::{ConnectError, missing, scheme};

mod builders;
mod check;
mod migrations;

#[cfg(feature = "mongo")]
pub use builders::mongo;
#[cfg(feature = "postgres")]
pub use builders::postgres;
#[cfg(feature = "sqlite")]
pub use builders::sqlite;
#[cfg(feature = "sqlserver")]
pub use builders::sqlserver;
pub use check::check;
pub use migrations::{Migration, migrations, pending_migrations};

/// Connects to the database of a configuration, with its settings.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::config::Config;
///
/// let config = Config::loader()
///     .text("ratchet.toml", "[store]\nurl = 'memory:'\n")
///     .load()?;
/// let store = ratchet::connect_configured(&config.store).await?;
/// assert_eq!(store.info().backend, "memory");
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ConnectError::NoUrl`] if the configuration has none; [`ConnectError::Setting`], with the key, if
/// the backend refuses a setting; otherwise as for [`connect`](crate::connect).
///
/// # Cancel safety
/// As for [`connect`](crate::connect).
pub async fn connect_configured(config: &StoreConfig) -> Result<SharedStore, ConnectError> {
    let url = config.url.as_ref().ok_or(ConnectError::NoUrl)?.expose();
    let store: Result<SharedStore, StoreError> = match scheme(url) {
        "memory" => Ok(Arc::new(MemoryStore::new())),
        #[cfg(feature = "sqlite")]
        "sqlite" => match sqlite(config)?.connect().await {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(error),
        },
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => match postgres(config)?.connect().await {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(error),
        },
        #[cfg(feature = "sqlserver")]
        "sqlserver" | "mssql" => match sqlserver(config)?.connect().await {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(error),
        },
        #[cfg(feature = "mongo")]
        "mongodb" | "mongodb+srv" => match mongo(config)?.connect().await {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(error),
        },
        _ => return Err(missing(url)),
    };
    store.map_err(|error| explained(config, error))
}

/// With the key of the setting that a backend refuses.
fn explained(config: &StoreConfig, error: StoreError) -> ConnectError {
    let field = error.invalid_input().map(ratchet_core::InvalidInput::field);
    match field.and_then(|field| config.key_of(field)) {
        Some(key) => ConnectError::Setting { key, source: error },
        None => ConnectError::Store(error),
    }
}
