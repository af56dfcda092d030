//! Where the database is and how it is used.

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
    /// Everything is encrypted from the first byte on: TDS 8.0, SQL Server 2022 and later.
    Strict,
    /// All of it; the server must be able to. This is the default.
    Required,
    /// The login, and nothing after it.
    Login,
    /// Nothing, not even the password. For tests.
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

    /// Sets the encryption, and wins over the URL. [`Encryption::Required`] unless set.
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = Some(encryption);
        self
    }

    /// Takes whatever certificate the server shows; wins over what the URL says. A host that can
    /// answer in its place then reads everything, the password included; for your own server on the
    /// same host.
    pub fn trust_any_certificate(mut self) -> Self {
        self.trust = Some(Trust::Any);
        self
    }

    /// Takes certificates of this authority, given as the path of a `.pem`, `.crt` or `.der` file,
    /// beside those that the platform trusts.
    pub fn trust_authority(mut self, path: impl Into<String>) -> Self {
        self.trust = Some(Trust::Authority(path.into()));
        self
    }

    /// Whether a database will do whose `READ_COMMITTED_SNAPSHOT` is off; unless set, connecting is
    /// refused there. Leave it off where that is on.
    ///
    /// Nothing becomes wrong in such a database, but a reader of a row waits for its writer, and
    /// the other way round. Claims, heartbeats and sweeps pass over the jobs that another
    /// transaction is just writing, purges too; a cancellation may be heard of one heartbeat later.
    /// The rest waits, with more deadlocks, which are repeated:
    ///
    /// - Reads of jobs, counts and listings wait for enqueues, settlements, and for transactions of
    ///   the application.
    /// - While a transaction of the application holds a job, since it has enqueued another which
    ///   waits for it, a call that ends the claim of that job together with others fails as a
    ///   whole, with `Timeout` after the deadline. The others are settled by then; the engine,
    ///   which repeats the call, hears so when the transaction has ended.
    /// - Claims by permits wait for the ends of claims that have the same permits.
    /// - Heartbeats wait for other writes of the table of nodes, which are short.
    pub fn locking_reads(mut self, allowed: bool) -> Self {
        self.locking_reads = allowed;
        self
    }

    /// Opens a connection of the driver's to the same database, which belongs to no store: for
    /// statements that cannot be in a [`Transaction`](crate::Transaction), such as
    /// `ALTER DATABASE`. Its session has the settings of a store's session.
    ///
    /// # Errors
    /// `Misconfigured` and `Unavailable` as for [`connect`](Self::connect); the tables are not
    /// looked at.
    ///
    /// # Cancel safety
    /// Dropping the future gives the connection up.
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
                let problem = "is longer than a login can tell";
                return Err(misconfigured("application_name", problem));
            }
            driver.application_name(name);
        }
        let encryption = self.encryption.unwrap_or(target.encryption);
        driver.encryption(level(encryption));
        // Never both: the driver panics at that.
        match self.trust.or(target.trust) {
            Some(Trust::Any) => driver.trust_cert(),
            Some(Trust::Authority(path)) => driver.trust_cert_ca(path),
            None => {}
        }
        // Calls have deadlines of their own, and so has connecting.
        driver.command_timeout(None);
        driver.handshake_timeout(None);
        // The server keeps halves of characters too, and one must not make a whole answer
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
    /// How many connections the pool may have, beyond the one for heartbeats and locks. 10 unless
    /// set.
    max_connections;
    /// How long a call waits for a connection. 5 s unless set.
    acquire_timeout;
    /// How long a call may take in all, before it fails with `Timeout`. 10 s unless set, as long as
    /// the engine waits for a store. It is also the longest that the server waits for a lock
    /// (`LOCK_TIMEOUT`), so that it does not go on for long with a statement that no caller waits
    /// for.
    deadline;
    /// How the connections are called in `sys.dm_exec_sessions`, `ratchet` unless set here or in
    /// the URL.
    application_name;
    /// How long a connection is used before another takes its place. 30 min unless set.
    max_lifetime;
}

impl fmt::Debug for Builder {
    /// Without the URL: it may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .field("encryption", &self.encryption)
            .field("locking_reads", &self.locking_reads)
            .finish_non_exhaustive()
    }
}

/// Checked settings.
pub(crate) struct Config {
    pub(crate) driver: tiberius::Config,
    /// The host, if only the login is encrypted, or nothing at all.
    pub(crate) plaintext_host: Option<String>,
    /// Whether all addresses of the host are tried at once.
    pub(crate) in_parallel: bool,
    pub(crate) settings: Settings,
    /// The expression of the clock.
    pub(crate) clock: String,
    pub(crate) locking_reads: bool,
}

impl Config {
    /// The words in the statements of this server.
    pub(crate) fn words(&self, server: &Server) -> Words {
        let settings = &self.settings;
        Words::new(&settings.schema, &self.clock, settings.deadline, server)
            .locking_reads(self.locking_reads)
    }
}

/// Whether a name fits into what a client says of itself when it logs in.
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
            Ok(_) => panic!("it was not refused"),
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

    /// The driver panics where both are said.
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
