//! The store that applications use: opens it, and implements what is specific to SQL Server.

use std::fmt;
use std::sync::Arc;

use ratchet_core::Result;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::Checked;
use ratchet_sql::{Migration, SqlStore, in_time};

use crate::config::{Builder, Config};
use crate::connection::connections;
use crate::dialect::SqlServer;
use crate::migrate;
use crate::session;
use crate::statements::statements;
use crate::transaction::Transaction;

/// A store that keeps its data in tables of a SQL Server schema.
///
/// Clones share the connections. All stores that use the same schema form one cluster. They may run
/// in any number of processes and on any number of hosts.
///
/// Calls need a Tokio runtime with timers and I/O enabled.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet_core::store::Store as _;
/// use ratchet_store_sqlserver::SqlServerStore;
///
/// let store = SqlServerStore::connect("sqlserver://app@localhost/app").await?;
/// println!("{:?} connections", store.connections());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SqlServerStore(Arc<Inside>);

struct Inside {
    store: SqlStore<SqlServer>,
    plaintext_host: Option<String>,
}

impl SqlServerStore {
    /// Connects to the database at this URL, and creates or upgrades the tables in the schema
    /// `ratchet`.
    ///
    /// The URL has the form `sqlserver://user:password@host:1433/database`. The scheme `mssql://`
    /// means the same. A connection string of ADO.NET is accepted too:
    /// `Server=tcp:host,1433;Database=…;User Id=…;…`.
    ///
    /// A URL accepts the following parameters. [`Builder`] has a method for each of them except
    /// `host_in_certificate` and `multi_subnet_failover`.
    /// - `encrypt`: `strict`, `required` (the default), `login` or `off`
    /// - `trust_any_certificate`: `true` or `false`
    /// - `trust_authority`: the path of the authority's certificate
    /// - `host_in_certificate`: the name that the server's certificate must have
    /// - `application_name`: the name that `sys.dm_exec_sessions` shows for the connections
    /// - `multi_subnet_failover`: with `true`, the store tries all addresses of the host at the
    ///   same time
    ///
    /// # Errors
    /// The same as for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Checked<Self>> {
        Self::builder(url).connect().await
    }

    /// Returns a builder for the database at this URL. `url` may also be a connection string of
    /// ADO.NET.
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    /// Returns all migrations that create the tables in this schema, in order.
    ///
    /// The scripts of these migrations can be read, or run by hand. If you run them by hand, run
    /// each missing migration in its own transaction, and connect with [`Builder::migrate`] set to
    /// `false`. The first line of the first script creates the schema if it does not exist.
    #[must_use]
    pub fn migrations(schema: &str) -> Vec<Migration> {
        migrate::scripts(schema, migrate::STEPS)
    }

    /// Begins a transaction for the application, on a connection of the store's pool. The
    /// application can write its own data in the transaction, and enqueue jobs with
    /// [`Client::enqueue_in`](ratchet_core::Client::enqueue_in).
    ///
    /// # Errors
    /// `Timeout` if no connection was free in time, or a failure of the database.
    ///
    /// # Cancel safety
    /// If the future is dropped, no transaction was begun.
    pub async fn begin(&self) -> Result<Transaction> {
        const OPERATION: &str = "begin";
        let store = self.shared();
        let begun = store.within(store.repeat_lost(|| Transaction::begin(self)));
        begun.await.map_err(|failure| failure.during(OPERATION))
    }

    async fn close_connections(&self) {
        // Does not wait for the connections of transactions of the application.
        self.shared().pools().close().await;
    }

    pub(crate) async fn open(config: Config) -> Result<Self> {
        let opening = Box::pin(async {
            let connections = connections(&config);
            let liveness = &connections.liveness;
            let server = session::check(&mut liveness.lease().await?, config.locking_reads).await?;
            let words = config.words(&server);
            let sql = statements(&words);
            migrate::open(liveness, &sql, &words, &server.user, &config).await?;
            let store = SqlStore::open(connections, sql, server.version, &config.settings);
            store.await
        });
        let store = in_time("connect", config.settings.deadline, opening).await?;
        Ok(Self(Arc::new(Inside {
            store,
            plaintext_host: config.plaintext_host,
        })))
    }

    /// Returns the part of the store that all SQL dialects share.
    pub(crate) fn shared(&self) -> &SqlStore<SqlServer> {
        &self.0.store
    }

    /// Returns the server's host, if the connections are not encrypted or only the login is.
    pub(crate) fn plaintext_host(&self) -> Option<&str> {
        self.0.plaintext_host.as_deref()
    }

    /// Returns `None`, because SQL Server has no channel on which all nodes could listen.
    fn no_coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        None
    }
}

ratchet_sql::store!(SqlServerStore, shared, no_coordinator, close_connections);

impl fmt::Debug for SqlServerStore {
    /// Formats the store without the connections, because their settings contain the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServerStore")
            .field("schema", &self.shared().schema())
            .field("version", &self.shared().version())
            .finish_non_exhaustive()
    }
}
