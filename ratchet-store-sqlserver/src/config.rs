//! The settings of the store: where the database is and how to use it.

use std::fmt;

use ratchet_core::Result;
use ratchet_sql::{Settings, misconfigured};
use tiberius::EncryptionLevel;

use crate::connect::{Connector, DriverConnection};
use crate::dialect::SqlServer;
use crate::migrate::{self, STEPS};
use crate::session::{Server, Session};
use crate::store::SqlServerStore;
use crate::target::{self, Trust};
use crate::words::Words;

/// URL schemes that this backend accepts.
pub const SCHEMES: [&str; 2] = ["sqlserver", "mssql"];

/// Encryption of the connections to the server.
///
/// ```
/// use ratchet_store_sqlserver::{Encryption, SqlServerStore};
///
/// let builder = SqlServerStore::builder("sqlserver://app@localhost/app");
/// let builder = builder.encryption(Encryption::Strict);
/// # drop(builder);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encryption {
    /// Encrypts the connection from the first byte on (TDS 8.0). Needs SQL Server 2022 or later.
    Strict,
    /// Encrypts the connection. Connecting fails if the server does not support encryption. This is
    /// the default.
    Required,
    /// Encrypts only the login, and nothing after it.
    Login,
    /// Encrypts nothing, not even the password. For tests.
    Off,
}

/// Settings of a [`SqlServerStore`]. Created by [`SqlServerStore::builder`].
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet_store_sqlserver::{Encryption, SqlServerStore};
///
/// let builder = SqlServerStore::builder("sqlserver://app@localhost/app");
/// let store = builder.encryption(Encryption::Strict).connect().await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "the builder opens nothing before `connect` is called"]
pub struct Builder {
    target: String,
    settings: Settings,
    encryption: Option<Encryption>,
    trust: Option<Trust>,
    locking_reads: bool,
}

impl Builder {
    pub(crate) fn new(target: &str) -> Self {
        Self {
            target: target.to_owned(),
            settings: Settings::new(STEPS),
            encryption: None,
            trust: None,
            locking_reads: false,
        }
    }

    /// Sets the encryption. Overrides the setting in the URL. The default is
    /// [`Encryption::Required`].
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = Some(encryption);
        self
    }

    /// Makes the store accept any certificate of the server. Overrides the setting in the URL. A
    /// host that impersonates the server can then read all data, including the password. Use this
    /// only for your own server on the same host.
    pub fn trust_any_certificate(mut self) -> Self {
        self.trust = Some(Trust::Any);
        self
    }

    /// Makes the store also accept certificates that this authority has signed. `path` names the
    /// authority's certificate, a `.pem`, `.crt` or `.der` file. The authorities that the platform
    /// trusts are still accepted.
    pub fn trust_authority(mut self, path: impl Into<String>) -> Self {
        self.trust = Some(Trust::Authority(path.into()));
        self
    }

    /// Sets whether the store accepts a database whose option `READ_COMMITTED_SNAPSHOT` is off. The
    /// default is `false`, so connecting to such a database fails. Leave the setting at `false` for
    /// a database where the option is on.
    ///
    /// Results are correct in such a database too. However, readers of a row wait for its writers,
    /// and writers wait for its readers. Claims, heartbeats, purges and the search for dead nodes
    /// skip jobs that another transaction is writing. So a node may learn of a cancellation one
    /// heartbeat later. All other calls wait. Deadlocks are more frequent, and the store retries
    /// after each of them. These are the effects on other calls:
    ///
    /// - Reads of jobs, counts and listings wait for enqueues, settlements and transactions of the
    ///   application.
    /// - A transaction of the application that enqueues a child of a stored job locks that job. A
    ///   call that settles this job together with other jobs then fails with `Timeout` after the
    ///   deadline, although the other jobs are already settled. The engine repeats the call. Once
    ///   the transaction has ended, the repeated call reports all jobs as settled.
    /// - Claims of jobs that need permits of a resource wait for running settlements of jobs that
    ///   hold such permits.
    /// - Heartbeats wait for other writes to the table of nodes. Such writes are short.
    pub fn locking_reads(mut self, allowed: bool) -> Self {
        self.locking_reads = allowed;
        self
    }

    /// Opens a connection of the driver to the same database. Use it for statements that cannot run
    /// in a [`Transaction`](crate::Transaction), such as `ALTER DATABASE`. The connection does not
    /// belong to a store, and its session has the same settings as a session of the store.
    ///
    /// # Errors
    /// `Misconfigured` and `Unavailable`, in the same cases as for [`connect`](Self::connect). The
    /// tables are not checked.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect_driver(self) -> Result<DriverConnection> {
        const OPERATION: &str = "connect_driver";
        let config = self
            .into_config()
            .map_err(|error| error.during(OPERATION))?;
        let session = Session::new(config.settings.deadline);
        let connector = Connector::new(&config, session);
        let connected = connector.open().await;
        connected.map_err(|failure| failure.during(OPERATION))
    }

    fn into_config(self) -> Result<Config> {
        let clock = self.settings.check::<SqlServer>()?;
        let target = target::parse(&self.target)?;
        let mut driver = target.driver;
        if let Some(name) = &self.settings.application_name {
            if !fits_login(name) {
                let problem = "is longer than 128 characters";
                return Err(misconfigured("application_name", problem));
            }
            driver.application_name(name);
        }
        let encryption = self.encryption.unwrap_or(target.encryption);
        driver.encryption(level(encryption));
        // Sets only one of the two options, because the driver panics if both are set.
        match self.trust.or(target.trust) {
            Some(Trust::Any) => driver.trust_cert(),
            Some(Trust::Authority(path)) => driver.trust_cert_ca(path),
            None => {}
        }
        // The store has its own deadlines for calls and for connecting.
        driver.command_timeout(None);
        driver.handshake_timeout(None);
        // The server can store unpaired surrogates, and one of them must not make a whole answer
        // unreadable.
        driver.lossy_utf16_decoding(true);
        let plain = matches!(encryption, Encryption::Login | Encryption::Off);
        Ok(Config {
            driver,
            plaintext_host: plain.then_some(target.host),
            in_parallel: target.in_parallel,
            clock,
            settings: self.settings,
            locking_reads: self.locking_reads,
        })
    }
}

ratchet_sql::builder! {
    SqlServerStore;
    /// Sets the maximum number of connections in the pool. The default is 10. The connection for
    /// heartbeats and locks is not included.
    max_connections;
    /// Sets how long a call waits for a connection of the pool. The default is 5 s.
    acquire_timeout;
    /// Sets how long a call may take in total before it fails with `Timeout`. The default is 10 s,
    /// which is as long as the engine waits for a store.
    ///
    /// The deadline is also the longest time that the server waits for a lock (`LOCK_TIMEOUT`). So
    /// the server soon ends a waiting statement, even if no caller waits for the statement any
    /// more.
    deadline;
    /// Sets the name that `sys.dm_exec_sessions` shows for the connections. This name overrides the
    /// one in the URL. Without either, the name is `ratchet`.
    application_name;
    /// Sets the age at which a connection is replaced. The default is 30 min.
    max_lifetime;
}

impl fmt::Debug for Builder {
    /// Formats the builder without the URL, because the URL may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .field("encryption", &self.encryption)
            .field("locking_reads", &self.locking_reads)
            .finish_non_exhaustive()
    }
}

/// The settings of a store, after the builder has checked them.
pub(crate) struct Config {
    pub(crate) driver: tiberius::Config,
    /// The server's host, if the connections are not encrypted or only the login is encrypted.
    pub(crate) plaintext_host: Option<String>,
    /// Whether to try all addresses of the host at the same time.
    pub(crate) in_parallel: bool,
    pub(crate) settings: Settings,
    /// SQL expression that returns the current time.
    pub(crate) clock: String,
    pub(crate) locking_reads: bool,
}

impl Config {
    /// Returns the values that replace the placeholders in statements, for this server.
    pub(crate) fn words(&self, server: &Server) -> Words {
        let settings = &self.settings;
        Words::new(&settings.schema, &self.clock, settings.deadline, server)
            .locking_reads(self.locking_reads)
    }
}

/// Returns whether a name is short enough for the login message.
pub(crate) fn fits_login(name: &str) -> bool {
    const LONGEST: usize = 128;
    name.encode_utf16().count() <= LONGEST
}

pub(crate) const fn level(encryption: Encryption) -> EncryptionLevel {
    match encryption {
        Encryption::Strict => EncryptionLevel::Strict,
        Encryption::Required => EncryptionLevel::Required,
        Encryption::Login => EncryptionLevel::Off,
        Encryption::Off => EncryptionLevel::NotSupported,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratchet_core::StoreErrorKind;

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

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        let builder = || Builder::new("sqlserver://me:secret@host/db");
        // The tests of the store for PostgreSQL cover the other settings that `ratchet-sql`
        // rejects.
        assert!(problem(builder().deadline(Duration::ZERO)).contains("deadline"));
        assert!(problem(builder().schema("x".repeat(129))).contains("128"));
        assert!(problem(builder().schema("{now}")).contains("brace"));
        assert!(problem(builder().schema("a ")).contains("space"));
        assert!(problem(builder().clock_table("")).contains("clock_table"));
    }

    /// The driver panics if both a trusted authority and trust in any certificate are set.
    #[test]
    fn the_builder_wins_over_what_the_target_trusts() {
        for target in [
            "sqlserver://me:p@host/db?trust_any_certificate=true",
            "sqlserver://me:p@host/db?trust_authority=ca.pem",
            "Server=host;User Id=me;TrustServerCertificate=true",
            "Server=host;User Id=me;TrustServerCertificateCA=ca.pem",
        ] {
            let any = Builder::new(target).trust_any_certificate();
            let any = format!("{:?}", any.into_config().unwrap().driver);
            assert!(any.contains("bypass: true"), "{any}");
            let authority = Builder::new(target).trust_authority("other.pem");
            let authority = format!("{:?}", authority.into_config().unwrap().driver);
            assert!(authority.contains("bypass: false"), "{authority}");
            assert!(authority.contains("other.pem"), "{authority}");
        }
    }

    #[test]
    fn the_builder_wins_over_the_targets_name_and_encryption() {
        let target = "sqlserver://me:p@host/db?application_name=theirs&encrypt=off";
        let builder = Builder::new(target).application_name("ours");
        let builder = builder.encryption(Encryption::Strict);
        let driver = format!("{:?}", builder.into_config().unwrap().driver);
        assert!(
            driver.contains("ours") && driver.contains("Strict"),
            "{driver}"
        );
    }

    #[test]
    fn a_connection_that_encrypts_the_login_at_most_is_plaintext() {
        let host = |encryption: &str, builder: fn(Builder) -> Builder| {
            let target = format!("sqlserver://me:p@db/jobs{encryption}");
            let config = builder(Builder::new(&target)).into_config().unwrap();
            config.plaintext_host
        };
        let same = |builder| builder;
        for encrypted in ["", "?encrypt=true", "?encrypt=strict"] {
            assert_eq!(host(encrypted, same), None, "{encrypted}");
        }
        for plain in ["?encrypt=login", "?encrypt=off"] {
            assert_eq!(host(plain, same).as_deref(), Some("db"), "{plain}");
        }
        let off: fn(Builder) -> Builder = |builder| builder.encryption(Encryption::Off);
        assert_eq!(host("?encrypt=strict", off).as_deref(), Some("db"));
    }

    #[test]
    fn no_secret_is_shown() {
        for url in [
            "mysql://me:secret@host/db",
            "secret@host",
            "sqlserver://me:secret@host:port/db",
            "Server=a\\b\\c,1,2;Password=secret",
        ] {
            let builder = Builder::new(url);
            assert!(!format!("{builder:?}").contains("secret"));
            assert!(!problem(builder).contains("secret"), "{url}");
        }
    }
}
