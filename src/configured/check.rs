use ratchet_config::{Config, ConfigError, StoreConfig};

use crate::connect::{ConnectError, missing, scheme};

/// Checks the settings of the store by the rules of its backend, as far as that can be done without
/// the database. Everything else was checked when the configuration was loaded. Without a URL there
/// is nothing to check.
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
/// [`ConfigError`] with everything that is wrong, and also if the backend is not compiled in.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    let mut refused: Vec<(String, String)> = Vec::new();
    for (key, store) in config.store_alone() {
        let rule = match problem(&store) {
            None => continue,
            Some(ConnectError::Store(error)) => match error.invalid_input() {
                Some(invalid) => invalid.to_string(),
                None => error.to_string(),
            },
            Some(other) => other.to_string(),
        };
        // What is wrong with the URL shows with every other setting too.
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
    let url = store.url.as_ref()?.expose();
    let checked: Result<(), ConnectError> = match scheme(url) {
        "memory" => Ok(()),
        #[cfg(feature = "sqlite")]
        "sqlite" => super::sqlite(store).and_then(|builder| Ok(builder.check()?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => super::postgres(store).and_then(|it| Ok(it.check()?)),
        #[cfg(feature = "sqlserver")]
        "sqlserver" | "mssql" => super::sqlserver(store).and_then(|it| Ok(it.check()?)),
        #[cfg(feature = "mongo")]
        "mongodb" | "mongodb+srv" => super::mongo(store).and_then(|it| Ok(it.check()?)),
        _ => Err(missing(url)),
    };
    checked.err()
}
