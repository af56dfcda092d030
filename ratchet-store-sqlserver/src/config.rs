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

/// The URL schemes of this backend.
pub const SCHEMES: [&str; 2] = ["sqlserver", "mssql"];

/// The encryption of the connection to the server.
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
    /// Encrypts everything from the first byte on (TDS 8.0). Needs SQL Server 2022 or later.
    Strict,
    /// Encrypts the whole connection; fails if the server cannot. The default.
    Required,
    /// Encrypts only the login.
    Login,
    /// Encrypts nothing, not even the password. For tests.
    Off,
}

/// Settings of a [`SqlServerStore`], made by [`SqlServerStore::builder`].
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
#[must_use = "nothing is opened before connect"]
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

    /// Sets the encryption, overriding the URL; [`Encryption::Required`] by default.
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = Some(encryption);
        self
    }

    /// Accepts any certificate of the server, overriding the URL. A host that impersonates the
    /// server can then read everything, including the password. Use it only for your own server on
    /// the same host.
    pub fn trust_any_certificate(mut self) -> Self {
        self.trust = Some(Trust::Any);
        self
    }

    /// Also accepts certificates signed by this authority, given as the path of a `.pem`, `.crt` or
    /// `.der` file, in addition to the authorities that the platform trusts.
    pub fn trust_authority(mut self, path: impl Into<String>) -> Self {
        self.trust = Some(Trust::Authority(path.into()));
        self
    }

    /// Sets whether to accept a database whose `READ_COMMITTED_SNAPSHOT` is off; `false` by
    /// default, so that connecting to such a database fails. Do not set it for a database where
    /// that option is on.
    ///
    /// The results stay correct in such a database, but readers of a row wait for its writers, and
    /// writers for readers. Claims, heartbeats, sweeps and purges skip the jobs that another
    /// transaction is writing; a node may learn of a cancellation one heartbeat later. All other
    /// calls wait, and there are more deadlocks, after which the store retries:
    ///
    /// - Reads of jobs, counts and listings wait for enqueues, settlements and transactions of the
    ///   application.
    /// - A transaction of the application that enqueues a child of a stored job locks that job. A
    ///   call that settles this job together with others then fails as a whole, with `Timeout`
    ///   after the deadline, although the others are already settled. The engine repeats the call,
    ///   and learns that they are settled once the transaction has ended.
    /// - Claims of jobs that need permits wait for settlements in progress of jobs that hold the
    ///   same permits.
    /// - Heartbeats wait for other writes to the table of nodes, which are short.
    pub fn locking_reads(mut self, allowed: bool) -> Self {
        self.locking_reads = allowed;
        self
    }

    /// Opens a driver connection to the same database, for statements that cannot run in a
    /// [`Transaction`](crate::Transaction), such as `ALTER DATABASE`. The connection belongs to no
    /// store, but its session has the settings of a store's session.
    ///
    /// # Errors
    /// `Misconfigured` and `Unavailable` as for [`connect`](Self::connect). The tables are not
    /// checked.
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
        let connected = connector.connect().await;
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
        // Sets only one of them, because the driver panics if both are set.
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
    /// Sets the maximum number of connections in the pool, in addition to the one for heartbeats
    /// and locks; 10 by default.
    max_connections;
    /// Sets how long a call waits for a connection; 5 s by default.
    acquire_timeout;
    /// Sets how long a call may take in total before it fails with `Timeout`; 10 s by default,
    /// which is as long as the engine waits for a store. It is also the longest time that the
    /// server waits for a lock (`LOCK_TIMEOUT`), so that a statement that no caller waits for any
    /// more does not continue for long.
    deadline;
    /// Sets the connections' name in `sys.dm_exec_sessions`; `ratchet` unless set here or in the
    /// URL.
    application_name;
    /// Sets how long a connection is used before it is replaced; 30 min by default.
    max_lifetime;
}

impl fmt::Debug for Builder {
    /// Omits the URL, which may include a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .field("encryption", &self.encryption)
            .field("locking_reads", &self.locking_reads)
            .finish_non_exhaustive()
    }
}

/// The settings of a store, after they were checked.
pub(crate) struct Config {
    pub(crate) driver: tiberius::Config,
    /// The host, if only the login or nothing is encrypted.
    pub(crate) plaintext_host: Option<String>,
    /// Whether to try all addresses of the host at once.
    pub(crate) in_parallel: bool,
    pub(crate) settings: Settings,
    /// The SQL expression of the clock.
    pub(crate) clock: String,
    pub(crate) locking_reads: bool,
}

impl Config {
    /// Returns the values of the placeholders in statements, for this server.
    pub(crate) fn words(&self, server: &Server) -> Words {
        let settings = &self.settings;
        Words::new(&settings.schema, &self.clock, settings.deadline, server)
            .locking_reads(self.locking_reads)
    }
}

/// Returns whether a name fits into a field of the login message.
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
        // The store for PostgreSQL tests the other refusals of `ratchet-sql`.
        assert!(problem(builder().deadline(Duration::ZERO)).contains("deadline"));
        assert!(problem(builder().schema("x".repeat(129))).contains("128"));
        assert!(problem(builder().schema("{now}")).contains("brace"));
        assert!(problem(builder().schema("a ")).contains("space"));
        assert!(problem(builder().clock_table("")).contains("clock_table"));
    }

    /// The driver panics if both are set.
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
