//! Connects to the database that a configuration names, with its settings in the section `store`.
//!
//! A program that needs further settings of a backend's builder creates this builder with the
//! function in the backend's module, such as `ratchet::postgres::configured`.

use ratchet_config::{Config, ConfigError, StoreConfig};
use ratchet_core::{InvalidInput, SharedStore, StoreError};

use crate::backends::config::Configured;
use crate::backends::driver;
use crate::connect::ConnectError;

/// Calls the builder's setter for each setting of the section that has a value.
#[allow(
    unused_macros,
    reason = "the macro is not used if no backend is compiled in"
)]
macro_rules! set {
    ($builder:ident, $section:expr, $($name:ident),*) => {
        $(if let Some(value) = $section.$name.clone() {
            $builder = $builder.$name(value);
        })*
    };
}

/// A migration of Ratchet's schema, as a script for the command-line tool of the database.
///
/// ```
/// use ratchet::config::Config;
///
/// let config = Config::loader()
///     .text("ratchet.toml", "[store]\nurl = 'sqlite://jobs.db'\n")
///     .load()?;
/// # if cfg!(feature = "sqlite") {
/// for step in ratchet::migrations(&config.store)? {
///     println!("{:04}_{}: {} bytes", step.version, step.name, step.script.len());
/// }
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Version of the schema after this migration. The first migration has version 1.
    pub version: u32,
    /// Name of the migration.
    pub name: String,
    /// Input that the tool needs before the first script. It makes the tool stop at the first
    /// error. Otherwise the tool would commit the statements after the error.
    pub prelude: &'static str,
    /// Input for the tool, which is `sqlite3`, `psql`, `sqlcmd` or `mongosh`. It is one transaction
    /// if the database supports transactions.
    pub script: String,
}

/// Connects to the database that a configuration names. Uses the settings in the section `store` of
/// the configuration.
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
/// [`ConnectError::NoUrl`] if the configuration has no URL. [`ConnectError::Setting`], with the key
/// of the setting, if the backend rejects a setting. All other errors are the same as for
/// [`connect`](crate::connect).
///
/// # Cancel safety
/// The same as for [`connect`](crate::connect).
pub async fn connect_configured(config: &StoreConfig) -> Result<SharedStore, ConnectError> {
    let store = builder(config)?.connect().await;
    store.map_err(|error| explained(config, error))
}

/// Returns all migrations of the schema, in order. Together they create the schema in an empty
/// database. Does not connect to the database.
///
/// # Errors
/// [`ConnectError::NoUrl`], or an error about a setting.
pub fn migrations(config: &StoreConfig) -> Result<Vec<Migration>, ConnectError> {
    Ok(builder(config)?.migrations())
}

/// Returns the migrations that connecting with `store.migrate` would apply to this database, in
/// order. Changes nothing.
///
/// # Errors
/// The same as for [`connect_configured`].
///
/// # Cancel safety
/// Dropping the future has no effect, because nothing is changed.
pub async fn pending_migrations(config: &StoreConfig) -> Result<Vec<Migration>, ConnectError> {
    let pending = builder(config)?.pending_migrations().await;
    pending.map_err(|error| explained(config, error))
}

/// Checks the settings of the store with the rules of its backend, as far as this is possible
/// without the database. The other settings were already checked when the configuration was loaded.
/// If the configuration has no URL, nothing is checked.
///
/// ```
/// use ratchet::config::Config;
///
/// let config = Config::loader()
///     .text("ratchet.toml", "[store]\nurl = 'sqlite://jobs.db'\nsqlite.max_pages = 0\n")
///     .load()?;
/// # if cfg!(feature = "sqlite") {
/// let error = ratchet::configured::check(&config).unwrap_err();
/// assert_eq!(
///     error.problems()[0].to_string(),
///     "store.sqlite.max_pages = 0 (ratchet.toml:3): max_pages is zero"
/// );
/// # }
/// # Ok::<(), ratchet::config::ConfigError>(())
/// ```
///
/// # Errors
/// [`ConfigError`], which contains every problem. It is also an error if the backend is not
/// compiled in.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    let mut refused: Vec<(String, String)> = Vec::new();
    for (key, store) in config.store_alone() {
        let rule = match problem(&store) {
            None | Some(ConnectError::NoUrl) => continue,
            Some(ConnectError::Store(error)) => match error.invalid_input() {
                Some(invalid) => invalid.to_string(),
                None => error.to_string(),
            },
            Some(other) => other.to_string(),
        };
        // The backend reports a problem with the URL for every setting, so the problem is kept only
        // once.
        if !refused.iter().any(|(_, told)| *told == rule) {
            refused.push((key, rule));
        }
    }
    match refused.is_empty() {
        true => Ok(()),
        false => Err(config.refused(refused)),
    }
}

fn problem(store: &StoreConfig) -> Option<ConnectError> {
    let checked = builder(store).and_then(|builder| Ok(builder.check()?));
    checked.err()
}

fn builder(config: &StoreConfig) -> Result<Box<dyn Configured>, ConnectError> {
    (driver(url(config)?)?.configured)(config)
}

pub(crate) fn url(config: &StoreConfig) -> Result<&str, ConnectError> {
    let url = config.url.as_ref().ok_or(ConnectError::NoUrl)?;
    Ok(url.expose())
}

/// Adds the key of the rejected setting to an error of the backend. If the error is not about a
/// setting, only converts it.
fn explained(config: &StoreConfig, error: StoreError) -> ConnectError {
    let field = error.invalid_input().map(InvalidInput::field);
    match field.and_then(|field| config.key_of(field)) {
        Some(key) => ConnectError::Setting { key, source: error },
        None => ConnectError::Store(error),
    }
}
