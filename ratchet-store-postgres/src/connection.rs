//! Connections: of the pool for jobs, and the one of their own that heartbeats and locks have.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{Connection, Executor, PgPool};
use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::{Config, PoolSettings};
use crate::connect::{Limited, limited};
use crate::era::{Era, Made};
use crate::error::{Failure, Loss, Result};
use crate::session::{Binding, Session, Slot};
use ratchet_core::StoreErrorKind;

/// A connection in use. If its use ends in the middle of a statement or of a transaction, or with
/// the loss of the connection, it is closed and never used again.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    held: Held<'a>,
    /// Whether a statement is going on or failed in a way that leaves the connection unknown.
    broken: bool,
    /// How the connection was lost, if it was.
    loss: Loss,
    /// Whether a transaction is open.
    in_transaction: bool,
    made: Made,
    era: Era,
}

#[derive(Debug)]
enum Held<'a> {
    /// None once it is dropped.
    Pooled(Option<PoolConnection<Postgres>>),
    Kept(Kept),
    Liveness(MutexGuard<'a, Slot>),
}

/// The connections for jobs.
#[derive(Debug)]
pub(crate) struct Pool {
    pool: PgPool,
    era: Era,
    /// None for a pool that is the application's own.
    keep: Option<Arc<Keep>>,
}

/// Connections that stay with the store while nobody uses them. The driver's pool asks each that
/// comes back for a sign of life, one more round trip for every call; here a lost one shows at the
/// next call on it, which is then repeated.
#[derive(Debug)]
struct Keep {
    pool: PgPool,
    idle: std::sync::Mutex<Vec<Idle>>,
    /// As many as the pool has connections, so that none is waited for that is kept here.
    permits: Arc<Semaphore>,
}

/// A connection that nobody uses.
#[derive(Debug)]
struct Idle {
    connection: PoolConnection<Postgres>,
    made: Made,
    since: Instant,
}

/// A connection that goes back to those kept.
#[derive(Debug)]
struct Kept {
    /// None once it is given back.
    connection: Option<PoolConnection<Postgres>>,
    keep: Arc<Keep>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// The pool, the connection beside it, and how to make more like that one.
    pub(crate) async fn open(config: &Config) -> Result<(Self, Liveness, PgConnectOptions)> {
        let limited = |options| limited(options, config.deadline, config.acquire_timeout);
        let (pool, own, probed) = match &config.pool {
            PoolSettings::Own(settings, options) => {
                let probed = limited(options.as_ref().clone()).await?;
                let pool = settings.clone().connect_lazy_with(probed.options.clone());
                (pool, true, Some(probed))
            }
            PoolSettings::Theirs(pool) => (pool.clone(), false, None),
        };
        let beside = match (&config.direct, probed) {
            (Some(direct), probed) => {
                if let Some(connection) = probed.and_then(|probed| probed.connection) {
                    // The server notices either way.
                    let _ = connection.close().await;
                }
                limited(direct.clone()).await?
            }
            (None, Some(probed)) => probed,
            (None, None) => limited(pool.connect_options().as_ref().clone()).await?,
        };
        let pool = Self::new(pool, own, config.max_lifetime);
        let options = beside.options.clone();
        let liveness = Liveness::new(beside, config.acquire_timeout, pool.era.clone());
        Ok((pool, liveness, options))
    }

    /// Uses this pool; `own` says that nobody else does.
    fn new(pool: PgPool, own: bool, lifetime: Duration) -> Self {
        let connections = usize::try_from(pool.options().get_max_connections());
        let keep = own.then(|| {
            Arc::new(Keep {
                pool: pool.clone(),
                idle: std::sync::Mutex::default(),
                permits: Arc::new(Semaphore::new(connections.unwrap_or(1))),
            })
        });
        let era = Era::new(lifetime);
        Self { pool, era, keep }
    }

    /// A connection, within the time that the pool's settings give.
    pub(crate) async fn lease(&self) -> Result<Lease<'static>> {
        let Some(keep) = &self.keep else {
            let made = self.era.made_now();
            let held = Held::Pooled(Some(self.pool.acquire().await?));
            return Ok(Lease::new(held, made, self.era.clone()));
        };
        if self.pool.is_closed() {
            return Err(sqlx::Error::PoolClosed.into());
        }
        let patience = self.pool.options().get_acquire_timeout();
        let permit = Arc::clone(&keep.permits).acquire_owned();
        let permit = match tokio::time::timeout(patience, permit).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(sqlx::Error::PoolClosed.into()),
            Err(_) => return Err(sqlx::Error::PoolTimedOut.into()),
        };
        let (connection, made) = match keep.take(self.era.made_now()) {
            Some(idle) => (idle.connection, idle.made),
            None => {
                let made = self.era.made_now();
                (self.pool.acquire().await?, made)
            }
        };
        let held = Held::Kept(Kept {
            connection: Some(connection),
            keep: Arc::clone(keep),
            _permit: permit,
        });
        Ok(Lease::new(held, made, self.era.clone()))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Drops the connections that nobody uses now, without a word to the server: that would wait for
    /// a network that may be silent, with the place of the connection in the pool taken.
    pub(crate) fn drop_idle(&self) {
        if let Some(keep) = &self.keep {
            for idle in keep.idle().drain(..) {
                drop(idle.connection.detach());
            }
        }
        while let Some(connection) = self.pool.try_acquire() {
            drop(connection.detach());
        }
    }

    /// How many connections are open.
    pub(crate) fn open_connections(&self) -> u32 {
        self.pool.size()
    }

    pub(crate) fn max_connections(&self) -> u32 {
        self.pool.options().get_max_connections()
    }

    pub(crate) async fn close(&self) {
        // Closed from here on, though not every connection yet.
        let closing = self.pool.close();
        if let Some(keep) = &self.keep {
            keep.permits.close();
            keep.idle().clear();
        }
        closing.await;
    }
}

impl Keep {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that was used last, if it is still good.
    fn take(&self, now: Made) -> Option<Idle> {
        let mut idle = self.idle();
        close_worn(&mut idle, now);
        idle.pop()
    }

    fn put_back(&self, connection: PoolConnection<Postgres>, made: Made, now: Made) {
        // Looked at under the lock: what a closing store took out stays out.
        let mut idle = self.idle();
        if !self.pool.is_closed() {
            idle.push(Idle {
                connection,
                made,
                since: now.at(),
            });
            close_worn(&mut idle, now);
        }
    }

    /// Closes what nobody uses, here and in the driver's pool.
    fn close_idle(&self) {
        for mut idle in self.idle().drain(..) {
            idle.connection.close_on_drop();
        }
        while let Some(mut connection) = self.pool.try_acquire() {
            connection.close_on_drop();
        }
    }
}

fn close_worn(idle: &mut Vec<Idle>, now: Made) {
    for worn in idle.extract_if(.., |idle| !idle.made.is_fresh(idle.since, now)) {
        // Without a word, since the network may have forgotten it.
        drop(worn.connection.detach());
    }
}

impl<'a> Lease<'a> {
    const fn new(held: Held<'a>, made: Made, era: Era) -> Self {
        Self {
            held,
            broken: false,
            loss: Loss::No,
            in_transaction: false,
            made,
            era,
        }
    }

    /// Runs a statement and reads all it returns.
    pub(crate) async fn rows(
        &mut self,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>> {
        self.broken = true;
        let rows = query.fetch_all(self.connection()?).await;
        self.after(rows)
    }

    /// Runs a statement and says how many rows it changed.
    pub(crate) async fn execute(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<u64> {
        self.broken = true;
        let done = query.execute(self.connection()?).await;
        self.after(done).map(|done| done.rows_affected())
    }

    /// Runs statements without parameters.
    pub(crate) async fn script(&mut self, sql: sqlx::SqlStr) -> Result<()> {
        self.broken = true;
        let done = self.connection()?.execute(sqlx::raw_sql(sql)).await;
        self.after(done).map(|_| ())
    }

    /// Begins a transaction in which each statement sees what was committed before it.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        self.in_transaction = true;
        self.script(fixed("BEGIN ISOLATION LEVEL READ COMMITTED"))
            .await
    }

    /// Begins a transaction that waits for what others hold no longer than this.
    pub(crate) async fn begin_within(&mut self, patience: Duration) -> Result<()> {
        self.begin().await?;
        let millis = patience.as_millis().to_string();
        let limit = sqlx::query("SELECT set_config('lock_timeout', $1, true)").bind(millis);
        self.execute(limit).await.map(drop)
    }

    /// Ends the transaction and the lease: commits if all went well, and rolls back otherwise.
    pub(crate) async fn end<T>(mut self, result: Result<T>) -> Result<T> {
        self.finish(result).await
    }

    /// As [`end`](Self::end), and keeps the lease.
    pub(crate) async fn finish<T>(&mut self, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => {
                self.script(fixed("COMMIT")).await?;
                self.in_transaction = false;
                Ok(value)
            }
            Err(failure) => {
                // If this fails too, the connection is closed, which rolls back as well.
                if !self.broken && self.script(fixed("ROLLBACK")).await.is_ok() {
                    self.in_transaction = false;
                }
                Err(failure)
            }
        }
    }

    fn after<T>(&mut self, result: sqlx::Result<T>) -> Result<T> {
        let result = result.map_err(Failure::from);
        self.loss = result
            .as_ref()
            .err()
            .map_or(Loss::No, |failure| failure.loss);
        self.broken = self.loss != Loss::No;
        result
    }

    fn connection(&mut self) -> Result<&mut PgConnection> {
        match &mut self.held {
            Held::Pooled(connection) => connection.as_deref_mut().ok_or_else(no_connection),
            Held::Kept(kept) => kept.connection.as_deref_mut().ok_or_else(no_connection),
            Held::Liveness(slot) => match &mut slot.connection {
                Some((connection, _)) => Ok(connection),
                None => Err(no_connection()),
            },
        }
    }

    /// The session that locks are bound to, if they are.
    pub(crate) fn session(&self) -> Option<Session> {
        match &self.held {
            Held::Liveness(slot) => slot.session,
            Held::Pooled(_) | Held::Kept(_) => None,
        }
    }
}

/// Where the statements of a transaction run: on a lease, or on a connection of the caller's.
pub(crate) trait Run: Send {
    /// Runs a statement and reads all it returns.
    fn rows(
        &mut self,
        query: Query<'_, Postgres, PgArguments>,
    ) -> impl Future<Output = Result<Vec<PgRow>>> + Send;
}

impl Run for Lease<'_> {
    async fn rows(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>> {
        Self::rows(self, query).await
    }
}

impl Run for PgConnection {
    async fn rows(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>> {
        Ok(query.fetch_all(self).await?)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let spoiled = self.broken || self.in_transaction;
        if self.loss == Loss::ReadOnly {
            self.era.end(self.made);
        }
        match &mut self.held {
            Held::Pooled(connection) if spoiled => {
                if let Some(connection) = connection.take() {
                    drop(connection.detach());
                }
            }
            Held::Pooled(_) => {}
            Held::Kept(kept) => {
                let Some(connection) = kept.connection.take() else {
                    return;
                };
                if !spoiled {
                    kept.keep
                        .put_back(connection, self.made, self.era.made_now());
                    return;
                }
                // A call that was given up may have met a silent network, where no good-bye arrives.
                drop(connection.detach());
                match self.loss {
                    Loss::No => {}
                    // The others may be lost as well: the driver's pool asks them.
                    Loss::Told | Loss::Silent => kept.keep.idle().clear(),
                    Loss::ReadOnly => kept.keep.close_idle(),
                }
            }
            Held::Liveness(slot) if spoiled => slot.connection = None,
            Held::Liveness(_) => {}
        }
    }
}

fn no_connection() -> Failure {
    Failure::new(StoreErrorKind::Unavailable, "there is no connection")
}

fn fixed(sql: &'static str) -> sqlx::SqlStr {
    use sqlx::SqlSafeStr;
    sql.into_sql_str()
}

/// The connection of heartbeats and locks, which no job can take away: opened when first needed,
/// and again when it was lost.
#[derive(Debug)]
pub(crate) struct Liveness {
    options: PgConnectOptions,
    patience: Duration,
    era: Era,
    /// None while locks are not bound to its session.
    binding: OnceLock<Binding>,
    slot: Mutex<Slot>,
    closed: AtomicBool,
}

impl Liveness {
    fn new(first: Limited, patience: Duration, era: Era) -> Self {
        let made = era.made_now();
        let slot = Slot::new(first.connection.map(|connection| (connection, made)));
        Self {
            options: first.options,
            patience,
            era,
            binding: OnceLock::new(),
            slot: Mutex::new(slot),
            closed: AtomicBool::new(false),
        }
    }

    /// The connection, once nobody else uses it.
    pub(crate) async fn lease(&self) -> Result<Lease<'_>> {
        let mut slot = self.slot.lock().await;
        if self.closed.load(Ordering::SeqCst) {
            return Err(sqlx::Error::PoolClosed.into());
        }
        let now = self.era.made_now();
        let made = match &slot.connection {
            Some((_, made)) if made.is_good(now) => *made,
            _ => {
                let binding = self.binding.get();
                slot.replace(&self.options, self.patience, binding, now)
                    .await?;
                now
            }
        };
        Ok(Lease::new(Held::Liveness(slot), made, self.era.clone()))
    }

    /// From now on, binds the locks that are acquired or renewed on it to its session, and tells of
    /// the first, which is that of a new connection.
    pub(crate) async fn bind_locks(&self, binding: Binding) -> Result<Option<Session>> {
        self.hang_up().await;
        // Nobody else has it yet, so nobody else binds it.
        let _ = self.binding.set(binding);
        Ok(self.lease().await?.session())
    }

    /// Puts a new one in its place.
    pub(crate) async fn renew(&self) -> Result<()> {
        let mut slot = self.slot.lock().await;
        let (binding, now) = (self.binding.get(), self.era.made_now());
        slot.replace(&self.options, self.patience, binding, now)
            .await
    }

    /// Closes it; it is not opened again.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.hang_up().await;
    }

    async fn hang_up(&self) {
        if let Some((connection, _)) = self.slot.lock().await.connection.take() {
            // The server notices either way.
            let _ = connection.close().await;
        }
    }
}
