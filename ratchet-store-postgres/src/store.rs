//! The store that applications use: opens it, and implements what is specific to PostgreSQL.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ratchet_core::Result;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::Checked;
use ratchet_sql::{Migration, SqlStore, in_time};
use sqlx::postgres::{PgConnectOptions, PgPool};

use crate::config::{Builder, Config};
use crate::connection::connections;
use crate::coordinator::PostgresCoordinator;
use crate::dialect::Postgres;
use crate::migrate;
use crate::pooler;
use crate::statements::statements;

/// A store that keeps its data in tables of a PostgreSQL schema.
///
/// Clones share the connections. All stores that use the same schema form one cluster. They may run
/// in any number of processes and on any number of hosts.
///
/// Calls need a Tokio runtime with timers and I/O enabled.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet_core::Ratchet;
/// use ratchet_store_postgres::PostgresStore;
///
/// let store = PostgresStore::connect("postgres://app@localhost/app").await?;
/// let client = Ratchet::client(std::sync::Arc::new(store));
/// # drop(client);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PostgresStore(Arc<Inside>);

struct Inside {
    store: SqlStore<Postgres>,
    /// Options of the connections in the pool.
    pooled: PgConnectOptions,
    /// Options of the connections outside the pool.
    beside: PgConnectOptions,
    wakeups: bool,
    coordinator: OnceLock<Option<Arc<PostgresCoordinator>>>,
}

impl PostgresStore {
    /// Connects to the database at this URL, and creates or upgrades the tables in the schema
    /// `ratchet`.
    ///
    /// The URL has the form `postgres://user:password@host:5432/database`. It accepts the query
    /// parameters of the driver, such as `sslmode`, `sslrootcert`, `application_name` and
    /// `options`. It also accepts `session_locks=true` and `session_locks=false`, see
    /// [`Builder::session_locks`].
    ///
    /// # Errors
    /// The same as for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Checked<Self>> {
        Self::builder(url).connect().await
    }

    /// Opens a store that uses a pool of the application, with tables in the schema `ratchet`.
    ///
    /// For heartbeats, locks and wakeups, the store opens connections outside the pool, with the
    /// options of the pool. [`Store::close`](ratchet_core::Store::close) also closes the pool, and
    /// waits until the application has returned its connections.
    ///
    /// # Errors
    /// The same as for [`Builder::connect`].
    pub async fn from_pool(pool: PgPool) -> Result<Checked<Self>> {
        Self::pool_builder(pool).connect().await
    }

    /// Returns a builder that connects to the database at this URL.
    pub fn builder(url: &str) -> Builder {
        Builder::url(url)
    }

    /// Returns a builder that uses this pool of the application.
    pub fn pool_builder(pool: PgPool) -> Builder {
        Builder::pool(pool)
    }

    /// Returns all migrations that create the tables in this schema, in order.
    ///
    /// The scripts of these migrations can be read, or run by hand. If you run them by hand, run
    /// each missing migration in its own transaction, and connect with [`Builder::migrate`] set to
    /// `false`.
    ///
    /// The first line of the first script creates the schema if it does not exist. PostgreSQL
    /// requires the right to create schemas for that line, even if the schema exists. Without that
    /// right, remove the line.
    #[must_use]
    pub fn migrations(schema: &str) -> Vec<Migration> {
        migrate::scripts(schema, migrate::STEPS)
    }

    /// Closes all connections, including those of the application's pool.
    async fn close_connections(&self) {
        if let Some(Some(coordinator)) = self.0.coordinator.get() {
            coordinator.close();
        }
        let connections = self.shared().pools();
        connections.close().await;
        connections.pool.returned().await;
    }

    pub(crate) async fn open(config: Config) -> Result<Self> {
        let sql = statements(&config.settings.schema, &config.clock);
        // Boxed, to keep the callers' futures small.
        let opening = Box::pin(async {
            let connections = connections(&config).await?;
            let (pool, liveness) = (&connections.pool, &connections.liveness);
            if config.direct.is_some() {
                pooler::check_database(pool, liveness, &sql, &config.settings.schema).await?;
            }
            let version = migrate::open(liveness, &sql, &config).await?;
            if config.direct.is_some() {
                pooler::check(pool, liveness, &sql, &config.settings.schema).await?;
            }
            if config.session_locks {
                pooler::bind_locks(liveness, &sql).await?;
            }
            pooler::check_statements(pool).await?;
            let beside = liveness.connector().beside.clone();
            let store = SqlStore::open(connections, sql, version, &config.settings);
            Ok((store.await?, beside))
        });
        let (store, beside) = in_time("connect", config.settings.deadline, opening).await?;
        let pooled = config.pool_options();
        Ok(Self(Arc::new(Inside {
            store,
            pooled,
            beside,
            wakeups: config.wakeups,
            coordinator: OnceLock::new(),
        })))
    }

    /// Returns the part of the store that all SQL dialects share.
    pub(crate) fn shared(&self) -> &SqlStore<Postgres> {
        &self.0.store
    }

    /// Returns the options of the connections for jobs, and those of the connections outside the
    /// pool.
    pub(crate) fn options(&self) -> [&PgConnectOptions; 2] {
        [&self.0.pooled, &self.0.beside]
    }

    /// Returns whether the store sends and receives wakeups through the database.
    pub(crate) fn has_wakeups(&self) -> bool {
        self.0.wakeups
    }

    pub(crate) fn channel(&self) -> String {
        PostgresCoordinator::channel(self.shared().schema())
    }

    fn shared_coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        let inside = &self.0;
        let start = || {
            let coordinator =
                || PostgresCoordinator::new(inside.beside.clone(), self.shared().schema());
            inside.wakeups.then(|| Arc::new(coordinator()))
        };
        if self.shared().pools().pool.is_closed() {
            return None;
        }
        let coordinator = inside.coordinator.get_or_init(start).as_ref()?;
        Some(Arc::clone(coordinator) as Arc<dyn ClusterCoordinator>)
    }
}

ratchet_sql::store!(PostgresStore, shared, shared_coordinator, close_connections);

impl fmt::Debug for PostgresStore {
    /// Formats the store without the options of the connections, because these contain the
    /// password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.shared().schema())
            .field("version", &self.shared().version())
            .finish_non_exhaustive()
    }
}
