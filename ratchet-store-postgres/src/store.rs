//! The store of applications: how it is opened, and what only PostgreSQL has.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ratchet_core::Result;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{Checked, check_enqueue};
use ratchet_sql::{Connections as _, Failure, Migration, Result as Inner, SqlStore, in_time};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};

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
    /// [`Builder::migrate`] off. The first begins with a line that creates the schema if it does not
    /// exist. PostgreSQL wants the right to create schemas for it even if it does: who lacks that
    /// leaves the line out.
    #[must_use]
    pub fn migrations(schema: &str) -> Vec<Migration> {
        migrate::scripts(schema, migrate::STEPS)
    }

    /// Stores jobs inside a transaction of the caller's, on the caller's own connection to the same
    /// database: they are there if and when the transaction commits, and if it rolls back there is
    /// no trace of them. A `Transaction` of the driver can be given as `&mut *tx`.
    ///
    /// The clauses of [`JobStore::enqueue`](ratchet_core::store::JobStore::enqueue) hold.
    /// If jobs with keys lose a race, that part alone is
    /// rolled back, to a savepoint, and tried again.
    ///
    /// The lanes of jobs that have one are locked until the transaction ends: others that enqueue
    /// into them wait, and so do the ends of their heads. Keep such transactions short, and if they
    /// enqueue more than once, go through the lanes in one order, or two of them may deadlock.
    ///
    /// So are the stored jobs and the batches that new jobs wait for, and the batches that they join:
    /// their ends, their reports (progress, checkpoints, signs of life), and the ends of other children
    /// of these batches wait for the transaction, and with them what the same node settles and reports
    /// meanwhile. So keep the transaction far shorter than the deadlines of the store and the stall
    /// timeouts of jobs; and a body that adds jobs which wait for itself must not report anything
    /// before it commits: it would wait for itself.
    ///
    /// Once the transaction commits, and only then, the nodes that poll the queues of jobs that are
    /// due at once are woken up, unless wakeups are off ([`Builder::wakeups`]): PostgreSQL keeps one
    /// notification for each such queue until then.
    /// Commits that notify wait for each other, one at a time in the whole server, which costs
    /// an application with many small transactions most of their rate; use
    /// [`enqueue_in_quietly`](Self::enqueue_in_quietly) there.
    ///
    /// # Errors
    /// `Invalid`, after which the transaction can go on; `Contention` if the snapshot of a `REPEATABLE
    /// READ` transaction is older than the first job of a queue and kind, or a key was lost to others
    /// again and again: begin the transaction again; `Misconfigured` if there is no transaction but
    /// jobs have keys, lanes, links, batches or signals, `Unavailable` if the store is closed, or a
    /// failure of the database, after which the transaction can only be rolled back. `Timeout` after the
    /// deadline, or twice that where the server does not answer: roll back then, too.
    ///
    /// # Cancel safety
    /// Dropped, it may have written a part of the jobs into the transaction, which must be rolled back.
    pub async fn enqueue_in(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        // In a box, so that the callers' own futures stay small.
        let work = Box::pin(async {
            let enqueued = self.enqueue_on(connection, jobs).await?;
            if self.0.wakeups {
                let notified = self.notify_in(connection, jobs, &enqueued);
                self.shared().within(notified).await?;
            }
            Ok(enqueued)
        });
        self.within_transaction(jobs, work).await
    }

    /// As [`enqueue_in`](Self::enqueue_in), and wakes nobody up: the jobs are found by the next
    /// poll after the commit.
    ///
    /// # Errors
    /// As for [`enqueue_in`](Self::enqueue_in).
    ///
    /// # Cancel safety
    /// As for [`enqueue_in`](Self::enqueue_in).
    pub async fn enqueue_in_quietly(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        let work = Box::pin(self.enqueue_on(connection, jobs));
        self.within_transaction(jobs, work).await
    }

    /// Does work for these jobs on a connection of the caller's, if they may be enqueued.
    async fn within_transaction(
        &self,
        jobs: &[NewJob],
        work: impl Future<Output = Inner<Vec<Enqueued>>> + Send,
    ) -> Result<Vec<Enqueued>> {
        const OPERATION: &str = "enqueue_in";
        check_enqueue(OPERATION, self, jobs)?;
        if self.shared().pools().is_closed() {
            return Err(Failure::closed().during(OPERATION));
        }
        work.await.map_err(|failure| failure.during(OPERATION))
    }

    /// Closes the connections, those of the application's own pool as well. Later calls, also on
    /// clones, fail with `Unavailable`.
    ///
    /// # Cancel safety
    /// Dropped, the connections are closed when they are next idle.
    pub async fn close(&self) {
        if let Some(Some(coordinator)) = self.0.coordinator.get() {
            coordinator.close();
        }
        let connections = self.shared().pools();
        connections.pool.close().await;
        connections.liveness.close().await;
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

    /// What PostgreSQL has in common with other SQL servers.
    pub(crate) fn shared(&self) -> &SqlStore<Postgres> {
        &self.0.store
    }

    /// How the connections for jobs and those beside them are made.
    pub(crate) fn options(&self) -> [&PgConnectOptions; 2] {
        [&self.0.pooled, &self.0.beside]
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

ratchet_sql::store!(PostgresStore, shared, shared_coordinator);

impl fmt::Debug for PostgresStore {
    /// Without the options of the connections: they have the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.shared().schema())
            .field("version", &self.shared().version())
            .finish_non_exhaustive()
    }
}
