//! The settings of the store: where the database is and how to use it.

use std::fmt;
use std::time::Duration;

use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, ConnectionString, ServerAddress, Tls};
use mongodb::{Client, Database};
use ratchet_core::dictionary::OWN_QUEUES;
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

/// Name of the database if neither the URL nor the builder names one.
const DATABASE: &str = "ratchet";
/// Maximum deadline. The server's time limits are 32-bit numbers of milliseconds.
const LONGEST_DEADLINE: Duration = Duration::from_millis(i32::MAX as u64);
/// Default deadline. It exceeds the time to replace a failed primary: the election begins 10 s
/// after the primary stops responding.
const DEADLINE: Duration = Duration::from_secs(20);
/// Length of the longest collection name without the prefix, in bytes.
const LONGEST_COLLECTION: usize = "recurring".len();

/// Settings of a [`MongoStore`]. Create a builder with [`MongoStore::builder`] or
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
#[must_use = "the builder opens nothing before `connect` is called"]
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
    own_queues: usize,
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
            own_queues: OWN_QUEUES,
        }
    }

    /// Sets the name of the database. The default is the name in the URL, or `ratchet` if the URL
    /// contains none. Must not be set if the application supplies the database.
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.database = Some(name.into());
        self
    }

    /// Sets the prefix of the collection names. The default is `ratchet_`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the maximum number of pooled connections to each server. The default is the value in
    /// the URL, or 10 if the URL contains none. Must not be set if the application supplies the
    /// database.
    ///
    /// The store opens other connections in addition: at most four for heartbeats, locks and
    /// wakeups, and those with which the driver monitors the servers.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = Some(connections);
        self
    }

    /// Sets the maximum duration of a call, after which the call fails with `Timeout`. The default
    /// is 20 s, the maximum about 24 days.
    ///
    /// A replica set with default settings takes 10 to 12 s to replace a failed primary. During
    /// this time, calls of clients wait, and fail at their deadline. A node stops waiting for a
    /// call after its own `store_deadline`, and then repeats the call.
    ///
    /// Reads and most updates send this limit to the server as `maxTimeMS`. Every write waits at
    /// most this long until a majority of the members has it (`wtimeout`). If the driver finds no
    /// suitable server in time, the call fails with `Unavailable`. The time limit for finding a
    /// server is the URL's `serverSelectionTimeoutMS`. If the URL does not set it, the limit is
    /// three quarters of this deadline.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the name that the server's log shows for the connections. The default is the name in
    /// the URL, or `ratchet` if the URL contains none. Must not be set if the application supplies
    /// the database.
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into());
        self
    }

    /// Sets whether a write waits until a majority of the members has it in the journal. The
    /// default is `true`.
    ///
    /// If `false`, a write waits only until a majority has it in memory. Acknowledged writes then
    /// survive the loss of any minority of the members, but not a power failure of all members at
    /// the same time.
    pub fn journaled(mut self, journaled: bool) -> Self {
        self.journaled = journaled;
        self
    }

    /// Sets whether connecting creates missing collections and indexes. The default is `true`. If
    /// `false` and one of them is missing, connecting fails with `SchemaMismatch`.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets whether the store transports wakeups between nodes through a
    /// [`MongoCoordinator`](crate::MongoCoordinator). The default is `true`. On a standalone
    /// server, the store never transports wakeups.
    pub fn wakeups(mut self, wakeups: bool) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// Sets a collection from which the store reads the time, instead of the server's clock. For
    /// tests only.
    ///
    /// The test must create this collection with one document. Its field `now_ms` is the time in
    /// milliseconds since 1970.
    pub fn clock_collection(mut self, collection: impl Into<String>) -> Self {
        self.clock_collection = Some(collection.into());
        self
    }

    /// Sets the number of queues that get routes of their own because they were used first, instead
    /// of [`OWN_QUEUES`]. For tests.
    #[doc(hidden)]
    pub fn own_queues(mut self, queues: usize) -> Self {
        self.own_queues = queues;
        self
    }

    /// Connects to the database, creates missing collections and indexes, and checks that the
    /// existing ones match this version of Ratchet.
    ///
    /// # Errors
    /// - `Misconfigured` if a setting, the URL, the credentials, the user's privileges or the name
    ///   of the replica set is wrong. Also if the URL has `directConnection=true` but the replica
    ///   set has several members.
    /// - `SchemaMismatch` if collections with these names have a newer version, have other indexes,
    ///   or are not Ratchet's.
    /// - `Unavailable` or `Timeout` if the database cannot be reached or does not respond in time.
    ///
    /// # Cancel safety
    /// Dropping the future stops connecting. Collections and indexes that were already created
    /// remain, and the next attempt uses them.
    pub async fn connect(self) -> Result<Checked<MongoStore>> {
        let config = self
            .into_config()
            .await
            .map_err(|error| error.during("connect"))?;
        MongoStore::open(config).await.map(Checked::new)
    }

    /// Returns all migrations for these settings, in order of version. Does not access the
    /// database.
    #[must_use]
    pub fn migrations(&self) -> Vec<Migration> {
        let database = match &self.target {
            Target::Database(database) => Some(database.name().to_owned()),
            Target::Url(url) => self.database.clone().or_else(|| {
                // Ignore a URL that cannot be parsed: `connect` reports it.
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

    /// Returns the migration that [`connect`](Self::connect) would apply, or an empty list if no
    /// migration is missing. Changes nothing in the database.
    ///
    /// # Errors
    /// The same as for [`connect`](Self::connect).
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

    /// Checks all settings that can be checked without accessing the database and without resolving
    /// the names of its servers.
    ///
    /// # Errors
    /// `Misconfigured` for the first invalid setting.
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
            own_queues: self.own_queues,
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

/// Builds the error for a URL that the driver rejects. The error contains no password or user name
/// from the URL.
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

/// Returns whether `message` contains a part of the user name or password in the URL.
fn quotes_secret(url: &str, message: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let Some((user, _)) = rest.rsplit_once('@') else {
        return false;
    };
    let mut parts = user.split([':', '/', '@']).filter(|part| !part.is_empty());
    parts.any(|part| message.contains(part))
}

impl fmt::Debug for Builder {
    /// Does not write the URL, because it may contain a password.
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

/// Settings that have been checked.
pub(crate) struct Config {
    pub(crate) clients: Clients,
    /// Client options from the URL. `None` if the application supplies the database.
    pub(crate) options: Option<ClientOptions>,
    pub(crate) prefix: String,
    pub(crate) terms: Terms,
    pub(crate) create: bool,
    pub(crate) wakeups: bool,
    pub(crate) clock_collection: Option<String>,
    pub(crate) own_queues: usize,
}

impl Config {
    /// Returns the first host to which the driver connects without TLS. Returns `None` if the
    /// driver uses TLS, or if the application supplies the client.
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
            Ok(_) => panic!("expected the settings to be refused"),
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
