//! The settings of the store: where the database is and how to use it.

use std::fmt;
use std::time::Duration;

use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, ConnectionString, ServerAddress, Tls};
use mongodb::{Client, Database};
use ratchet_core::error::storable_error;
use ratchet_core::store::Checked;
use ratchet_core::{InvalidInput, Result, StoreError, StoreErrorKind};

use crate::checks::{check_concerns, check_database, check_prefix, check_scheme};
use crate::clients::{Clients, Pair, Source};
use crate::connection::{Side, Terms};
use crate::migrate::Migration;
use crate::open;
use crate::store::{MongoStore, too_late};

/// The URL schemes of this backend.
pub const SCHEMES: [&str; 2] = ["mongodb", "mongodb+srv"];

/// The database for URLs that name none.
const DATABASE: &str = "ratchet";
/// The maximum deadline, because the server's time limits are 32-bit milliseconds.
const LONGEST_DEADLINE: Duration = Duration::from_millis(i32::MAX as u64);
/// The default deadline. It is longer than an election, which begins 10 s after the primary falls
/// silent.
const DEADLINE: Duration = Duration::from_secs(20);
/// The length of the longest collection name without the prefix.
const LONGEST_COLLECTION: usize = "recurring".len();

/// Settings of a [`MongoStore`], made by [`MongoStore::builder`] or
/// [`MongoStore::database_builder`].
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ratchet_store_mongo::MongoStore;
///
/// let store = MongoStore::builder("mongodb://localhost/app")
///     .prefix("jobs.")
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
    database: Option<String>,
    prefix: String,
    max_connections: Option<u32>,
    deadline: Duration,
    application_name: Option<String>,
    journaled: bool,
    create: bool,
    wakeups: bool,
    clock_collection: Option<String>,
}

#[derive(Clone)]
enum Target {
    Url(String),
    Database(Database),
}

impl Builder {
    pub(crate) fn url(url: &str) -> Self {
        Self::new(Target::Url(url.to_owned()))
    }

    pub(crate) fn of_database(database: Database) -> Self {
        Self::new(Target::Database(database))
    }

    fn new(target: Target) -> Self {
        Self {
            target,
            database: None,
            prefix: "ratchet_".to_owned(),
            max_connections: None,
            deadline: DEADLINE,
            application_name: None,
            journaled: true,
            create: true,
            wakeups: true,
            clock_collection: None,
        }
    }

    /// Sets the name of the database, overriding the URL; `ratchet` if neither names one. Not
    /// allowed if the application supplies the database.
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.database = Some(name.into());
        self
    }

    /// Sets the prefix of the collections' names; `ratchet_` by default.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the maximum size of the pool for each server. It does not include the connections for
    /// heartbeats, locks and wakeups, at most four, nor those with which the driver monitors the
    /// servers. The default is the URL's value, or else 10. Not allowed if the application supplies
    /// the database.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = Some(connections);
        self
    }

    /// Sets how long a call may take in all before it fails with `Timeout`; 20 s by default, at
    /// most about 24 days. A replica set with default settings takes 10 to 12 s to replace a
    /// primary that vanished, and calls of clients wait for that. A node gives up a call after its
    /// own `store_deadline`, and then repeats it.
    ///
    /// Reads and most updates send this limit to the server (`maxTimeMS`), and every write waits at
    /// most that long for a majority (`wtimeout`). If no server can be selected within three
    /// quarters of this time, or within the URL's `serverSelectionTimeoutMS`, the call fails with
    /// `Unavailable`.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the name of the connections in the server's log; `ratchet` unless set here or in the
    /// URL. Not allowed if the application supplies the database.
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into());
        self
    }

    /// Sets whether a write waits until it is in the journals of a majority; `true` by default. If
    /// `false`, it waits only until a majority has it in memory. Acknowledged writes then survive
    /// the loss of any minority of the set, but not a power failure of all members at once.
    pub fn journaled(mut self, journaled: bool) -> Self {
        self.journaled = journaled;
        self
    }

    /// Sets whether to create missing collections and indexes; `true` by default. If `false`,
    /// connecting fails with `SchemaMismatch` unless all exist.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets whether the store carries wakeups ([`MongoCoordinator`](crate::MongoCoordinator));
    /// `true` by default. A standalone server has no wakeups.
    pub fn wakeups(mut self, wakeups: bool) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// For tests: reads the time from the field `now_ms` of the only document of this collection,
    /// which the test has created, instead of the server's clock.
    pub fn clock_collection(mut self, collection: impl Into<String>) -> Self {
        self.clock_collection = Some(collection.into());
        self
    }

    /// Connects, creates missing collections and indexes, and checks that the existing ones are
    /// what this version of Ratchet needs.
    ///
    /// # Errors
    /// `Misconfigured` if a setting, the URL, the credentials, the privileges of the user or the
    /// name of the replica set is wrong, or the URL has `directConnection=true` for one of several
    /// members; `SchemaMismatch` if collections with these names have a newer version, have other
    /// indexes or are not Ratchet's; `Unavailable` or `Timeout` if the database cannot be reached
    /// or does not respond in time.
    ///
    /// # Cancel safety
    /// Dropping the future stops connecting. What was created so far stays, and the next attempt
    /// uses it.
    pub async fn connect(self) -> Result<Checked<MongoStore>> {
        let config = self
            .into_config()
            .await
            .map_err(|error| error.during("connect"))?;
        MongoStore::open(config).await.map(Checked::new)
    }

    /// Returns all migrations for these settings, in order. Does not access the database.
    #[must_use]
    pub fn migrations(&self) -> Vec<Migration> {
        let database = match &self.target {
            Target::Database(database) => Some(database.name().to_owned()),
            Target::Url(url) => self.database.clone().or_else(|| {
                // `connect` reports a URL that cannot be parsed.
                let parsed = ConnectionString::parse(url).ok()?;
                Some(
                    parsed
                        .default_database
                        .unwrap_or_else(|| DATABASE.to_owned()),
                )
            }),
        };
        open::scripts(database.as_deref(), &self.prefix)
    }

    /// Returns the migration that [`connect`](Self::connect) would apply: one step, or none.
    /// Changes nothing.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Dropping the future stops the call.
    pub async fn pending_migrations(self) -> Result<Vec<Migration>> {
        const OPERATION: &str = "pending_migrations";
        let config = self
            .into_config()
            .await
            .map_err(|error| error.during(OPERATION))?;
        let deadline = config.terms.deadline;
        let pair = config.clients.current();
        let pending = tokio::time::timeout(deadline, open::pending(&pair.main, &config)).await;
        if config.clients.are_own() {
            pair.shut_down().await;
        }
        match pending {
            Ok(pending) => pending.map_err(|failure| failure.during(OPERATION)),
            Err(_) => Err(too_late(deadline).during(OPERATION)),
        }
    }

    /// Checks the settings, as far as possible without accessing the database or resolving the
    /// names of its servers.
    ///
    /// # Errors
    /// `Misconfigured`, with the first invalid setting.
    pub fn check(&self) -> Result<()> {
        self.check_settings()
            .map_err(|error| error.during("check settings"))
    }

    fn check_settings(&self) -> Result<()> {
        if self.deadline.is_zero() {
            return Err(misconfigured("deadline", "is zero"));
        }
        if self.deadline > LONGEST_DEADLINE {
            return Err(misconfigured(
                "deadline",
                "is longer than the server allows, which is about 24 days",
            ));
        }
        let database = match &self.target {
            Target::Database(database) => {
                for (setting, set) in [
                    ("max_connections", self.max_connections.is_some()),
                    ("database", self.database.is_some()),
                    ("application_name", self.application_name.is_some()),
                ] {
                    if set {
                        return Err(misconfigured(
                            setting,
                            "must not be set, because the application supplies the database",
                        ));
                    }
                }
                database.name().to_owned()
            }
            Target::Url(url) => {
                check_scheme(url)?;
                if self.max_connections == Some(0) {
                    return Err(misconfigured("max_connections", "is zero"));
                }
                let parsed = ConnectionString::parse(url);
                let parsed = parsed.map_err(|error| unreadable(url, &error.kind))?;
                let name = self.database.clone().or(parsed.default_database);
                let name = name.unwrap_or_else(|| DATABASE.to_owned());
                check_database(&name)?;
                name
            }
        };
        let longest = self.prefix.len() + LONGEST_COLLECTION + 1 + database.len();
        check_prefix(&self.prefix, longest)
    }

    async fn into_config(self) -> Result<Config> {
        self.check_settings()?;
        let terms = Terms {
            journaled: self.journaled,
            deadline: self.deadline,
        };
        let (clients, options) = match &self.target {
            Target::Database(database) => {
                let side = Side::new(database.clone(), &self.prefix, &terms);
                (Clients::new(Pair::of_application(side), None), None)
            }
            Target::Url(url) => {
                let options = self.options(url).await?;
                let name = self.database.clone();
                let name = name.or_else(|| options.default_database.clone());
                let name = name.unwrap_or_else(|| DATABASE.to_owned());
                let source = Source {
                    options: options.clone(),
                    database: name,
                    prefix: self.prefix.clone(),
                    terms: terms.clone(),
                };
                (Clients::new(source.pair()?, Some(source)), Some(options))
            }
        };
        Ok(Config {
            clients,
            options,
            prefix: self.prefix,
            terms,
            create: self.create,
            wakeups: self.wakeups,
            clock_collection: self.clock_collection,
        })
    }

    async fn options(&self, url: &str) -> Result<ClientOptions> {
        let mut options =
            match tokio::time::timeout(self.deadline, ClientOptions::parse(url)).await {
                Ok(options) => options.map_err(|error| unreadable(url, &error.kind))?,
                Err(_) => {
                    return Err(StoreError::new(StoreErrorKind::Unavailable, "connect")
                        .with_source(format!(
                            "the host names in the URL were not resolved within {:?}",
                            self.deadline
                        )));
                }
            };
        check_concerns(&options)?;
        if self.max_connections.is_some() {
            options.max_pool_size = self.max_connections;
        }
        if self.application_name.is_some() {
            options.app_name.clone_from(&self.application_name);
        }
        options.app_name.get_or_insert_with(|| "ratchet".to_owned());
        options
            .server_selection_timeout
            .get_or_insert(self.deadline / 4 * 3);
        options.connect_timeout.get_or_insert(self.deadline / 2);
        Ok(options)
    }
}

pub(crate) fn client(options: ClientOptions) -> Result<Client> {
    Client::with_options(options).map_err(|error| unreadable("", &error.kind))
}

/// Returns the error for a URL that the driver refuses, without the URL's secrets.
fn unreadable(url: &str, kind: &ErrorKind) -> StoreError {
    match kind {
        ErrorKind::DnsResolve { message, .. } => {
            StoreError::new(StoreErrorKind::Unavailable, "connect").with_source(format!(
                "the host names in the URL cannot be resolved: {}",
                storable_error(message)
            ))
        }
        ErrorKind::InvalidArgument { message, .. }
        | ErrorKind::InvalidTlsConfig { message, .. }
            if !quotes_secret(url, message) =>
        {
            misconfigured(
                "the URL",
                format!("is refused: {}", storable_error(message)),
            )
        }
        _ => misconfigured("the URL", "cannot be parsed"),
    }
}

/// Returns whether a message contains a part of the URL's credentials.
fn quotes_secret(url: &str, message: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let Some((user, _)) = rest.rsplit_once('@') else {
        return false;
    };
    let mut parts = user.split([':', '/', '@']).filter(|part| !part.is_empty());
    parts.any(|part| message.contains(part))
}

impl fmt::Debug for Builder {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("database", &self.database)
            .field("prefix", &self.prefix)
            .field("max_connections", &self.max_connections)
            .field("deadline", &self.deadline)
            .field("application_name", &self.application_name)
            .field("journaled", &self.journaled)
            .field("create", &self.create)
            .field("wakeups", &self.wakeups)
            .field("clock_collection", &self.clock_collection)
            .finish_non_exhaustive()
    }
}

/// Checked settings.
pub(crate) struct Config {
    pub(crate) clients: Clients,
    /// The options of the URL; `None` if the application supplies the database.
    pub(crate) options: Option<ClientOptions>,
    pub(crate) prefix: String,
    pub(crate) terms: Terms,
    pub(crate) create: bool,
    pub(crate) wakeups: bool,
    pub(crate) clock_collection: Option<String>,
}

impl Config {
    /// Returns the first host, if the driver connects to it without TLS. `None` with a client of
    /// the application, whose options are unknown.
    pub(crate) fn plaintext_host(&self) -> Option<String> {
        plaintext_host(self.options.as_ref()?)
    }
}

fn plaintext_host(options: &ClientOptions) -> Option<String> {
    match options.tls {
        Some(Tls::Enabled(_)) => None,
        _ => Some(match options.hosts.first()? {
            ServerAddress::Tcp { host, .. } => host.clone(),
            socket => socket.to_string(),
        }),
    }
}

pub(crate) fn misconfigured(what: &'static str, problem: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, "connect")
        .with_source(InvalidInput::new(what, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn problem(builder: Builder) -> String {
        match builder.into_config().await {
            Ok(_) => panic!("it was not refused"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
                error.to_string()
            }
        }
    }

    fn builder() -> Builder {
        Builder::url("mongodb://me:secret@host/db")
    }

    #[tokio::test]
    async fn a_url_without_tls_is_plaintext() {
        let host = async |url: &str| {
            let options = ClientOptions::parse(url).await.unwrap();
            plaintext_host(&options)
        };
        assert_eq!(host("mongodb://db:1/jobs").await.as_deref(), Some("db"));
        let off = host("mongodb://db/jobs?tls=false").await;
        assert_eq!(off.as_deref(), Some("db"));
        assert_eq!(host("mongodb://db/jobs?tls=true").await, None);
    }

    #[tokio::test]
    async fn what_cannot_work_is_refused_by_name() {
        let table = [
            (builder().deadline(Duration::ZERO), "deadline is zero"),
            (builder().deadline(Duration::MAX), "24 days"),
            (
                builder().deadline(LONGEST_DEADLINE + Duration::from_millis(1)),
                "24 days",
            ),
            (builder().max_connections(0), "max_connections"),
            (builder().database(""), "database is empty"),
            (builder().database("admin"), "reserved"),
            (builder().database("\u{1f980}".repeat(40)), "63 bytes"),
            (builder().database("a.b"), "does not allow"),
            (builder().database("a\0b"), "does not allow"),
            (builder().prefix("a$"), "`$`"),
            (builder().prefix("system.x"), "system."),
            (builder().prefix("x".repeat(250)), "255 bytes"),
            (Builder::url("mysql://me:secret@host/db"), "`mysql`"),
            (Builder::url("host/db"), "no scheme"),
            (Builder::url("mongodb://host:port/db"), "the URL"),
            (Builder::url("mongodb://host/db?w=1"), "w=majority"),
            (Builder::url("mongodb://host/db?w=0"), "w=majority"),
            (Builder::url("mongodb://host/db?journal=false"), "journaled"),
            (
                Builder::url("mongodb://host/db?readPreference=secondary"),
                "primary",
            ),
            (
                Builder::url("mongodb://host/db?retryWrites=false"),
                "retries",
            ),
            (
                Builder::url("mongodb://host/db?wtimeoutMS=5000"),
                "Builder::deadline",
            ),
            (
                Builder::url("mongodb://host/db?readConcernLevel=local"),
                "readConcernLevel=majority",
            ),
            (
                Builder::url("mongodb://host/db?readConcernLevel=snapshot"),
                "readConcernLevel=majority",
            ),
        ];
        for (builder, part) in table {
            let problem = problem(builder).await;
            assert!(problem.contains(part), "{problem}: {part}");
        }
    }

    #[tokio::test]
    async fn what_is_asked_for_anyway_is_taken() {
        let url = "mongodb://host/db?w=majority&journal=true&readConcernLevel=majority\
                   &readPreference=primary&retryWrites=true";
        let builder = Builder::url(url).deadline(LONGEST_DEADLINE);
        assert!(builder.into_config().await.is_ok());
    }

    #[tokio::test]
    async fn an_election_with_default_settings_is_waited_for() {
        const ELECTION: Duration = Duration::from_secs(12);
        let config = Builder::url("mongodb://h").into_config().await.unwrap();
        let found_within = config.options.unwrap().server_selection_timeout.unwrap();
        assert!(found_within > ELECTION && config.terms.deadline > found_within);
    }

    #[tokio::test]
    async fn no_secret_is_shown() {
        for url in [
            "mysql://me:secret@host/db",
            "secret@host",
            "mongodb://me:secret@host:port/db",
            "mongodb://me:se%cret@host/db",
            "mongodb://me:sec/ret@host/db",
            "mongodb://me:secret@host/db?w=1",
        ] {
            let builder = Builder::url(url);
            assert!(!format!("{builder:?}").contains("secret"));
            let problem = problem(builder).await;
            assert!(
                !problem.contains("secret") && !problem.contains("ret@"),
                "{problem}"
            );
        }
    }

    #[tokio::test]
    async fn names_are_the_builders_or_the_urls_or_ours() {
        let of = |builder: Builder| async {
            let config = builder.into_config().await.unwrap();
            let options = config.options.unwrap();
            let database = config.clients.current().main.database.name().to_owned();
            (database, options.app_name.unwrap())
        };
        let ours = of(Builder::url("mongodb://h")).await;
        assert_eq!(ours, ("ratchet".to_owned(), "ratchet".to_owned()));
        let url = Builder::url("mongodb://h/d?appName=app");
        assert_eq!(of(url.clone()).await, ("d".to_owned(), "app".to_owned()));
        let theirs = of(url.database("größe").application_name("b")).await;
        assert_eq!(theirs, ("größe".to_owned(), "b".to_owned()));
    }
}
