//! The settings of the store: where the database is and how to use it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ratchet_core::dictionary::OWN_QUEUES;
use ratchet_core::memory::ManualClock;
use ratchet_core::store::Checked;
use ratchet_core::{InvalidInput, Result, StoreError, StoreErrorKind};
use ratchet_sql::Migration;

use crate::connection::{Clock, open_existing};
use crate::error::Failure;
use crate::migrate;
use crate::store::SqliteStore;

/// URL scheme that this backend accepts.
pub const SCHEME: &str = "sqlite";

/// Setting for when a commit becomes durable.
///
/// ```
/// use ratchet_store_sqlite::{SqliteStore, Synchronous};
///
/// // A commit survives a crash of the process, but may be lost if the machine crashes.
/// let builder = SqliteStore::builder("jobs.db").synchronous(Synchronous::Normal);
/// # drop(builder);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// A commit is durable before the call returns. A committed transaction survives a power
    /// failure. This is the default.
    #[default]
    Full,
    /// A commit becomes durable soon after the call returns. A power failure or a crash of the
    /// operating system may undo the last committed transactions, at worst all since the last
    /// checkpoint. The newest transactions are undone first, each as a whole, and the database
    /// stays intact. A crash of the process undoes nothing.
    Normal,
}

/// Settings of a [`SqliteStore`]. Created by [`SqliteStore::builder`].
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ratchet_store_sqlite::SqliteStore;
///
/// let store = SqliteStore::builder("jobs.db")
///     .deadline(Duration::from_secs(5))
///     .connect()
///     .await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the builder opens nothing before `connect` is called"]
pub struct Builder {
    target: OsString,
    synchronous: Option<Synchronous>,
    busy_timeout: Duration,
    deadline: Duration,
    max_pages: Option<u32>,
    migrate: bool,
    clock: Clock,
    own_queues: usize,
}

impl Builder {
    pub(crate) fn new(target: &OsStr) -> Self {
        Self {
            target: target.to_owned(),
            synchronous: None,
            busy_timeout: Duration::from_secs(5),
            deadline: Duration::from_secs(30),
            max_pages: None,
            migrate: true,
            clock: Clock::Database,
            own_queues: OWN_QUEUES,
        }
    }

    /// Sets when a commit becomes durable. Overrides the setting in the URL.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = Some(synchronous);
        self
    }

    /// Sets how long a call waits for the write lock while another process holds it. After that
    /// time, the call fails with `Contention`. The default is 5 s.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Sets how long a call may take in total before it fails with `Timeout`. The default is 30 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the maximum size of the database file in pages. The default is no limit. A write that
    /// would make the file larger fails with `Full`. A page has 4 KiB, unless the file was created
    /// with another page size.
    pub fn max_pages(mut self, pages: u32) -> Self {
        self.max_pages = Some(pages);
        self
    }

    /// Sets whether connecting creates the file and applies missing migrations. The default is
    /// `true`. If `false`, connecting fails with `SchemaMismatch` if a migration of
    /// [`SqliteStore::migrations`] is missing. For a database in memory, connecting then fails with
    /// `Misconfigured`.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Makes the store read the time from this clock instead of the database's clock. For tests.
    pub fn manual_clock(mut self, clock: ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Sets the number of queues that have routes of their own because they were used first,
    /// instead of [`OWN_QUEUES`]. For tests.
    #[doc(hidden)]
    pub fn own_queues(mut self, queues: usize) -> Self {
        self.own_queues = queues;
        self
    }

    /// Opens the database, creates or upgrades Ratchet's tables in it, and starts the store's
    /// threads. Creates the file if it does not exist, but not its directory.
    ///
    /// # Errors
    /// `Misconfigured` if a setting, the URL or the path is invalid. `SchemaMismatch` if Ratchet's
    /// tables in the file have a newer version, were changed, or are incomplete. `ReadOnly`,
    /// `Corrupt`, `Contention`, `Full` or `Unavailable`, depending on the state of the file.
    ///
    /// # Cancel safety
    /// Dropping the future stops the threads that were started. Each migration is applied as a
    /// whole or not at all.
    pub async fn connect(self) -> Result<Checked<SqliteStore>> {
        let config = self
            .into_config()
            .map_err(|error| error.during("connect"))?;
        SqliteStore::open(config).await.map(Checked::new)
    }

    /// Returns all migrations, in order. Does not access the database.
    #[must_use]
    pub fn migrations(&self) -> Vec<Migration> {
        migrate::scripts(migrate::STEPS)
    }

    /// Returns the migrations that [`connect`](Self::connect) would apply, in order. If the file
    /// does not exist, returns all migrations. Changes nothing, and does not create the file.
    ///
    /// # Errors
    /// The same as for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// If the future is dropped, a thread still finishes reading the file.
    pub async fn pending_migrations(self) -> Result<Vec<Migration>> {
        const OPERATION: &str = "pending_migrations";
        let config = self
            .into_config()
            .map_err(|error| error.during(OPERATION))?;
        let looked = tokio::task::spawn_blocking(move || {
            let failed = |failure: Failure| failure.about(&config.location.to_string());
            match open_existing(&config).map_err(failed)? {
                Some(conn) => migrate::pending(&conn).map_err(failed),
                None => Ok(migrate::scripts(migrate::STEPS)),
            }
        });
        match looked.await {
            Ok(pending) => pending.map_err(|failure| failure.during(OPERATION)),
            Err(error) => Err(StoreError::new(StoreErrorKind::Other, OPERATION).with_source(error)),
        }
    }

    /// Checks the settings, as far as this is possible without access to the database.
    ///
    /// # Errors
    /// `Misconfigured`, which names the first invalid setting.
    pub fn check(&self) -> Result<()> {
        let config = self.clone().into_config();
        config
            .map(drop)
            .map_err(|error| error.during("check settings"))
    }

    pub(crate) fn into_config(self) -> Result<Config> {
        let (location, in_url) = parse(&self.target)?;
        for (setting, duration) in [
            ("busy_timeout", self.busy_timeout),
            ("deadline", self.deadline),
        ] {
            if duration.is_zero() {
                return Err(misconfigured(setting, "is zero"));
            }
        }
        if !self.migrate && matches!(location, Location::Memory) {
            return Err(misconfigured(
                "migrate",
                "is off, but a database in memory is always empty when it is opened",
            ));
        }
        if self.max_pages == Some(0) {
            return Err(misconfigured("max_pages", "is zero"));
        }
        Ok(Config {
            location,
            synchronous: self.synchronous.or(in_url).unwrap_or_default(),
            busy_timeout: self.busy_timeout,
            deadline: self.deadline,
            max_pages: self.max_pages,
            migrate: self.migrate,
            clock: self.clock,
            own_queues: self.own_queues,
        })
    }
}

/// The settings of a store, after the builder has checked them.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) location: Location,
    pub(crate) synchronous: Synchronous,
    pub(crate) busy_timeout: Duration,
    pub(crate) deadline: Duration,
    pub(crate) max_pages: Option<u32>,
    pub(crate) migrate: bool,
    pub(crate) clock: Clock,
    pub(crate) own_queues: usize,
}

/// The location of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A file with this path.
    File(PathBuf),
    /// Memory of this process. Each connection has its own database.
    Memory,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Memory => f.write_str(":memory:"),
        }
    }
}

fn misconfigured(what: &'static str, problem: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, "connect")
        .with_source(InvalidInput::new(what, problem))
}

/// Returns the part of a URL after the scheme of this backend. Returns `None` if `text` has no
/// scheme or another scheme.
fn strip_scheme(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(SCHEME)?.strip_prefix(':')?;
    Some(rest.strip_prefix("//").unwrap_or(rest))
}

/// Fails if the text is not a URL of this backend.
pub(crate) fn require_scheme(url: &str) -> Result<()> {
    if strip_scheme(url).is_some() {
        return Ok(());
    }
    // Shows only the scheme: the rest of another backend's URL may contain a password.
    let problem = match url.split_once(':') {
        Some((scheme, _))
            if scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '+') =>
        {
            format!("has the scheme `{scheme}`; expected `{SCHEME}`")
        }
        _ => format!("has no scheme; expected `{SCHEME}://<path>`"),
    };
    Err(misconfigured("the URL", problem))
}

/// Parses a URL or a plain path. Returns the location, and the URL's setting `synchronous` if there
/// is one.
fn parse(target: &OsStr) -> Result<(Location, Option<Synchronous>)> {
    let Some(rest) = target.to_str().and_then(strip_scheme) else {
        return location(PathBuf::from(target)).map(|location| (location, None));
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut synchronous = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "synchronous" => {
                synchronous = Some(match value {
                    "full" => Synchronous::Full,
                    "normal" => Synchronous::Normal,
                    _ => {
                        let problem = format!("is `{value}`; expected `full` or `normal`");
                        return Err(misconfigured("synchronous", problem));
                    }
                });
            }
            _ => accept_of_others(key, value)
                .map_err(|remedy| misconfigured("the URL", format!("has `{pair}`: {remedy}")))?,
        }
    }
    location(PathBuf::from(percent_decode(path)?)).map(|location| (location, synchronous))
}

/// Checks a URL parameter that belongs to SQLite or to another driver. Accepts the parameter if the
/// store behaves as the parameter demands anyway, because an application may use the same URL
/// elsewhere. Otherwise the error says what to do.
fn accept_of_others(key: &str, value: &str) -> std::result::Result<(), &'static str> {
    match (key, value) {
        // The store creates the file with its tables, unless migrations are off.
        ("mode", "rwc") | ("cache", "private") | ("immutable", "0" | "false") => Ok(()),
        ("mode", "rw") => {
            Err("to refuse a missing file, turn `migrate` off and remove this setting from the URL")
        }
        ("mode", "memory") => Err("write `sqlite::memory:` for a database in memory"),
        ("mode" | "immutable", _) => Err("the store must be able to write; remove this setting"),
        ("cache", _) => Err("each connection has its own cache; remove this setting"),
        ("vfs", _) => Err("the store uses the default VFS; remove this setting"),
        _ => Err("the setting is unknown; the only known setting is `synchronous`"),
    }
}

fn location(path: PathBuf) -> Result<Location> {
    let bytes = path.as_os_str().as_encoded_bytes();
    match bytes {
        b"" => Err(misconfigured("the path", "is empty")),
        b":memory:" => Ok(Location::Memory),
        _ if bytes.contains(&0) => Err(misconfigured("the path", "has a NUL")),
        // Without the prefix, SQLite would parse the path as a URI, which may contain settings.
        _ if bytes.starts_with(b"file:") => Ok(Location::File(Path::new(".").join(path))),
        _ => Ok(Location::File(path)),
    }
}

fn percent_decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |at: usize| {
            let digit = char::from(*tail.get(at)?).to_digit(16)?;
            u8::try_from(digit).ok()
        };
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(misconfigured(
                "the path",
                "has a `%` that is not followed by two hexadecimal digits; write `%` as `%25`",
            ));
        };
        bytes.push(high * 16 + low);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| misconfigured("the path", "is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(target: &str) -> Result<Config> {
        Builder::new(OsStr::new(target)).into_config()
    }

    fn problem(result: Result<Config>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        error.to_string()
    }

    #[test]
    fn urls_and_paths_name_files() {
        let table = [
            ("sqlite://jobs.db", "jobs.db"),
            ("sqlite:jobs.db", "jobs.db"),
            ("sqlite:///var/lib/jobs.db", "/var/lib/jobs.db"),
            ("sqlite:/var/lib/jobs.db", "/var/lib/jobs.db"),
            ("sqlite://a%20b%25%C3%A9.db", "a b%é.db"),
            ("sqlite://a?synchronous=normal", "a"),
            ("sqlite://a?mode=rwc&cache=private&immutable=0", "a"),
            ("a%20?b", "a%20?b"),
            ("file:a?mode=memory", "./file:a?mode=memory"),
        ];
        for (target, path) in table {
            let expected = Location::File(path.into());
            assert_eq!(config(target).unwrap().location, expected, "{target}");
        }
        for target in ["sqlite::memory:", "sqlite://:memory:", ":memory:"] {
            assert_eq!(config(target).unwrap().location, Location::Memory);
        }
    }

    #[test]
    fn settings_of_the_url_are_read_and_the_builder_wins() {
        let normal = "sqlite://a?synchronous=normal";
        assert_eq!(config("a").unwrap().synchronous, Synchronous::Full);
        assert_eq!(config(normal).unwrap().synchronous, Synchronous::Normal);
        let both = Builder::new(OsStr::new(normal)).synchronous(Synchronous::Full);
        assert_eq!(both.into_config().unwrap().synchronous, Synchronous::Full);
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        assert!(problem(config("sqlite://")).contains("the path is empty"));
        for refused in [
            "mode=ro",
            "mode=rw",
            "cache=shared",
            "immutable=1",
            "vfs=unix",
            "x=1",
        ] {
            let problem = problem(config(&format!("sqlite://a?{refused}")));
            assert!(problem.contains(&format!("has `{refused}`: ")), "{problem}");
        }
        assert!(problem(config("sqlite://a?synchronous=off")).contains("`off`"));
        assert!(problem(config("sqlite://a%2")).contains("`%`"));
        assert!(problem(config("sqlite://a%ff")).contains("UTF-8"));
        assert!(problem(config("sqlite://a%00")).contains("NUL"));
        let builder = || Builder::new(OsStr::new("a"));
        let zero = Duration::ZERO;
        assert!(problem(builder().busy_timeout(zero).into_config()).contains("busy_timeout"));
        assert!(problem(builder().deadline(zero).into_config()).contains("deadline"));
        assert!(problem(builder().max_pages(0).into_config()).contains("max_pages"));
    }

    #[test]
    fn other_schemes_are_refused_without_their_secrets() {
        let error = require_scheme("postgres://me:secret@host/db").unwrap_err();
        assert!(error.to_string().contains("`postgres`"));
        assert!(!error.to_string().contains("secret"));
        assert!(require_scheme("jobs.db").is_err());
        assert!(require_scheme("sqlite:jobs.db").is_ok());
    }
}
