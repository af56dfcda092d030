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

/// A leased connection. Dropping the lease makes the connection available again. The connection is
/// closed instead if it was lost, or if a statement or transaction was not complete.
#[derive(Debug)]
pub(crate) struct Lease {
    held: Held,
    /// Whether the state of the connection is unknown, because a statement is still running or was
    /// not completed.
    broken: bool,
    /// Whether the connection was lost, and how.
    loss: Loss,
    /// Whether a transaction is open.
    in_transaction: bool,
    made: Made,
    generation: Generation,
}

#[derive(Debug)]
enum Held {
    /// A connection of the application's pool. `None` once the lease was dropped.
    Pooled(Option<PoolConnection<sqlx::Postgres>>),
    Kept(Kept),
    Liveness(OwnedMutexGuard<Slot>),
}

/// The pool of connections for jobs.
#[derive(Debug)]
pub(crate) struct Pool {
    pool: PgPool,
    generation: Generation,
    /// Idle connections of a pool that the store has opened. `None` for a pool of the application.
    keep: Option<Arc<Keep>>,
}

/// Idle connections that the store keeps outside the driver's pool. That pool would ping each
/// connection that is returned to it, which costs one more round trip per call. Without the ping, a
/// call may get a lost connection. The call then fails, and the store repeats it.
#[derive(Debug)]
struct Keep {
    pool: PgPool,
    idle: std::sync::Mutex<Vec<Idle>>,
    /// One permit for each connection that the pool may open. A caller takes a permit before it
    /// requests a connection from the driver's pool. So no caller waits in the driver's pool while
    /// a connection is idle in this list.
    permits: Arc<Semaphore>,
}

/// An idle connection, with its age.
#[derive(Debug)]
struct Idle {
    connection: PoolConnection<sqlx::Postgres>,
    made: Made,
    since: Instant,
}

/// A leased connection that is put back into [`Keep`] when the lease is dropped.
#[derive(Debug)]
struct Kept {
    /// `None` once the connection was put back or closed.
    connection: Option<PoolConnection<sqlx::Postgres>>,
    keep: Arc<Keep>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// Opens the pool, and prepares the connection for heartbeats and locks. Also returns the
    /// options of the connection for heartbeats and locks.
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

    /// Wraps a pool of the driver. `own` is true if the store has opened the pool.
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

    /// Leases a connection from the pool. Fails if none is available within the pool's acquire
    /// timeout.
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

    /// Drops the idle connections without sending a message to the server. On a network that is
    /// down, sending could take long, and until then the connections would count towards the pool's
    /// maximum.
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

    /// Returns the number of open connections in the pool.
    pub(crate) fn open_connections(&self) -> u32 {
        self.pool.size()
    }

    pub(crate) fn max_connections(&self) -> u32 {
        self.pool.options().get_max_connections()
    }

    pub(crate) async fn close(&self) {
        // From here on, the pool counts as closed, so no connection is put back into `keep`. The
        // connections themselves are closed later, when `closing` is awaited.
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

    /// Removes and returns the idle connection that was used last. First closes connections that
    /// are too old or were idle for too long.
    fn take(&self, now: Made) -> Option<Idle> {
        let mut idle = self.idle();
        close_worn(&mut idle, now);
        idle.pop()
    }

    fn put_back(&self, connection: PoolConnection<sqlx::Postgres>, made: Made, now: Made) {
        // The check runs under the lock. So no connection is put back after a closing store has
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

    /// Closes all idle connections, both those in this list and those in the driver's pool.
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

    /// Runs one or more statements that have no parameters.
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

    /// Returns the database session to which locks of this connection are bound. Returns `None` if
    /// locks are not bound, or if this connection is not used for locks.
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

/// A borrowed connection of the driver. It is either the connection of a transaction of the
/// application, or a new connection whose session is being read.
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

/// All connections of a store for statements.
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
                // Sends no message to the server, because the network may be the reason why the
                // call was abandoned.
                drop(connection.detach());
                match self.loss {
                    Loss::No => {}
                    // The other idle connections may be lost too. So this returns them to the
                    // driver's pool, which pings them.
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

/// The connection that is reserved for heartbeats and locks. It is opened when it is first needed,
/// and opened again after a loss.
#[derive(Debug)]
pub(crate) struct Liveness {
    options: PgConnectOptions,
    patience: Duration,
    generation: Generation,
    /// Statements that bind locks to the session of this connection. Not set if locks are not
    /// bound.
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

    /// Waits until no other call uses the connection, and then leases it.
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

    /// Opens the connection again, and binds locks to its new session from now on. Returns that
    /// session.
    pub(crate) async fn bind_locks(&self, binding: Binding) -> Result<Option<Session>> {
        self.hang_up().await;
        // The store is not open yet, so no other call sets the binding.
        let _ = self.binding.set(binding);
        Ok(self.lease().await?.session())
    }

    /// Replaces the connection by a new one.
    pub(crate) async fn renew(&self) -> Result<()> {
        let mut slot = self.slot.lock().await;
        let (binding, now) = (self.binding.get(), self.generation.made_now());
        slot.replace(&self.options, self.patience, binding, now)
            .await
    }

    /// Closes the connection. Later leases fail.
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
