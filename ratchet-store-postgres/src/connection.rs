//! Connections: the pool for jobs, and the connection reserved for heartbeats and locks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use ratchet_sql::{Failure, Generation, Loss, Made, Result, Run, Statement};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Executor, PgPool, SqlSafeStr};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::{Config, PoolSettings};
use crate::connect::{Limited, limited};
use crate::dialect::{Postgres, Query, Row};
use crate::error::{Classified, classify};
use crate::session::{Binding, Session, Slot};

/// A leased connection. If the lease is dropped during a statement or transaction, or if the
/// connection was lost, the connection is closed instead of being used again.
#[derive(Debug)]
pub(crate) struct Lease {
    held: Held,
    /// Whether a statement is running, or failed in a way that leaves the connection's state
    /// unknown.
    broken: bool,
    /// Whether and how the connection was lost.
    loss: Loss,
    /// Whether a transaction is open.
    in_transaction: bool,
    made: Made,
    generation: Generation,
}

#[derive(Debug)]
enum Held {
    /// `None` once dropped.
    Pooled(Option<PoolConnection<sqlx::Postgres>>),
    Kept(Kept),
    Liveness(OwnedMutexGuard<Slot>),
}

/// The connections for jobs.
#[derive(Debug)]
pub(crate) struct Pool {
    pool: PgPool,
    generation: Generation,
    /// `None` for a pool of the application.
    keep: Option<Arc<Keep>>,
}

/// Idle connections that the store keeps instead of returning them to the driver's pool. That pool
/// pings each returned connection, which costs one more round trip per call. Here, the next call on
/// a lost connection fails, and the store repeats it.
#[derive(Debug)]
struct Keep {
    pool: PgPool,
    idle: std::sync::Mutex<Vec<Idle>>,
    /// One permit for each connection that the pool may have, so that no caller waits in the
    /// driver's pool for a connection that is idle here.
    permits: Arc<Semaphore>,
}

/// An idle connection.
#[derive(Debug)]
struct Idle {
    connection: PoolConnection<sqlx::Postgres>,
    made: Made,
    since: Instant,
}

/// A leased connection that returns to [`Keep`].
#[derive(Debug)]
struct Kept {
    /// `None` once returned.
    connection: Option<PoolConnection<sqlx::Postgres>>,
    keep: Arc<Keep>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// Opens the pool and the connection for heartbeats and locks. Also returns the options of that
    /// connection.
    pub(crate) async fn open(config: &Config) -> Result<(Self, Liveness, PgConnectOptions)> {
        let limited = |options| {
            limited(
                options,
                config.settings.deadline,
                config.settings.acquire_timeout,
            )
        };
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
                    // Even if this fails, the server notices that the connection was closed.
                    let _ = connection.close().await;
                }
                limited(direct.clone()).await?
            }
            (None, Some(probed)) => probed,
            (None, None) => limited(pool.connect_options().as_ref().clone()).await?,
        };
        let pool = Self::new(pool, own, config.settings.max_lifetime);
        let options = beside.options.clone();
        let liveness = Liveness::new(
            beside,
            config.settings.acquire_timeout,
            pool.generation.clone(),
        );
        Ok((pool, liveness, options))
    }

    /// Wraps a pool; `own` is whether it belongs to the store.
    fn new(pool: PgPool, own: bool, lifetime: Duration) -> Self {
        let connections = usize::try_from(pool.options().get_max_connections());
        let keep = own.then(|| {
            Arc::new(Keep {
                pool: pool.clone(),
                idle: std::sync::Mutex::default(),
                permits: Arc::new(Semaphore::new(connections.unwrap_or(1))),
            })
        });
        let generation = Generation::new(lifetime);
        Self {
            pool,
            generation,
            keep,
        }
    }

    /// Leases a connection, waiting at most the pool's acquire timeout.
    pub(crate) async fn lease(&self) -> Result<Lease> {
        let Some(keep) = &self.keep else {
            let made = self.generation.made_now();
            let held = Held::Pooled(Some(self.pool.acquire().await.classified()?));
            return Ok(Lease::new(held, made, self.generation.clone()));
        };
        if self.pool.is_closed() {
            return Err(Failure::closed());
        }
        let patience = self.pool.options().get_acquire_timeout();
        let permit = Arc::clone(&keep.permits).acquire_owned();
        let permit = match tokio::time::timeout(patience, permit).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(Failure::closed()),
            Err(_) => return Err(classify(&sqlx::Error::PoolTimedOut)),
        };
        let (connection, made) = match keep.take(self.generation.made_now()) {
            Some(idle) => (idle.connection, idle.made),
            None => {
                let made = self.generation.made_now();
                (self.pool.acquire().await.classified()?, made)
            }
        };
        let held = Held::Kept(Kept {
            connection: Some(connection),
            keep: Arc::clone(keep),
            _permit: permit,
        });
        Ok(Lease::new(held, made, self.generation.clone()))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Drops the idle connections without a message to the server. Sending one could wait for a
    /// silent network, and meanwhile the connections would count towards the pool's maximum.
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

    /// Returns the number of open connections.
    pub(crate) fn open_connections(&self) -> u32 {
        self.pool.size()
    }

    pub(crate) fn max_connections(&self) -> u32 {
        self.pool.options().get_max_connections()
    }

    pub(crate) async fn close(&self) {
        // The pool counts as closed from here on, though its connections are still open.
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

    /// Removes and returns the most recently used connection that may still be used.
    fn take(&self, now: Made) -> Option<Idle> {
        let mut idle = self.idle();
        close_worn(&mut idle, now);
        idle.pop()
    }

    fn put_back(&self, connection: PoolConnection<sqlx::Postgres>, made: Made, now: Made) {
        // Checked under the lock, so that no connection is put back after a closing store has
        // emptied the list.
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

    /// Closes all idle connections, here and in the driver's pool.
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
        // Sends no message to the server, because the network may have dropped the connection.
        drop(worn.connection.detach());
    }
}

impl Lease {
    const fn new(held: Held, made: Made, generation: Generation) -> Self {
        Self {
            held,
            broken: false,
            loss: Loss::No,
            in_transaction: false,
            made,
            generation,
        }
    }

    /// Runs statements without parameters.
    pub(crate) async fn run(&mut self, sql: sqlx::SqlStr) -> Result<()> {
        self.broken = true;
        let done = self.connection()?.execute(sqlx::raw_sql(sql)).await;
        self.after(done).map(|_| ())
    }

    fn after<T>(&mut self, result: sqlx::Result<T>) -> Result<T> {
        let result = result.classified();
        self.loss = result
            .as_ref()
            .err()
            .map_or(Loss::No, |failure| failure.loss);
        self.broken = self.loss != Loss::No;
        result
    }

    fn connection(&mut self) -> Result<&mut PgConnection> {
        match &mut self.held {
            Held::Pooled(connection) => {
                connection.as_deref_mut().ok_or_else(Failure::no_connection)
            }
            Held::Kept(kept) => kept
                .connection
                .as_deref_mut()
                .ok_or_else(Failure::no_connection),
            Held::Liveness(slot) => match &mut slot.connection {
                Some((connection, _)) => Ok(connection),
                None => Err(Failure::no_connection()),
            },
        }
    }

    /// Returns the session that locks are bound to, if any.
    pub(crate) fn session(&self) -> Option<Session> {
        match &self.held {
            Held::Liveness(slot) => slot.session,
            Held::Pooled(_) | Held::Kept(_) => None,
        }
    }
}

impl Run<Postgres> for Lease {
    async fn rows(&mut self, query: Query) -> Result<Vec<Row>> {
        self.broken = true;
        let rows = query.query.fetch_all(self.connection()?).await;
        let rows = self.after(rows)?;
        Ok(rows.into_iter().map(Row).collect())
    }

    async fn execute(&mut self, query: Query) -> Result<u64> {
        self.broken = true;
        let done = query.query.execute(self.connection()?).await;
        self.after(done).map(|done| done.rows_affected())
    }
}

impl ratchet_sql::Lease<Postgres> for Lease {
    async fn script(&mut self, statement: &Statement<Postgres>) -> Result<()> {
        let text = AssertSqlSafe(Arc::clone(statement.text()));
        self.run(text.into_sql_str()).await
    }

    async fn begin(&mut self) -> Result<()> {
        self.in_transaction = true;
        self.run(fixed("BEGIN ISOLATION LEVEL READ COMMITTED"))
            .await
    }

    async fn begin_within(&mut self, patience: Duration) -> Result<()> {
        self.begin().await?;
        let millis = patience.as_millis().to_string();
        let limit = Query::new(fixed("SELECT set_config('lock_timeout', $1, true)"));
        self.execute(limit.with(millis)).await.map(drop)
    }

    async fn finish<T: Send>(&mut self, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => {
                self.run(fixed("COMMIT")).await?;
                self.in_transaction = false;
                Ok(value)
            }
            Err(failure) => {
                // If the rollback fails too, the connection is closed, which also rolls back.
                if !self.broken && self.run(fixed("ROLLBACK")).await.is_ok() {
                    self.in_transaction = false;
                }
                Err(failure)
            }
        }
    }

    fn bind_session(&self, query: Query, held: bool) -> Query {
        let session = self.session().filter(|_| held);
        query
            .with(session.map(|session| session.pid))
            .with(session.map(|session| session.start))
    }
}

/// A borrowed connection: one of the application, in a transaction, or a new one whose session is
/// being determined.
pub(crate) struct Caller<'c>(pub(crate) &'c mut PgConnection);

impl Run<Postgres> for Caller<'_> {
    async fn rows(&mut self, query: Query) -> Result<Vec<Row>> {
        let rows = query.query.fetch_all(&mut *self.0).await.classified()?;
        Ok(rows.into_iter().map(Row).collect())
    }

    async fn execute(&mut self, query: Query) -> Result<u64> {
        let done = query.query.execute(&mut *self.0).await.classified()?;
        Ok(done.rows_affected())
    }
}

/// All connections of a store.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) pool: Pool,
    pub(crate) liveness: Liveness,
}

impl ratchet_sql::Connections<Postgres> for Connections {
    async fn lease(&self) -> Result<Lease> {
        self.pool.lease().await
    }

    async fn live(&self) -> Result<Lease> {
        self.liveness.lease().await
    }

    async fn renew_live(&self) -> Result<()> {
        self.liveness.renew().await
    }

    fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    fn open_connections(&self) -> u32 {
        self.pool.open_connections()
    }

    fn max_connections(&self) -> u32 {
        self.pool.max_connections()
    }

    fn drop_idle(&self) {
        self.pool.drop_idle();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let spoiled = self.broken || self.in_transaction;
        if self.loss == Loss::ReadOnly {
            self.generation.end(self.made);
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
                        .put_back(connection, self.made, self.generation.made_now());
                    return;
                }
                // Sends no message to the server, because the network of an abandoned call may be
                // silent.
                drop(connection.detach());
                match self.loss {
                    Loss::No => {}
                    // The other idle connections may be lost too: returns them to the driver's
                    // pool, which pings them.
                    Loss::Told | Loss::Silent => kept.keep.idle().clear(),
                    Loss::ReadOnly => kept.keep.close_idle(),
                }
            }
            Held::Liveness(slot) if spoiled => slot.connection = None,
            Held::Liveness(_) => {}
        }
    }
}

pub(crate) fn fixed(sql: &'static str) -> sqlx::SqlStr {
    sql.into_sql_str()
}

/// The connection reserved for heartbeats and locks. It is opened when first needed, and again
/// after it was lost.
#[derive(Debug)]
pub(crate) struct Liveness {
    options: PgConnectOptions,
    patience: Duration,
    generation: Generation,
    /// Set only if locks are bound to the session of this connection.
    binding: OnceLock<Binding>,
    slot: Arc<Mutex<Slot>>,
    closed: AtomicBool,
}

impl Liveness {
    fn new(first: Limited, patience: Duration, generation: Generation) -> Self {
        let made = generation.made_now();
        let slot = Slot::new(first.connection.map(|connection| (connection, made)));
        Self {
            options: first.options,
            patience,
            generation,
            binding: OnceLock::new(),
            slot: Arc::new(Mutex::new(slot)),
            closed: AtomicBool::new(false),
        }
    }

    /// Leases the connection, once no other call uses it.
    pub(crate) async fn lease(&self) -> Result<Lease> {
        let mut slot = Arc::clone(&self.slot).lock_owned().await;
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failure::closed());
        }
        let now = self.generation.made_now();
        let made = match &slot.connection {
            Some((_, made)) if made.is_good(now) => *made,
            _ => {
                let binding = self.binding.get();
                slot.replace(&self.options, self.patience, binding, now)
                    .await?;
                now
            }
        };
        Ok(Lease::new(
            Held::Liveness(slot),
            made,
            self.generation.clone(),
        ))
    }

    /// From now on, binds locks acquired or renewed on this connection to its session. Reconnects,
    /// and returns the new session.
    pub(crate) async fn bind_locks(&self, binding: Binding) -> Result<Option<Session>> {
        self.hang_up().await;
        // The store is not open yet, so no other call sets the binding.
        let _ = self.binding.set(binding);
        Ok(self.lease().await?.session())
    }

    /// Replaces the connection with a new one.
    pub(crate) async fn renew(&self) -> Result<()> {
        let mut slot = self.slot.lock().await;
        let (binding, now) = (self.binding.get(), self.generation.made_now());
        slot.replace(&self.options, self.patience, binding, now)
            .await
    }

    /// Closes the connection for good.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.hang_up().await;
    }

    async fn hang_up(&self) {
        if let Some((connection, _)) = self.slot.lock().await.connection.take() {
            // Even if this fails, the server notices that the connection was closed.
            let _ = connection.close().await;
        }
    }
}
