//! The store of applications: how it is opened, and what only PostgreSQL has.

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
/// Clones share the connections. Several stores on one schema, in any number of processes and
/// hosts, are a cluster.
///
/// Calls need a Tokio runtime with its timers and I/O on.
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
    /// How its connections are made.
    pooled: PgConnectOptions,
    /// How to connect beside the pool.
    beside: PgConnectOptions,
    wakeups: bool,
    coordinator: OnceLock<Option<Arc<PostgresCoordinator>>>,
}

impl PostgresStore {
    /// Connects to the database of a URL, `postgres://user:password@host:5432/database`, and
    /// creates or upgrades the tables in its schema `ratchet`. Query parameters are those of the
    /// driver: `sslmode`, `sslrootcert`, `application_name`, `options`, …; and `session_locks`, as
    /// for [`Builder::session_locks`], which is `true` or `false`.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Checked<Self>> {
        Self::builder(url).connect().await
    }

    /// Uses a pool of the application's own, with the tables in the schema `ratchet`. Heartbeats,
    /// locks and wakeups still have connections beside it, made with the pool's options.
    /// [`Store::close`](ratchet_core::Store::close) closes the pool, too, and waits until the
    /// application has given its connections back.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub async fn from_pool(pool: PgPool) -> Result<Checked<Self>> {
        Self::pool_builder(pool).connect().await
    }

    /// Settings for the database of a URL.
    pub fn builder(url: &str) -> Builder {
        Builder::url(url)
    }

    /// Settings for a pool of the application's own.
    pub fn pool_builder(pool: PgPool) -> Builder {
        Builder::pool(pool)
    }

    /// The steps that make the tables in this schema, in order, for those who want to read or run
    /// them themselves. Run all that are missing, each in one transaction, and connect with
    /// [`Builder::migrate`] off. The first begins with a line that creates the schema if it does
    /// not exist. PostgreSQL wants the right to create schemas for it even if it does: who lacks
    /// that leaves the line out.
    #[must_use]
    pub fn migrations(schema: &str) -> Vec<Migration> {
        migrate::scripts(schema, migrate::STEPS)
    }

    /// Closes the connections, those of the application's own pool as well.
    async fn close_connections(&self) {
        if let Some(Some(coordinator)) = self.0.coordinator.get() {
            coordinator.close();
        }
        let connections = self.shared().pools();
        // Both are closed from the first poll on.
        tokio::join!(connections.pool.close(), connections.liveness.close());
    }

    pub(crate) async fn open(config: Config) -> Result<Self> {
        let sql = statements(&config.settings.schema, &config.clock);
        let schema = &config.settings.schema;
        // In a box, so that the callers' own futures stay small.
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

    /// The part that PostgreSQL shares with other SQL servers.
    pub(crate) fn shared(&self) -> &SqlStore<Postgres> {
        &self.0.store
    }

    /// How the connections for jobs and those beside them are made.
    pub(crate) fn options(&self) -> [&PgConnectOptions; 2] {
        [&self.0.pooled, &self.0.beside]
    }

    /// Whether nodes are woken up through the database.
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
    /// Without the options of the connections: they have the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.shared().schema())
            .field("version", &self.shared().version())
            .finish_non_exhaustive()
    }
}
