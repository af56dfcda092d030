//! Where the database is and how it is used.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ratchet_core::{InvalidInput, Result, StoreError, StoreErrorKind};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::connection::LIFETIME;
use crate::statements::{DATABASE_CLOCK, quoted};
use crate::store::PostgresStore;

/// The URL schemes of this backend.
pub const SCHEMES: [&str; 2] = ["postgres", "postgresql"];

/// Settings of a [`PostgresStore`], made by [`PostgresStore::builder`] or
/// [`PostgresStore::pool_builder`].
#[derive(Clone)]
#[must_use = "nothing is opened before connect"]
pub struct Builder {
    target: Target,
    direct: Option<String>,
    schema: String,
    max_connections: Option<u32>,
    acquire_timeout: Duration,
    deadline: Duration,
    application_name: Option<String>,
    migrate: bool,
    wakeups: bool,
    clock_table: Option<String>,
}

#[derive(Clone)]
enum Target {
    Url(String),
    Pool(PgPool),
}

impl Builder {
    pub(crate) fn url(url: &str) -> Self {
        Self::new(Target::Url(url.to_owned()))
    }

    pub(crate) fn pool(pool: PgPool) -> Self {
        Self::new(Target::Pool(pool))
    }

    fn new(target: Target) -> Self {
        Self {
            target,
            direct: None,
            schema: "ratchet".to_owned(),
            max_connections: None,
            acquire_timeout: Duration::from_secs(5),
            deadline: Duration::from_secs(10),
            application_name: None,
            migrate: true,
            wakeups: true,
            clock_table: None,
        }
    }

    /// Connects past a pooler to the same database, with this URL: for heartbeats and locks, for
    /// migrations, and for wakeups. Where the other URL or the pool leads to PgBouncer in
    /// transaction mode, wakeups need it, since nobody can listen through that; heartbeats and locks
    /// work either way, but wait in the pooler's queue without it. Connecting is refused if the two
    /// do not lead to the same tables, or if the pooler's way to them is found to be unusable.
    pub fn direct(mut self, url: impl Into<String>) -> Self {
        self.direct = Some(url.into());
        self
    }

    /// Keeps the tables in this schema; `ratchet` unless set. Any name will do.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// How many connections the pool may have, beyond the one for heartbeats and locks and the one
    /// for wakeups. 10 unless set; refused for a pool that is the application's own.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = Some(connections);
        self
    }

    /// How long a call waits for a connection. 5 s unless set; a pool of the application's own
    /// keeps its own setting.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = timeout;
        self
    }

    /// How long a call may take in all, before it fails with `Timeout`. 10 s unless set, as long as
    /// the engine waits for a store.
    ///
    /// It is also the `statement_timeout` of every connection that the store makes. The server
    /// counts from the beginning of each statement, so it goes on with what nobody waits for at
    /// most so long more. A limit that the URL's `options`, the role, the database or the server
    /// has stays as it is; where a pooler refuses to pass the setting on there is none; and a pool
    /// of the application's own keeps its own setting.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How the connections are called in `pg_stat_activity`, `ratchet` unless set here or in the
    /// URL. Does nothing to the connections of a pool that is the application's own.
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into());
        self
    }

    /// Whether to create and upgrade the tables, which is the default. If not, connecting fails
    /// with `SchemaMismatch` unless somebody has applied every step of
    /// [`PostgresStore::migrations`].
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Whether the store carries wakeups ([`PostgresCoordinator`](crate::PostgresCoordinator)),
    /// which is the default. Switch it off where nobody can listen, as through PgBouncer in
    /// transaction mode without a [`direct`](Self::direct) URL; nodes then find the jobs of other
    /// processes by polling only, up to one poll interval later.
    pub fn wakeups(mut self, wakeups: bool) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// For tests: takes the time from the column `now_ms` of the only row of this table, which the
    /// test has made in the schema, instead of the database's clock.
    pub fn clock_table(mut self, table: impl Into<String>) -> Self {
        self.clock_table = Some(table.into());
        self
    }

    /// Connects, creates or upgrades Ratchet's tables, and checks that they are what this version
    /// of Ratchet needs.
    ///
    /// # Errors
    /// `Misconfigured` if a setting, the URL, the credentials or the rights of the role cannot
    /// work, and then says what a DBA must run; `SchemaMismatch` if the schema has tables that are
    /// newer, were changed, or are not Ratchet's; `Unavailable`, `ReadOnly` or `Timeout` as the
    /// database is.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was started; migrations are applied whole or not at all.
    pub async fn connect(self) -> Result<PostgresStore> {
        let config = self
            .into_config()
            .map_err(|error| error.during("connect"))?;
        PostgresStore::open(config).await
    }

    fn into_config(self) -> Result<Config> {
        for (setting, duration) in [
            ("acquire_timeout", self.acquire_timeout),
            ("deadline", self.deadline),
        ] {
            if duration.is_zero() {
                return Err(misconfigured(setting, "is zero"));
            }
        }
        check_identifier("schema", &self.schema)?;
        if self.schema.starts_with("pg_") {
            return Err(misconfigured(
                "schema",
                "begins with `pg_`, which PostgreSQL keeps to itself",
            ));
        }
        let clock = match &self.clock_table {
            None => DATABASE_CLOCK.to_owned(),
            Some(table) => {
                check_identifier("clock_table", table)?;
                format!("(SELECT now_ms FROM {{schema}}.{})", quoted(table))
            }
        };
        let pool = self.pool_settings()?;
        let direct = match &self.direct {
            Some(url) => Some(self.named(parse(url)?)),
            None => None,
        };
        Ok(Config {
            pool,
            direct,
            clock,
            schema: self.schema,
            acquire_timeout: self.acquire_timeout,
            deadline: self.deadline,
            migrate: self.migrate,
            wakeups: self.wakeups,
        })
    }

    fn pool_settings(&self) -> Result<PoolSettings> {
        let url = match &self.target {
            Target::Pool(_) if self.max_connections.is_some() => {
                return Err(misconfigured(
                    "max_connections",
                    "is set, but the pool is the application's own",
                ));
            }
            Target::Pool(pool) => return Ok(PoolSettings::Theirs(pool.clone())),
            Target::Url(url) => url,
        };
        let max_connections = self.max_connections.unwrap_or(10);
        if max_connections == 0 {
            return Err(misconfigured("max_connections", "is zero"));
        }
        let pool = PgPoolOptions::new()
            .max_connections(max_connections)
            .acquire_timeout(self.acquire_timeout)
            .max_lifetime(LIFETIME)
            // A lost connection shows at the first call on it, which is then repeated.
            .test_before_acquire(false);
        Ok(PoolSettings::Own(pool, Box::new(self.named(parse(url)?))))
    }

    /// With the name that the connections have in `pg_stat_activity`.
    fn named(&self, options: PgConnectOptions) -> PgConnectOptions {
        match &self.application_name {
            Some(name) => options.application_name(name),
            None if options.get_application_name().is_none() => options.application_name("ratchet"),
            None => options,
        }
    }
}

impl fmt::Debug for Builder {
    /// Without the URL: it may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("schema", &self.schema)
            .field("max_connections", &self.max_connections)
            .field("acquire_timeout", &self.acquire_timeout)
            .field("deadline", &self.deadline)
            .field("application_name", &self.application_name)
            .field("migrate", &self.migrate)
            .field("wakeups", &self.wakeups)
            .field("clock_table", &self.clock_table)
            .finish_non_exhaustive()
    }
}

/// Checked settings.
pub(crate) struct Config {
    pub(crate) pool: PoolSettings,
    /// For the connections that are not of the pool, where they differ from those of the pool.
    pub(crate) direct: Option<PgConnectOptions>,
    pub(crate) schema: String,
    /// The expression of the clock.
    pub(crate) clock: String,
    pub(crate) acquire_timeout: Duration,
    pub(crate) deadline: Duration,
    pub(crate) migrate: bool,
    pub(crate) wakeups: bool,
}

/// Where the connections for jobs come from.
pub(crate) enum PoolSettings {
    /// A pool that nobody else uses, and how its connections are made.
    Own(PgPoolOptions, Box<PgConnectOptions>),
    /// The application's own.
    Theirs(PgPool),
}

fn misconfigured(what: &'static str, problem: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, "connect")
        .with_source(InvalidInput::new(what, problem))
}

/// Refuses what PostgreSQL would cut off or cannot store.
fn check_identifier(what: &'static str, name: &str) -> Result<()> {
    let problem = match name {
        "" => "is empty",
        _ if name.len() > 63 => "is longer than 63 bytes",
        _ if name.contains('\0') => "has a NUL",
        // They mean something in the texts of the statements.
        _ if name.contains(['{', '}']) => "has a brace",
        _ => return Ok(()),
    };
    Err(misconfigured(what, problem))
}

/// The settings of a URL. What Ratchet does not know of is the driver's.
fn parse(url: &str) -> Result<PgConnectOptions> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if !SCHEMES.contains(&scheme) {
        // Only a scheme is shown: the rest may have a password.
        let plain = !scheme.is_empty()
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '+');
        return Err(misconfigured(
            "the URL",
            if plain {
                format!("has the scheme `{scheme}`, not `postgres`")
            } else {
                "has no scheme; `postgres://<user>:<password>@<host>/<database>` is meant"
                    .to_owned()
            },
        ));
    }
    PgConnectOptions::from_str(url)
        // Every statement of ours is text that hardly changes, and there are about fifty.
        .map(|options| {
            options
                .statement_cache_capacity(128)
                // PgBouncer refuses it, and from PostgreSQL 12 on nothing is gained by it.
                .extra_float_digits(None)
                .disable_statement_logging()
        })
        .map_err(|error| match error {
            sqlx::Error::Configuration(problem) => misconfigured("the URL", problem.to_string()),
            _ => misconfigured("the URL", "cannot be read"),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(builder: Builder) -> String {
        match builder.into_config() {
            Ok(_) => panic!("it was not refused"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
                error.to_string()
            }
        }
    }

    #[tokio::test]
    async fn what_cannot_work_is_refused_by_name() {
        let builder = || Builder::url("postgres://me:secret@host/db");
        let zero = Duration::ZERO;
        assert!(problem(builder().deadline(zero)).contains("deadline"));
        assert!(problem(builder().acquire_timeout(zero)).contains("acquire_timeout"));
        assert!(problem(builder().max_connections(0)).contains("max_connections"));
        assert!(problem(builder().schema("")).contains("schema is empty"));
        assert!(problem(builder().schema("x".repeat(64))).contains("63"));
        assert!(problem(builder().schema("pg_mine")).contains("pg_"));
        assert!(problem(builder().schema("{now}")).contains("brace"));
        assert!(problem(builder().clock_table("")).contains("clock_table"));
        assert!(problem(Builder::url("mysql://me:secret@host/db")).contains("`mysql`"));
        assert!(problem(Builder::url("host/db")).contains("no scheme"));
        assert!(problem(Builder::url("postgres://host:port/db")).contains("the URL"));
        let pool = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new());
        assert!(problem(Builder::pool(pool).max_connections(3)).contains("own"));
    }

    #[tokio::test]
    async fn no_secret_is_shown() {
        for url in [
            "mysql://me:secret@host/db",
            "secret@host",
            "postgres://me:secret@host:port/db",
        ] {
            let builder = Builder::url(url);
            assert!(!format!("{builder:?}").contains("secret"));
            assert!(!problem(builder).contains("secret"), "{url}");
        }
    }

    #[tokio::test]
    async fn the_application_name_is_the_builders_or_the_urls_or_ours() {
        let name = |builder: Builder| {
            let config = builder.into_config().unwrap();
            let PoolSettings::Own(_, options) = config.pool else {
                panic!("a URL makes a pool")
            };
            options.get_application_name().map(str::to_owned)
        };
        let plain = Builder::url("postgresql://h/d");
        assert_eq!(name(plain.clone()).as_deref(), Some("ratchet"));
        let url = Builder::url("postgres://h/d?application_name=app");
        assert_eq!(name(url.clone()).as_deref(), Some("app"));
        assert_eq!(name(url.application_name("b")).as_deref(), Some("b"));
    }
}
