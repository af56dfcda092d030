use ratchet_core::{SharedStore, StoreError};

use crate::backends::{driver, known_schemes};

/// Connects to the database at this URL. The scheme of the URL selects the backend.
///
/// | scheme | backend | feature |
/// |---|---|---|
/// | `sqlite://path/to/file.db` | SQLite, one file, any number of processes on one host | `sqlite` |
/// | `postgres://user@host/database` | PostgreSQL, one schema, any number of hosts | `postgres` |
/// | `mysql://user@host/database`, `mariadb://…` | MySQL or MariaDB, one database, any number of hosts | `mysql` |
/// | `sqlserver://user:password@host/database`, `mssql://…` | SQL Server, one schema, any number of hosts | `sqlserver` |
/// | `mongodb://host/database`, `mongodb+srv://…` | MongoDB, one database, any number of hosts | `mongo` |
/// | `s3://bucket/prefix` | Amazon S3 and compatible services, any number of hosts | `object-aws` |
/// | `az://container/prefix` | Azure Blob Storage, any number of hosts | `object-azure` |
/// | `gs://bucket/prefix` | Google Cloud Storage, any number of hosts | `object-gcp` |
/// | `file:///directory` | a directory in the format of a bucket, for development | `object` |
/// | `memory:` | the in-memory store: nothing is durable, for tests | always enabled |
///
/// Other stores can have schemes too: see [`register_scheme`](crate::register_scheme).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ratchet::ConnectError> {
/// let store = ratchet::connect("memory:").await?;
/// assert_eq!(store.info().backend, "memory");
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ConnectError::UnknownScheme`] if no backend has this scheme. [`ConnectError::MissingFeature`]
/// if the program was built without the backend. Otherwise the error of the backend.
///
/// # Cancel safety
/// If the future is dropped, the connection is closed. A migration that has begun is applied as a
/// whole or not at all.
pub async fn connect(url: &str) -> Result<SharedStore, ConnectError> {
    Ok((driver(url)?.connect)(url).await?)
}

/// An error of [`connect`] and related functions.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use ratchet::ConnectError;
///
/// match ratchet::connect("oracle://localhost/jobs").await {
///     Err(ConnectError::UnknownScheme(scheme)) => assert_eq!(scheme, "oracle"),
///     Err(ConnectError::MissingFeature { feature, .. }) => eprintln!("enable {feature}"),
///     Err(ConnectError::Store(error)) if error.is_transient() => eprintln!("later: {error}"),
///     Err(error) => eprintln!("{error}"),
///     Ok(store) => println!("connected to {}", store.info().backend),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No backend has this URL scheme.
    #[error(
        "no backend is known for URLs that begin with `{0}:`; the schemes are {known}",
        known = known_schemes()
    )]
    UnknownScheme(String),
    /// The backend for this URL scheme exists, but it is not compiled in.
    #[error("`{scheme}:` URLs need ratchet's Cargo feature `{feature}`, which is not enabled")]
    MissingFeature {
        /// Scheme of the backend's URLs.
        scheme: &'static str,
        /// Cargo feature that must be enabled.
        feature: &'static str,
    },
    /// The configuration contains no URL for the store.
    #[cfg(feature = "config")]
    #[error("neither store.url nor store.url_file is set")]
    NoUrl,
    /// The backend rejects a setting of the configuration.
    #[cfg(feature = "config")]
    #[error("{key}: {source}")]
    Setting {
        /// Key of the setting, such as `store.max_connections`.
        key: String,
        /// Error of the backend.
        source: StoreError,
    },
    /// The backend failed to connect.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unknown_schemes_are_named_and_nothing_else_of_the_url() {
        let error = connect("oracle://bob:secret@db/jobs").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "no backend is known for URLs that begin with `oracle:`; the schemes are {}",
                known_schemes()
            )
        );
        for url in ["Server=db;Password=secret", "", "p:w@secret", "a b:secret"] {
            let error = connect(url).await.unwrap_err();
            assert!(matches!(error, ConnectError::UnknownScheme(_)), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[cfg(not(any(feature = "sqlite", feature = "object")))]
    #[tokio::test]
    async fn a_missing_feature_is_named() {
        for (url, feature) in [
            ("sqlite://x.db", "sqlite"),
            ("file:///var/lib/jobs", "object"),
            ("s3://bucket/prefix", "object-aws"),
        ] {
            let error = connect(url).await.unwrap_err().to_string();
            let scheme = url.split(':').next().unwrap_or_default();
            assert_eq!(
                error,
                format!(
                    "`{scheme}:` URLs need ratchet's Cargo feature `{feature}`, which is not enabled"
                )
            );
        }
    }
}
