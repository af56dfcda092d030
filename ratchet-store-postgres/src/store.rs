//! The store that applications use: opens it, and implements what is specific to PostgreSQL.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ratchet_core::Result;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::Checked;
use ratchet_sql::{Connections as _, Migration, SqlStore, in_time};
use sqlx::postgres::{PgConnectOptions, PgPool};

use crate::config::{Builder, Config};
use crate::connection::{Connections, Pool};
use crate::coordinator::PostgresCoordinator;
use crate::dialect::Postgres;
use crate::migrate;
use crate::pooler;
use crate::statements::statements;

/// Ratchet's tables in a schema of a PostgreSQL database.
///
/// Clones share the connections. All stores on one schema form a cluster, in any number of
/// processes and hosts.
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
    /// The options of the pool's connections.
    pooled: PgConnectOptions,
    /// The options of the connections outside the pool.
    beside: PgConnectOptions,
    wakeups: bool,
    coordinator: OnceLock<Option<Arc<PostgresCoordinator>>>,
}

impl PostgresStore {
    /// Connects to the database of a URL, `postgres://user:password@host:5432/database`, and
    /// creates or upgrades the tables in its schema `ratchet`. The URL accepts the driver's query
    /// parameters (`sslmode`, `sslrootcert`, `application_name`, `options`, …) and `session_locks`,
    /// `true` or `false`, as in [`Builder::session_locks`].
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Checked<Self>> {
        Self::builder(url).connect().await
    }

    /// Opens a store on the application's pool, with the tables in the schema `ratchet`.
    /// Heartbeats, locks and wakeups still use connections outside the pool, opened with the pool's
    /// options. [`Store::close`](ratchet_core::Store::close) also closes the pool, and waits until
    /// the application has returned its connections.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub async fn from_pool(pool: PgPool) -> Result<Checked<Self>> {
        Self::pool_builder(pool).connect().await
    }

    /// Returns a builder for the database of a URL.
    pub fn builder(url: &str) -> Builder {
        Builder::url(url)
    }

    /// Returns a builder for the application's pool.
    pub fn pool_builder(pool: PgPool) -> Builder {
        Builder::pool(pool)
    }

    /// Returns the steps that create the tables in this schema, in order, to read or run by hand.
    /// Run all that are missing, each in one transaction, and connect with [`Builder::migrate`]
    /// off. The first step begins with a line that creates the schema if it does not exist.
    /// PostgreSQL requires the right to create schemas for that line even if the schema exists;
    /// without that right, leave the line out.
    #[must_use]
    pub fn migrations(schema: &str) -> Vec<Migration> {
        migrate::scripts(schema, migrate::STEPS)
    }

    /// Closes the connections, including those of the application's pool.
    async fn close_connections(&self) {
        if let Some(Some(coordinator)) = self.0.coordinator.get() {
            coordinator.close();
        }
        let connections = self.shared().pools();
        // The pool and the connection count as closed from the first poll on.
        tokio::join!(connections.pool.close(), connections.liveness.close());
    }

    pub(crate) async fn open(config: Config) -> Result<Self> {
        let sql = statements(&config.settings.schema, &config.clock);
        let schema = &config.settings.schema;
        // Boxed, to keep the callers' futures small.
        let opening = Box::pin(async {
            let (pool, liveness, beside) = Pool::open(&config).await?;
            if config.direct.is_some() {
                pooler::check_database(&pool, &liveness, &sql, &config.settings.schema).await?;
            }
            let version = migrate::open(&liveness, &sql, &config).await?;
            if config.direct.is_some() {
                pooler::check(&pool, &liveness, &sql, &config.settings.schema).await?;
            }
            if config.session_locks {
                pooler::bind_locks(&liveness, &sql).await?;
            }
            pooler::check_statements(&pool).await?;
            let connections = Connections { pool, liveness };
            let store = SqlStore::open(
                connections,
                sql,
                schema.clone(),
                version,
                config.settings.deadline,
            );
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

    /// Returns the store that all SQL dialects share.
    pub(crate) fn shared(&self) -> &SqlStore<Postgres> {
        &self.0.store
    }

    /// Returns the options of the connections for jobs, and of those outside the pool.
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
        if self.shared().pools().is_closed() {
            return None;
        }
        let coordinator = inside.coordinator.get_or_init(start).as_ref()?;
        Some(Arc::clone(coordinator) as Arc<dyn ClusterCoordinator>)
    }
}

ratchet_sql::store!(PostgresStore, shared, shared_coordinator, close_connections);

impl fmt::Debug for PostgresStore {
    /// Omits the options of the connections, which include the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.shared().schema())
            .field("version", &self.shared().version())
            .finish_non_exhaustive()
    }
}
