//! The store that applications use: opens it, and implements what is specific to MySQL.

use std::fmt;
use std::sync::Arc;

use ratchet_core::Result;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::Checked;
use ratchet_sql::{Migration, SqlStore, in_time};
use sqlx::MySqlPool;
use sqlx::mysql::MySqlConnectOptions;

use crate::config::{Builder, Config};
use crate::connection::connections;
use crate::dialect::Mysql;
use crate::migrate;
use crate::statements::statements;

/// A store that keeps its data in tables of a MySQL or MariaDB database.
///
/// Clones share the connections. All stores that use the same tables form one cluster. They may run
/// in any number of processes and on any number of hosts.
///
/// Calls need a Tokio runtime with timers and I/O enabled.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet_core::Ratchet;
/// use ratchet_store_mysql::MysqlStore;
///
/// let store = MysqlStore::connect("mysql://app@localhost/app").await?;
/// let client = Ratchet::client(std::sync::Arc::new(store));
/// # drop(client);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MysqlStore(Arc<Inside>);

struct Inside {
    store: SqlStore<Mysql>,
    options: MySqlConnectOptions,
}

impl MysqlStore {
    /// Connects to the database at this URL, and creates or upgrades the tables whose names begin
    /// with `ratchet_`.
    ///
    /// The URL has the form `mysql://user:password@host:3306/database`; `mariadb://` is the same.
    /// It accepts the query parameters of the driver, such as `ssl-mode` and `ssl-ca`. Unless the
    /// URL has an `ssl-mode`, connections to other hosts are encrypted, and the certificate of the
    /// server is verified.
    ///
    /// # Errors
    /// The same as for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Checked<Self>> {
        Self::builder(url).connect().await
    }

    /// Opens a store that uses a pool of the application, with tables whose names begin with
    /// `ratchet_`, in the database of the pool.
    ///
    /// Each call of the store sets up the session of the connection, and restores it at its end,
    /// without more round trips. For heartbeats and locks, the store opens a connection outside the
    /// pool, with the options of the pool. [`Store::close`](ratchet_core::Store::close) also closes
    /// the pool, and waits until the application has returned its connections.
    ///
    /// The driver logs statements, together with their values, unless the options of the pool
    /// disable that (`ConnectOptions::disable_statement_logging`).
    ///
    /// # Errors
    /// The same as for [`Builder::connect`].
    pub async fn from_pool(pool: MySqlPool) -> Result<Checked<Self>> {
        Self::pool_builder(pool).connect().await
    }

    /// Returns a builder that connects to the database at this URL.
    pub fn builder(url: &str) -> Builder {
        Builder::url(url)
    }

    /// Returns a builder that uses this pool of the application.
    pub fn pool_builder(pool: MySqlPool) -> Builder {
        Builder::pool(pool)
    }

    /// Returns all migrations that create the tables with this prefix, in order.
    ///
    /// The scripts of these migrations can be read, or run by hand in the database of the tables.
    /// If you run them by hand, connect with [`Builder::migrate`] set to `false`. A script that was
    /// interrupted can run again.
    #[must_use]
    pub fn migrations(schema: &str) -> Vec<Migration> {
        migrate::scripts(schema, migrate::STEPS)
    }

    /// Closes all connections, including those of the application's pool.
    async fn close_connections(&self) {
        let connections = self.shared().pools();
        connections.close().await;
        connections.pool.returned().await;
    }

    pub(crate) async fn open(config: Config) -> Result<Self> {
        let sql = statements(&config.names, &config.clock);
        // Boxed, to keep the callers' futures small.
        let opening = Box::pin(async {
            let connections = connections(&config);
            let version = migrate::open(&connections.liveness, &sql, &config).await?;
            SqlStore::open(connections, sql, version, &config.settings).await
        });
        let store = in_time("connect", config.settings.deadline, opening).await?;
        Ok(Self(Arc::new(Inside {
            store,
            options: config.options,
        })))
    }

    /// Returns the part of the store that all SQL dialects share.
    pub(crate) fn shared(&self) -> &SqlStore<Mysql> {
        &self.0.store
    }

    /// Returns the options of the connections.
    pub(crate) fn options(&self) -> &MySqlConnectOptions {
        &self.0.options
    }

    #[expect(clippy::unused_self, reason = "the macro below calls it as a method")]
    fn no_coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        None
    }
}

ratchet_sql::store!(MysqlStore, shared, no_coordinator, close_connections);

impl fmt::Debug for MysqlStore {
    /// Formats the store without the options of the connections, because these contain the
    /// password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore")
            .field("schema", &self.shared().schema())
            .field("version", &self.shared().version())
            .finish_non_exhaustive()
    }
}
