//! The handle: connections, deadlines, and trying again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{
    ArchiveStore, DiagnosticStore, JobStore, LockStore, NodeStore, PermitStore, QueueStore,
    RateStore, RecurringStore, SignalStore, Store, StoreInfo, VersionStore, WorkflowStore,
};
use ratchet_core::{Result, StoreErrorKind};
use tokio::time::Instant;

use crate::claim::Reach;
use crate::config::{Builder, Config};
use crate::connection::{Lease, Liveness, Pool};
use crate::error::{Failure, Loss, Result as Inner};
use crate::migrate::{self, Migration};
use crate::routes::Routes;
use crate::session;
use crate::statements::{Statements, Words};
use crate::transaction::Transaction;

/// Ratchet's tables in a schema of a SQL Server database.
///
/// Clones share the connections. Several stores on one schema, in any number of processes and
/// hosts, are a cluster.
///
/// Calls need a Tokio runtime with its timers and I/O on.
#[derive(Clone)]
pub struct SqlServerStore(Arc<Inside>);

struct Inside {
    pool: Pool,
    liveness: Liveness,
    sql: Statements,
    routes: Routes,
    reach: Reach,
    schema: String,
    plaintext_host: Option<String>,
    version: String,
    deadline: Duration,
}

/// How often a call that the database gave up because of others is tried again.
const RETRIES: u32 = 8;

impl SqlServerStore {
    /// Connects to the database of a URL, `sqlserver://user:password@host:1433/database`, and
    /// creates or upgrades the tables in its schema `ratchet`. `mssql://` is the same, and a
    /// connection string of ADO.NET will do as well: `Server=tcp:host,1433;Database=…;User Id=…;…`.
    ///
    /// Parameters of a URL: `encrypt` (`strict`, `required`, which is the default, `login` or
    /// `off`), `trust_any_certificate` (`true` or `false`), `trust_authority` (a path),
    /// `host_in_certificate`, `application_name`, `multi_subnet_failover`. They are those of
    /// [`Builder`].
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Settings for the database of a URL or of a connection string.
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    /// The steps that make the tables in this schema, in order, for those who want to read or run
    /// them themselves. Run all that are missing, each in one transaction, and connect with
    /// [`Builder::migrate`] off. The first begins with a line that creates the schema if it does not
    /// exist.
    #[must_use]
    pub fn migrations(schema: &str) -> Vec<Migration> {
        migrate::scripts(schema, migrate::STEPS)
    }

    /// Begins a transaction of the application's, on a connection of the store's pool, for
    /// [`enqueue_in`](Self::enqueue_in) and for what the application itself writes.
    ///
    /// # Errors
    /// `Timeout` if no connection was to be had in time, and whatever the database says.
    ///
    /// # Cancel safety
    /// Dropped, nothing was begun.
    pub async fn begin(&self) -> Result<Transaction> {
        self.call("begin", || Transaction::begin(self)).await
    }

    /// Stores jobs inside a transaction that this store, or a clone of it, has
    /// [begun](Self::begin): they are there if and when it commits, and if it rolls back there is no
    /// trace of them.
    ///
    /// The clauses of [`JobStore::enqueue`] hold, but that a lost race for a key is an error of kind
    /// `Contention` here, and so is a deadlock: the server rolls the whole transaction back, and who
    /// began it begins again.
    ///
    /// The lanes of jobs that have one are locked until the transaction ends: others that enqueue
    /// into them wait, and so do the ends of their heads. So are the stored jobs and the batches that
    /// new jobs wait for, and the batches that they join. So keep such transactions far shorter than
    /// the deadlines of the store and the stall timeouts of jobs, and if they enqueue more than once,
    /// go through the lanes in one order. A body that adds jobs which wait for itself must not report
    /// anything before it commits: it would wait for itself.
    ///
    /// What a text has set in the session that storing jobs rests on (`SET ROWCOUNT`, the isolation
    /// level and the like) is set back before. Nobody is woken up by the commit: nodes find the jobs by
    /// their next poll.
    ///
    /// # Errors
    /// `Invalid` for bad input and for a transaction of another store, after which the transaction can go on; otherwise it can only be rolled back:
    /// `Contention`, `Unavailable` if the store is closed or an earlier call failed, or another
    /// failure of the database.
    pub async fn enqueue_in(
        &self,
        transaction: &mut Transaction,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        transaction.enqueue(self, jobs).await
    }

    /// Whether the other is this store or a clone of it.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Closes the connections. Later calls, also on clones, fail with `Unavailable`.
    ///
    /// # Cancel safety
    /// Dropped, the connections are closed when they are next idle.
    pub async fn close(&self) {
        self.0.pool.close();
        self.0.liveness.close().await;
    }

    pub(crate) async fn open(config: Config) -> Result<Self> {
        const OPERATION: &str = "connect";
        let opening = Box::pin(async {
            let (pool, liveness) = Pool::open(&config)?;
            let server = session::check(&mut liveness.lease().await?, config.locking_reads).await?;
            let words = Words::new(&config.schema, &config.clock, config.deadline, &server)
                .locking_reads(config.locking_reads);
            let sql = Statements::new(&words);
            migrate::open(&liveness, &sql, &words, &server.user, &config).await?;
            let routes = Routes::default();
            routes.refresh(&mut liveness.lease().await?, &sql).await?;
            Ok((pool, liveness, sql, server.version, routes))
        });
        let opened = tokio::time::timeout(config.deadline, opening).await;
        let (pool, liveness, sql, version, routes) = match opened {
            Ok(opened) => opened.map_err(|failure: Failure| failure.during(OPERATION))?,
            Err(_) => return Err(too_late(config.deadline).during(OPERATION)),
        };
        Ok(Self(Arc::new(Inside {
            pool,
            liveness,
            sql,
            routes,
            reach: Reach::new(),
            schema: config.schema,
            plaintext_host: config.plaintext_host,
            version,
            deadline: config.deadline,
        })))
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

    /// The host, if only the login is encrypted, or nothing at all.
    pub(crate) fn plaintext_host(&self) -> Option<&str> {
        self.0.plaintext_host.as_deref()
    }

    /// The schema of the tables.
    pub(crate) fn schema(&self) -> &str {
        &self.0.schema
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.0.liveness
    }

    /// A connection of the pool.
    pub(crate) async fn lease(&self) -> Inner<Lease<'static>> {
        self.0.pool.lease().await
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.pool.is_closed()
    }

    /// The connection of heartbeats and locks.
    pub(crate) async fn live(&self) -> Inner<Lease<'_>> {
        if self.0.pool.is_closed() {
            return Err(Failure::closed());
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

    /// For a call that has had no answer within the deadline. The network may have fallen silent, and
    /// then no other connection of the pool is to cost a deadline too.
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

impl fmt::Debug for SqlServerStore {
    /// Without how connections are made: that has the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServerStore")
            .field("schema", &self.0.schema)
            .field("version", &self.0.version)
            .finish_non_exhaustive()
    }
}

impl Store for SqlServerStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            backend: "sqlserver",
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

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
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

    fn connections(&self) -> Option<u32> {
        Some(self.0.pool.open_connections())
    }

    /// None: SQL Server tells nobody anything that could be listened to by every node.
    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        None
    }
}
