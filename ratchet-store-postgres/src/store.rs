//! The handle: connections, deadlines, and trying again.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{
    ArchiveStore, DiagnosticStore, JobStore, LockStore, NodeStore, PermitStore, QueueStore,
    RateStore, RecurringStore, SignalStore, Store, StoreInfo, VersionStore, WorkflowStore,
};
use ratchet_core::{Result, StoreErrorKind};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use tokio::time::Instant;

use crate::claim::Reach;
use crate::config::{Builder, Config};
use crate::connection::{Lease, Liveness, Pool};
use crate::coordinator::PostgresCoordinator;
use crate::error::{Failure, Loss, Result as Inner};
use crate::migrate::{self, Migration};
use crate::pooler;
use crate::routes::Routes;
use crate::statements::Statements;

/// Ratchet's tables in a schema of a PostgreSQL database.
///
/// Clones share the connections. Several stores on one schema, in any number of processes and
/// hosts, are a cluster.
///
/// Calls need a Tokio runtime with its timers and I/O on.
#[derive(Clone)]
pub struct PostgresStore(Arc<Inside>);

struct Inside {
    pool: Pool,
    /// How its connections are made.
    pooled: PgConnectOptions,
    /// How to connect beside the pool.
    beside: PgConnectOptions,
    liveness: Liveness,
    sql: Statements,
    routes: Routes,
    reach: Reach,
    schema: String,
    version: String,
    deadline: Duration,
    wakeups: bool,
    coordinator: OnceLock<Option<Arc<PostgresCoordinator>>>,
}

/// How often a call that the database gave up because of others is tried again.
const RETRIES: u32 = 8;

impl PostgresStore {
    /// Connects to the database of a URL, `postgres://user:password@host:5432/database`, and
    /// creates or upgrades the tables in its schema `ratchet`. Query parameters are those of the
    /// driver: `sslmode`, `sslrootcert`, `application_name`, `options`, …; and `session_locks`, as
    /// for [`Builder::session_locks`], which is `true` or `false`.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Uses a pool of the application's own, with the tables in the schema `ratchet`. Heartbeats,
    /// locks and wakeups still have connections beside it, made with the pool's options.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub async fn from_pool(pool: PgPool) -> Result<Self> {
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
    /// The clauses of [`JobStore::enqueue`] hold. If jobs with keys lose a race, that part alone is
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
    /// failure of the database, after which the transaction can only be rolled back.
    pub async fn enqueue_in(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        // In a box, so that the callers' own futures stay small.
        let work = Box::pin(async {
            let enqueued = self.enqueue_on(connection, jobs).await?;
            if self.0.wakeups {
                self.notify_in(connection, jobs, &enqueued).await?;
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
    pub async fn enqueue_in_quietly(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        let work = Box::pin(self.enqueue_on(connection, jobs));
        self.within_transaction(jobs, work).await
    }

    /// Does work for these jobs on a connection of the caller's, within the deadline.
    async fn within_transaction(
        &self,
        jobs: &[NewJob],
        work: impl Future<Output = Inner<Vec<Enqueued>>>,
    ) -> Result<Vec<Enqueued>> {
        const OPERATION: &str = "enqueue_in";
        NewJob::validate_all(jobs).map_err(|error| error.during(OPERATION))?;
        if self.0.pool.is_closed() {
            return Err(Failure::from(sqlx::Error::PoolClosed).during(OPERATION));
        }
        match tokio::time::timeout(self.0.deadline, work).await {
            Ok(enqueued) => enqueued.map_err(|failure| failure.during(OPERATION)),
            Err(_) => Err(self.too_late().during(OPERATION)),
        }
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
        self.0.pool.close().await;
        self.0.liveness.close().await;
    }

    pub(crate) async fn open(config: Config) -> Result<Self> {
        const OPERATION: &str = "connect";
        let sql = Statements::new(&config.schema, &config.clock);
        let opening = async {
            let (pool, liveness, beside) = Pool::open(&config).await?;
            if config.direct.is_some() {
                pooler::check_database(&pool, &liveness, &sql, &config.schema).await?;
            }
            let version = migrate::open(&liveness, &sql, &config).await?;
            if config.direct.is_some() {
                pooler::check(&pool, &liveness, &sql, &config.schema).await?;
            }
            if config.session_locks {
                pooler::bind_locks(&liveness, &sql).await?;
            }
            pooler::check_statements(&pool).await?;
            let routes = Routes::default();
            routes.refresh(&mut liveness.lease().await?, &sql).await?;
            Ok((pool, beside, liveness, version, routes))
        };
        let opened = tokio::time::timeout(config.deadline, opening).await;
        let (pool, beside, liveness, version, routes) = match opened {
            Ok(opened) => opened.map_err(|failure: Failure| failure.during(OPERATION))?,
            Err(_) => return Err(too_late(config.deadline).during(OPERATION)),
        };
        let pooled = config.pool_options();
        Ok(Self(Arc::new(Inside {
            pool,
            pooled,
            beside,
            liveness,
            sql,
            routes,
            reach: Reach::new(),
            schema: config.schema,
            version,
            deadline: config.deadline,
            wakeups: config.wakeups,
            coordinator: OnceLock::new(),
        })))
    }

    /// How the connections for jobs and those beside them are made.
    pub(crate) fn connections(&self) -> [&PgConnectOptions; 2] {
        [&self.0.pooled, &self.0.beside]
    }

    pub(crate) fn sql(&self) -> &Statements {
        &self.0.sql
    }

    pub(crate) fn routes(&self) -> &Routes {
        &self.0.routes
    }

    pub(crate) fn reach(&self) -> &Reach {
        &self.0.reach
    }

    /// The schema of the tables.
    pub(crate) fn schema(&self) -> &str {
        &self.0.schema
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.0.liveness
    }

    pub(crate) fn channel(&self) -> String {
        PostgresCoordinator::channel(&self.0.schema)
    }

    /// A connection of the pool.
    pub(crate) async fn lease(&self) -> Inner<Lease<'static>> {
        self.0.pool.lease().await
    }

    /// The connection of heartbeats and locks.
    pub(crate) async fn live(&self) -> Inner<Lease<'_>> {
        if self.0.pool.is_closed() {
            return Err(sqlx::Error::PoolClosed.into());
        }
        self.0.liveness.lease().await
    }

    /// Makes one call, which must be safe to repeat: once more when a connection turns out to be
    /// lost, and a few times when the database gave up because of others.
    pub(crate) async fn call<T, Work>(
        &self,
        operation: &'static str,
        work: impl Fn() -> Work,
    ) -> Result<T>
    where
        Work: Future<Output = Inner<T>>,
    {
        self.call_again_after(operation, |loss| loss != Loss::No, work)
            .await
    }

    /// As [`call`](Self::call), but repeated after a lost connection only as `repeat` says.
    pub(crate) async fn call_again_after<T, Work>(
        &self,
        operation: &'static str,
        repeat: impl Fn(Loss) -> bool,
        work: impl Fn() -> Work,
    ) -> Result<T>
    where
        Work: Future<Output = Inner<T>>,
    {
        let tries = async {
            let (mut given_up, mut lost) = (0, 0);
            loop {
                let failure = match work().await {
                    Ok(done) => return Ok(done),
                    Err(failure) => failure,
                };
                if failure.kind == StoreErrorKind::Contention && given_up < RETRIES {
                    given_up += 1;
                    tokio::time::sleep(pause(given_up)).await;
                    continue;
                }
                // Where nothing can be written now, nothing can be written at once either.
                let repeat = failure.loss != Loss::ReadOnly && repeat(failure.loss);
                if repeat && lost < self.0.pool.max_connections() {
                    // Each idle connection of the pool may have been lost with it.
                    lost += 1;
                } else {
                    return Err(failure);
                }
            }
        };
        match tokio::time::timeout(self.0.deadline, tries).await {
            Ok(done) => done.map_err(|failure| failure.during(operation)),
            Err(_) => Err(self.too_late().during(operation)),
        }
    }

    /// When a call that began at this time should come to an end: a little before the deadline,
    /// since whoever waits for it may have the same one.
    pub(crate) fn nearly_too_late(&self, began: Instant) -> Instant {
        const FAR_AWAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        began + (self.0.deadline / 10 * 9).min(FAR_AWAY)
    }

    /// How long a call may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.0.deadline
    }

    /// For a call that has had no answer within the deadline. The network may have fallen silent, so
    /// no other idle connection is to cost a deadline too.
    pub(crate) fn too_late(&self) -> Failure {
        self.0.pool.drop_idle();
        too_late(self.0.deadline)
    }
}

pub(crate) fn too_late(deadline: Duration) -> Failure {
    Failure::new(
        StoreErrorKind::Timeout,
        format!("no answer within {deadline:?}"),
    )
}

/// How long to wait before another try: 1 ms at first and 64 ms at most, cut at random by up to
/// half so that those who met do not meet again.
fn pause(tries: u32) -> Duration {
    let step = 1_000_u64 << tries.min(6);
    Duration::from_micros(fastrand::u64(step / 2..=step))
}

impl fmt::Debug for PostgresStore {
    /// Without the options of the connections: they have the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.0.schema)
            .field("version", &self.0.version)
            .finish_non_exhaustive()
    }
}

impl Store for PostgresStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            backend: "postgres",
            version: self.0.version.clone(),
        }
    }

    fn jobs(&self) -> &dyn JobStore {
        self
    }

    fn queues(&self) -> &dyn QueueStore {
        self
    }

    fn nodes(&self) -> &dyn NodeStore {
        self
    }

    fn locks(&self) -> &dyn LockStore {
        self
    }

    fn versions(&self) -> &dyn VersionStore {
        self
    }

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        Some(self)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        Some(self)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        Some(self)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        Some(self)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        Some(self)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        Some(self)
    }

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        Some(self)
    }

    fn connections(&self) -> Option<u32> {
        Some(self.0.pool.open_connections())
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        let inside = &self.0;
        let start = || {
            let coordinator = || PostgresCoordinator::new(inside.beside.clone(), &inside.schema);
            inside.wakeups.then(|| Arc::new(coordinator()))
        };
        if self.0.pool.is_closed() {
            return None;
        }
        let coordinator = self.0.coordinator.get_or_init(start).as_ref()?;
        Some(Arc::clone(coordinator) as Arc<dyn ClusterCoordinator>)
    }
}
