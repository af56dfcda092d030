//! The settings of the store: where the database is and how to use it.

use std::fmt;
use std::str::FromStr;

use ratchet_core::Result;
use ratchet_sql::{Settings, misconfigured};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPool};

use crate::dialect::Postgres;
use crate::migrate::{self, STEPS};
use crate::statements::Named;
use crate::store::PostgresStore;

/// URL schemes that this backend accepts.
pub const SCHEMES: [&str; 2] = ["postgres", "postgresql"];

/// Settings of a [`PostgresStore`]. Created by [`PostgresStore::builder`] or
/// [`PostgresStore::pool_builder`].
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ratchet_store_postgres::PostgresStore;
///
/// let store = PostgresStore::builder("postgres://app@localhost/app")
///     .schema("jobs")
///     .max_connections(20)
///     .deadline(Duration::from_secs(5))
///     .connect()
///     .await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "the builder opens nothing before `connect` is called"]
pub struct Builder {
    target: Target,
    direct: Option<String>,
    settings: Settings,
    wakeups: bool,
    session_locks: Option<bool>,
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
            settings: Settings::new(STEPS),
            wakeups: true,
            session_locks: None,
        }
    }

    /// Sets a URL that connects to the same database without a pooler. The store uses this URL for
    /// heartbeats, locks, migrations and wakeups.
    ///
    /// If the main URL or the pool leads to PgBouncer in transaction mode, wakeups need a direct
    /// URL, because PgBouncer does not support `LISTEN` in that mode. Heartbeats and locks also
    /// work through the pooler, but then they wait in its queue.
    ///
    /// Connecting fails if the direct URL and the pooler lead to different tables. It also fails if
    /// the pooler's connections have a role or an isolation level that does not work for jobs.
    pub fn direct(mut self, url: impl Into<String>) -> Self {
        self.direct = Some(url.into());
        self
    }

    /// Sets whether the store carries wakeups
    /// ([`PostgresCoordinator`](crate::PostgresCoordinator)). The default is `true`.
    ///
    /// Turn wakeups off if the connections do not support `LISTEN`, such as through PgBouncer in
    /// transaction mode without a [`direct`](Self::direct) URL. Without wakeups, nodes find the
    /// jobs of other processes only by polling, up to one poll interval later.
    pub fn wakeups(mut self, wakeups: bool) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// Sets whether the locks of this store are bound to a database session. The session is that of
    /// the connection for heartbeats and locks. If locks are bound, they become free as soon as the
    /// server notices that the connection is lost. So if a leader is killed, another node takes
    /// over within one leader heartbeat. Locks that are not bound become free only when they
    /// expire.
    ///
    /// The default is `false`. The URL can also contain the setting, as `session_locks=true`. The
    /// value set here overrides the URL.
    ///
    /// Only the setting of the store that holds a lock matters, because the row of the lock names
    /// the session. Every store can take over a lock whose session has ended, even a store without
    /// this setting. The fence increases as always.
    ///
    /// If the stores use different roles, a role without `pg_read_all_stats` cannot see when a
    /// session of another role began. A store with such a role takes over a lock at once only if no
    /// process has the process id of the lock's session. Otherwise, it takes over when the lock
    /// expires.
    ///
    /// # What it costs
    /// Without this setting, a leader stops leading before another node can acquire its lock. With
    /// this setting, a healthy leader loses its lock if it loses the connection. Possible causes
    /// are a short network failure, a restart of the server, and `pg_terminate_backend`. The
    /// connection is also closed if a call for heartbeats or locks is dropped before it completes.
    ///
    /// If another node acquires the lock before the leader reconnects, both nodes lead until the
    /// old leader's next renewal fails. That takes one leader heartbeat. If the old leader cannot
    /// reach the database, it stops leading after its `fence_timeout`. Guarded writes stay safe
    /// because of the fence. So use this setting for roles that only make guarded writes. Do not
    /// use it for roles that act on external systems.
    ///
    /// A store that reconnects binds its locks to the new session at once. So it loses only the
    /// locks that another store acquired in between. When a connection reaches its
    /// [`max_lifetime`](Self::max_lifetime), the store opens a new connection before it closes the
    /// old one. A host that loses power or network does not close its connections. The server
    /// detects this by TCP keepalive, and the locks usually expire before that.
    ///
    /// # Poolers
    /// Through a pooler, the session belongs to the pooler, so locks cannot be bound to it.
    /// Connecting fails if the session of a new connection is older than the connection. To fix
    /// this, set [`direct`](Self::direct) to the URL of the database itself.
    pub fn session_locks(mut self, bind: bool) -> Self {
        self.session_locks = Some(bind);
        self
    }

    fn into_config(self) -> Result<Config> {
        let clock = self.settings.check::<Postgres>()?;
        if self.settings.schema.starts_with("pg_") {
            return Err(misconfigured(
                "schema",
                "begins with `pg_`, which PostgreSQL reserves",
            ));
        }
        let (pool, in_url) = self.pool_settings()?;
        let direct = match &self.direct {
            Some(url) => match parse(url)? {
                (options, None) => Some(self.named(options)),
                (_, Some(_)) => {
                    return Err(misconfigured(
                        "direct",
                        format!("has {SESSION_LOCKS}; set it in the main URL"),
                    ));
                }
            },
            None => None,
        };
        Ok(Config {
            pool,
            direct,
            clock,
            wakeups: self.wakeups,
            session_locks: self.session_locks.or(in_url).unwrap_or(false),
            settings: self.settings,
        })
    }

    /// Returns the settings of the pool, and the value of `session_locks` in the URL.
    fn pool_settings(&self) -> Result<(PoolSettings, Option<bool>)> {
        let url = match &self.target {
            Target::Pool(_) if self.settings.max_connections.is_some() => {
                return Err(misconfigured(
                    "max_connections",
                    "cannot be set for the application's own pool",
                ));
            }
            Target::Pool(pool) => return Ok((PoolSettings::Theirs(pool.clone()), None)),
            Target::Url(url) => url,
        };
        let (options, session_locks) = parse(url)?;
        let options = Box::new(self.named(options));
        Ok((PoolSettings::Own(options), session_locks))
    }

    /// Sets the name that `pg_stat_activity` shows for the connections.
    fn named(&self, options: PgConnectOptions) -> PgConnectOptions {
        match &self.settings.application_name {
            Some(name) => options.application_name(name),
            None if options.get_application_name().is_none() => options.application_name("ratchet"),
            None => options,
        }
    }
}

ratchet_sql::builder! {
    PostgresStore;
    /// Sets the maximum number of connections in the pool. The default is 10. The connection for
    /// heartbeats and locks and the connection for wakeups are not included. For a pool of the
    /// application, connecting fails if this is set.
    max_connections;
    /// Sets how long a call waits for a connection of the pool. The default is 5 s. A pool of the
    /// application keeps its own setting.
    acquire_timeout;
    /// Sets how long a call may take in total before it fails with `Timeout`. The default is 10 s,
    /// which is as long as the engine waits for a store.
    ///
    /// The deadline is also the `statement_timeout` of every connection that the store opens. So
    /// the server ends a statement after this time, even if no caller waits for the statement any
    /// more. A `statement_timeout` that is set by the URL's `options`, the role, the database or
    /// the server stays in place. If a pooler does not accept the setting, statements have no
    /// limit. A pool of the application keeps its own setting.
    deadline;
    /// Sets the name that `pg_stat_activity` shows for the connections. This name overrides the one
    /// in the URL. If neither is set, the name is `ratchet`. A pool of the application keeps its
    /// own name.
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
            .field("wakeups", &self.wakeups)
            .field("session_locks", &self.session_locks)
            .finish_non_exhaustive()
    }
}

/// The settings of a store, after the builder has checked them.
pub(crate) struct Config {
    pub(crate) pool: PoolSettings,
    /// Options of the connections outside the pool. `None` if they are the same as those of the
    /// pool.
    pub(crate) direct: Option<PgConnectOptions>,
    pub(crate) settings: Settings,
    /// SQL expression that returns the current time.
    pub(crate) clock: String,
    pub(crate) wakeups: bool,
    /// Whether locks are bound to the session of the connection for heartbeats and locks.
    pub(crate) session_locks: bool,
}

impl Config {
    /// Returns the options of the connections in the pool for jobs.
    pub(crate) fn pool_options(&self) -> PgConnectOptions {
        match &self.pool {
            PoolSettings::Own(options) => (**options).clone(),
            PoolSettings::Theirs(pool) => (*pool.connect_options()).clone(),
        }
    }
}

/// The pool of the connections for jobs.
pub(crate) enum PoolSettings {
    /// A pool that the store opens, with the options of its connections.
    Own(Box<PgConnectOptions>),
    /// A pool that belongs to the application.
    Theirs(PgPool),
}

/// Name of the only URL parameter that the driver does not know.
const SESSION_LOCKS: &str = "session_locks";

/// Removes `session_locks` from a URL. Returns the remaining URL, and the value of `session_locks`
/// if it was set.
fn take_session_locks(url: &str) -> Result<(String, Option<bool>)> {
    let Some((place, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), None));
    };
    let mut value = None;
    let mut others = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            (SESSION_LOCKS, "true") => value = Some(true),
            (SESSION_LOCKS, "false") => value = Some(false),
            (SESSION_LOCKS, _) => {
                return Err(misconfigured(
                    SESSION_LOCKS,
                    "is neither `true` nor `false` in the URL",
                ));
            }
            _ => others.push(pair),
        }
    }
    Ok((format!("{place}?{}", others.join("&")), value))
}

/// Rejects two forms of URLs that libpq accepts. The driver would misread a URL with several hosts,
/// and would ignore a `target_session_attrs` that restricts the choice of the server.
fn refuse_several_hosts(url: &str) -> Result<()> {
    const REMEDY: &str = "give one address that always leads to the writable server, such as a \
                          managed database's endpoint, HAProxy or a virtual address";
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = authority.split('/').next().unwrap_or_default();
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    let setting = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let mut values = pairs.filter(|(key, _)| *key == name);
        values.next().map(|(_, value)| value)
    };
    let in_query = ["host", "hostaddr", "port"].map(setting);
    let several = |text: &str| text.contains(',') || text.to_ascii_lowercase().contains("%2c");
    if several(hosts) || in_query.into_iter().flatten().any(several) {
        let problem =
            format!("has several hosts, which the driver cannot choose between: {REMEDY}");
        return Err(misconfigured("the URL", problem));
    }
    match setting("target_session_attrs") {
        None | Some("any") => Ok(()),
        Some(_) => {
            let problem = format!("has target_session_attrs, which the driver ignores: {REMEDY}");
            Err(misconfigured("the URL", problem))
        }
    }
}

/// Number of prepared statements that a connection caches. It covers all statements in the SQL
/// files, and the few that are written in the code. A statement that is not cached costs one more
/// round trip.
const STATEMENTS: usize = Named::COUNT + 8;

/// Parses a URL. Returns the options for the driver, and the value of `session_locks` if it was
/// set.
fn parse(url: &str) -> Result<(PgConnectOptions, Option<bool>)> {
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
                format!("has the scheme `{scheme}`; expected `postgres`")
            } else {
                "has no scheme; expected `postgres://<user>:<password>@<host>/<database>`"
                    .to_owned()
            },
        ));
    }
    refuse_several_hosts(url)?;
    let (url, session_locks) = take_session_locks(url)?;
    PgConnectOptions::from_str(&url)
        .map(|options| {
            let options = options
                .statement_cache_capacity(STATEMENTS)
                // PgBouncer rejects this setting, which has had no benefit since PostgreSQL 12.
                .extra_float_digits(None)
                .disable_statement_logging();
            (options, session_locks)
        })
        .map_err(|error| match error {
            sqlx::Error::Configuration(problem) => misconfigured("the URL", problem.to_string()),
            _ => misconfigured("the URL", "cannot be read"),
        })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratchet_core::StoreErrorKind;

    use sqlx::postgres::PgPoolOptions;

    use super::*;

    #[test]
    fn several_hosts_are_refused_with_the_remedy() {
        for url in [
            "postgres://app@one:5432,two:5432/jobs",
            "postgres://app:a,b@one,two/jobs",
            "postgres://app@one%2Ctwo/jobs",
            "postgres:///jobs?host=one,two",
            "postgres://app@one/jobs?port=5432,5433",
            "postgres://app@one/jobs?target_session_attrs=read-write",
        ] {
            let problem = problem(Builder::url(url));
            assert!(problem.contains("one address"), "{url}: {problem}");
        }
        for url in [
            "postgres://app:a,b@one/jobs",
            "postgres://app@one/jobs?target_session_attrs=any",
        ] {
            assert!(Builder::url(url).check().is_ok(), "{url}");
        }
    }

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
        let builder = || Builder::url("postgres://me:secret@host/db");
        let zero = Duration::ZERO;
        assert!(problem(builder().deadline(zero)).contains("deadline"));
        assert!(problem(builder().acquire_timeout(zero)).contains("acquire_timeout"));
        assert!(problem(builder().max_lifetime(zero)).contains("max_lifetime"));
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
        let odd = "postgres://me:secret@host/db?session_locks=1";
        assert!(problem(Builder::url(odd)).contains("session_locks is neither"));
        let direct = builder().direct("postgres://host/db?session_locks=true");
        assert!(problem(direct).contains("direct has session_locks"));
    }

    #[tokio::test]
    async fn locks_are_bound_to_sessions_if_the_builder_or_else_the_url_says_so() {
        let config = |url: &str| Builder::url(url).into_config().unwrap();
        let on = "postgres://h/d?application_name=a&session_locks=true&sslmode=disable";
        assert!(!config("postgres://h/d").session_locks);
        assert!(!config("postgres://h/d?session_locks=false").session_locks);
        assert!(config("postgres://h/d?session_locks=true").session_locks);
        let kept = config(on);
        assert!(kept.session_locks);
        let PoolSettings::Own(options) = kept.pool else {
            panic!("expected the settings of the store's own pool")
        };
        assert_eq!(options.get_application_name(), Some("a"));
        let off = Builder::url(on).session_locks(false).into_config();
        assert!(!off.unwrap().session_locks);
    }

    #[test]
    fn a_connection_keeps_every_statement() {
        for url in [
            "postgres://h/d",
            "postgres://h/d?statement-cache-capacity=5",
        ] {
            let kept = parse(url).unwrap().0.to_url_lossy();
            let kept = kept
                .query_pairs()
                .find(|(key, _)| key == "statement-cache-capacity");
            let kept: usize = kept.unwrap().1.parse().unwrap();
            assert!(kept > Named::COUNT, "{kept}");
        }
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
            let PoolSettings::Own(options) = config.pool else {
                panic!("expected the settings of the store's own pool")
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
