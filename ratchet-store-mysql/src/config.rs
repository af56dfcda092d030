//! The settings of the store: where the database is and how to use it.

use std::fmt;
use std::str::FromStr;

use ratchet_core::Result;
use ratchet_sql::{Settings, misconfigured};
use sqlx::MySqlPool;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use crate::dialect::Mysql;
use crate::migrate::{self, STEPS};
use crate::store::MysqlStore;
use crate::words::TableNames;

/// URL schemes that this backend accepts.
pub const SCHEMES: [&str; 2] = ["mysql", "mariadb"];

/// Settings of a [`MysqlStore`]. Created by [`MysqlStore::builder`] or
/// [`MysqlStore::pool_builder`].
///
/// The schema is the prefix of the tables, `ratchet` by default. So the tables have names such as
/// `ratchet_jobs`, in the database of the URL. Stores with different prefixes or databases never
/// see each other.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ratchet_store_mysql::MysqlStore;
///
/// let store = MysqlStore::builder("mysql://app@localhost/app")
///     .schema("mail")
///     .max_connections(20)
///     .deadline(Duration::from_secs(5))
///     .connect()
///     .await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "nothing is opened before connect"]
pub struct Builder {
    target: Target,
    settings: Settings,
}

#[derive(Clone)]
enum Target {
    Url(String),
    Pool(MySqlPool),
}

impl Builder {
    pub(crate) fn url(url: &str) -> Self {
        Self::new(Target::Url(url.to_owned()))
    }

    pub(crate) fn pool(pool: MySqlPool) -> Self {
        Self::new(Target::Pool(pool))
    }

    fn new(target: Target) -> Self {
        Self {
            target,
            settings: Settings::new(STEPS),
        }
    }

    fn into_config(self) -> Result<Config> {
        let clock = self.settings.check::<Mysql>()?;
        if self.settings.application_name.is_some() {
            return Err(misconfigured(
                "application_name",
                "cannot be set, because the driver does not send it to the server",
            ));
        }
        let (pool, options) = match self.target {
            Target::Pool(_) if self.settings.max_connections.is_some() => {
                return Err(misconfigured(
                    "max_connections",
                    "cannot be set for the application's own pool",
                ));
            }
            Target::Pool(pool) => {
                let options = (*pool.connect_options()).clone();
                (Some(pool), options)
            }
            Target::Url(url) => (None, parse(&url)?),
        };
        let names = TableNames {
            database: database(&options)?,
            prefix: self.settings.schema.clone(),
        };
        Ok(Config {
            pool,
            options,
            names,
            clock,
            settings: self.settings,
        })
    }
}

ratchet_sql::builder! {
    MysqlStore;
    /// Sets the maximum number of connections in the pool. The default is 10. The connection for
    /// heartbeats and locks is not included. For a pool of the application, connecting fails if
    /// this is set.
    max_connections;
    /// Sets how long a call waits for a connection of the pool. The default is 5 s. A pool of the
    /// application keeps its own setting.
    acquire_timeout;
    /// Sets how long a call may take in total before it fails with `Timeout`. The default is 10 s,
    /// which is as long as the engine waits for a store.
    ///
    /// The deadline is also the time after which the server ends a statement of a connection that
    /// the store opens (`max_statement_time` on MariaDB), and after which a statement stops waiting
    /// for a lock (`innodb_lock_wait_timeout`). MySQL limits only queries (`max_execution_time`). A
    /// pool of the application keeps its own limits of statements.
    deadline;
    /// Not supported: connecting fails if this is set, because the driver does not send a name to
    /// the server.
    application_name;
    /// Sets the age at which a connection is replaced. The default is 30 min. A pool of the
    /// application keeps its own setting.
    max_lifetime;
}

impl fmt::Debug for Builder {
    /// Formats the builder without the URL, because the URL may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The settings of a store, after the builder has checked them.
pub(crate) struct Config {
    /// A pool that belongs to the application. `None` if the store opens a pool.
    pub(crate) pool: Option<MySqlPool>,
    /// Options of all connections that the store opens.
    pub(crate) options: MySqlConnectOptions,
    pub(crate) names: TableNames,
    pub(crate) settings: Settings,
    /// SQL expression that returns the current time.
    pub(crate) clock: String,
}

/// Returns the database of these options, in which the tables are.
fn database(options: &MySqlConnectOptions) -> Result<String> {
    let Some(name) = options.get_database().filter(|name| !name.is_empty()) else {
        return Err(misconfigured(
            "the URL",
            "has no database; expected `mysql://<user>:<password>@<host>/<database>`",
        ));
    };
    // Statements contain the name, also inside of texts, and mark their parameters with `$`.
    if name.contains(['`', '\'', '\\', '$', '@', '{', '}']) || name.chars().any(char::is_control) {
        let problem = "has a name of the database with a character that the store does not support";
        return Err(misconfigured("the URL", problem));
    }
    Ok(name.to_owned())
}

/// Parses a URL. Verifies the certificate of a server on another host, unless the URL says
/// otherwise.
fn parse(url: &str) -> Result<MySqlConnectOptions> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if !SCHEMES.contains(&scheme) {
        // Shows only the scheme: the rest may include a password.
        let plain = !scheme.is_empty()
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '+');
        return Err(misconfigured(
            "the URL",
            if plain {
                format!("has the scheme `{scheme}`, not `mysql` or `mariadb`")
            } else {
                "has no scheme; expected `mysql://<user>:<password>@<host>/<database>`".to_owned()
            },
        ));
    }
    let options = MySqlConnectOptions::from_str(url).map_err(|error| match error {
        sqlx::Error::Configuration(problem) => misconfigured("the URL", problem.to_string()),
        _ => misconfigured("the URL", "cannot be read"),
    })?;
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let chosen = query
        .split('&')
        .any(|pair| pair.starts_with("ssl-mode=") || pair.starts_with("sslmode="));
    Ok(match chosen || is_local(&options) {
        true => options,
        false => options.ssl_mode(MySqlSslMode::VerifyIdentity),
    })
}

/// Returns whether connections with these options stay on this host.
pub(crate) fn is_local(options: &MySqlConnectOptions) -> bool {
    let host = options.get_host().trim_matches(['[', ']']);
    let loopback = host
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    options.get_socket().is_some() || host == "localhost" || loopback
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratchet_core::StoreErrorKind;
    use sqlx::mysql::MySqlPoolOptions;

    use super::*;

    fn problem(builder: Builder) -> String {
        match builder.into_config() {
            Ok(_) => panic!("expected the settings to be rejected"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
                error.to_string()
            }
        }
    }

    #[tokio::test]
    async fn what_cannot_work_is_refused_by_name() {
        let builder = || Builder::url("mysql://me:secret@host/db");
        let zero = Duration::ZERO;
        assert!(problem(builder().deadline(zero)).contains("deadline"));
        assert!(problem(builder().acquire_timeout(zero)).contains("acquire_timeout"));
        assert!(problem(builder().max_lifetime(zero)).contains("max_lifetime"));
        assert!(problem(builder().max_connections(0)).contains("max_connections"));
        assert!(problem(builder().application_name("a")).contains("application_name"));
        assert!(problem(builder().schema("")).contains("schema is empty"));
        assert!(problem(builder().schema("x".repeat(45))).contains("44"));
        assert!(problem(builder().schema("Mine")).contains("lower-case"));
        assert!(problem(builder().clock_table("")).contains("clock_table"));
        assert!(problem(Builder::url("postgres://me:secret@host/db")).contains("`postgres`"));
        assert!(problem(Builder::url("host/db")).contains("no scheme"));
        assert!(problem(Builder::url("mysql://host:port/db")).contains("the URL"));
        assert!(problem(Builder::url("mysql://host")).contains("no database"));
        assert!(problem(Builder::url("mysql://host/a%60b")).contains("does not support"));
        let options: MySqlConnectOptions = "mysql://h/d".parse().unwrap();
        let pool = MySqlPoolOptions::new().connect_lazy_with(options);
        assert!(problem(Builder::pool(pool).max_connections(3)).contains("own"));
    }

    #[test]
    fn only_servers_on_other_hosts_must_have_a_valid_certificate_by_default() {
        let mode = |url: &str| parse(url).unwrap().get_ssl_mode();
        for url in ["mysql://db/a", "mariadb://10.0.0.1/a?charset=utf8mb4"] {
            assert!(matches!(mode(url), MySqlSslMode::VerifyIdentity), "{url}");
        }
        for url in [
            "mysql://localhost/a",
            "mysql://127.0.0.1/a",
            "mysql://[::1]/a",
            "mysql://db/a?ssl-mode=preferred",
            "mysql://db/a?x=y&sslmode=PREFERRED",
        ] {
            assert!(matches!(mode(url), MySqlSslMode::Preferred), "{url}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        for url in [
            "redis://me:secret@host/db",
            "secret@host",
            "mysql://me:secret@host:port/db",
        ] {
            let builder = Builder::url(url);
            assert!(!format!("{builder:?}").contains("secret"));
            assert!(!problem(builder).contains("secret"), "{url}");
        }
    }
}
