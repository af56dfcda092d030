//! Connections: of the pool for jobs, and the one of their own that heartbeats and locks have.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{Connection, Executor, PgPool};
use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::config::{Config, PoolSettings};
use crate::error::{Failure, Loss, Result};
use ratchet_core::{StoreErrorKind, time};

/// A connection in use. If its use ends in the middle of a statement or of a transaction, or with
/// the loss of the connection, it is closed and never used again.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    held: Held<'a>,
    /// Whether a statement is going on or failed in a way that leaves the connection unknown.
    broken: bool,
    /// Whether the connection was lost.
    lost: bool,
    /// Whether a transaction is open.
    in_transaction: bool,
}

#[derive(Debug)]
enum Held<'a> {
    Pooled(PoolConnection<Postgres>),
    Kept(Kept),
    Liveness(MutexGuard<'a, Option<PgConnection>>),
}

/// The connections for jobs.
#[derive(Debug)]
pub(crate) struct Pool {
    pool: PgPool,
    /// None for a pool that is the application's own.
    keep: Option<Arc<Keep>>,
}

/// Connections that stay with the store while nobody uses them. The driver's pool asks each that
/// comes back for a sign of life, one more round trip for every call; here a lost one shows at the
/// next call on it, which is then repeated.
#[derive(Debug)]
struct Keep {
    pool: PgPool,
    idle: std::sync::Mutex<Vec<PoolConnection<Postgres>>>,
    /// As many as the pool has connections, so that none is waited for that is kept here.
    permits: Arc<Semaphore>,
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
    /// The pool, and how to connect beside it.
    pub(crate) async fn open(config: &Config) -> Result<(Self, PgConnectOptions)> {
        let limited = |options| limited(options, config.deadline, config.acquire_timeout);
        let (pool, own, beside) = match &config.pool {
            PoolSettings::Own(settings, options) => {
                let options = limited(options.as_ref().clone()).await?;
                let pool = settings.clone().connect_lazy_with(options.clone());
                (pool, true, Some(options))
            }
            PoolSettings::Theirs(pool) => (pool.clone(), false, None),
        };
        let beside = match (&config.direct, beside) {
            (Some(direct), _) => limited(direct.clone()).await?,
            (None, Some(options)) => options,
            (None, None) => limited(pool.connect_options().as_ref().clone()).await?,
        };
        Ok((Self::new(pool, own), beside))
    }

    /// Uses this pool; `own` says that nobody else does.
    fn new(pool: PgPool, own: bool) -> Self {
        let connections = usize::try_from(pool.options().get_max_connections());
        let keep = own.then(|| {
            Arc::new(Keep {
                pool: pool.clone(),
                idle: std::sync::Mutex::default(),
                permits: Arc::new(Semaphore::new(connections.unwrap_or(1))),
            })
        });
        Self { pool, keep }
    }

    /// A connection, within the time that the pool's settings give.
    pub(crate) async fn lease(&self) -> Result<Lease<'static>> {
        let Some(keep) = &self.keep else {
            return Ok(Lease::new(Held::Pooled(self.pool.acquire().await?)));
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
        let idle = keep.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.pool.acquire().await?,
        };
        Ok(Lease::new(Held::Kept(Kept {
            connection: Some(connection),
            keep: Arc::clone(keep),
            _permit: permit,
        })))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pool.is_closed()
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
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PoolConnection<Postgres>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Lease<'a> {
    const fn new(held: Held<'a>) -> Self {
        Self {
            held,
            broken: false,
            lost: false,
            in_transaction: false,
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
        self.lost = result
            .as_ref()
            .is_err_and(|failure| failure.loss != Loss::No);
        self.broken = self.lost;
        result
    }

    fn connection(&mut self) -> Result<&mut PgConnection> {
        match &mut self.held {
            Held::Pooled(connection) => Ok(connection),
            Held::Kept(kept) => kept.connection.as_deref_mut().ok_or_else(no_connection),
            Held::Liveness(slot) => slot.as_mut().ok_or_else(no_connection),
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
        match &mut self.held {
            Held::Pooled(connection) if spoiled => connection.close_on_drop(),
            Held::Pooled(_) => {}
            Held::Kept(kept) => {
                let Some(mut connection) = kept.connection.take() else {
                    return;
                };
                if spoiled {
                    connection.close_on_drop();
                    if self.lost {
                        // The others may be lost as well: the driver's pool asks them.
                        kept.keep.idle().clear();
                    }
                } else {
                    // Looked at under the lock: what a closing store took out stays out.
                    let mut idle = kept.keep.idle();
                    if !kept.keep.pool.is_closed() {
                        idle.push(connection);
                    }
                }
            }
            Held::Liveness(slot) if spoiled => **slot = None,
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
    slot: Mutex<Option<PgConnection>>,
}

impl Liveness {
    pub(crate) fn new(options: PgConnectOptions, patience: Duration) -> Self {
        Self {
            options,
            patience,
            slot: Mutex::new(None),
        }
    }

    /// The connection, once nobody else uses it.
    pub(crate) async fn lease(&self) -> Result<Lease<'_>> {
        let mut slot = self.slot.lock().await;
        if slot.is_none() {
            *slot = Some(connect(&self.options, self.patience).await?);
        }
        Ok(Lease::new(Held::Liveness(slot)))
    }

    pub(crate) async fn close(&self) {
        if let Some(connection) = self.slot.lock().await.take() {
            // The server notices either way.
            let _ = connection.close().await;
        }
    }
}

/// The same options with this limit for each statement, kept by the server: it outlives a caller
/// that went away. A limit that is there already stays, and where a pooler lets no such setting
/// through there is none.
pub(crate) async fn limited(
    options: PgConnectOptions,
    limit: Duration,
    patience: Duration,
) -> Result<PgConnectOptions> {
    const SETTING: &str = "statement_timeout";
    let present = options.get_options();
    if present.is_some_and(|present| present.contains(SETTING)) {
        return Ok(options);
    }
    let millis = time::duration_millis(limit).max(1);
    let limited = options.clone().options([(SETTING, millis)]);
    match within(patience, PgConnection::connect_with(&limited)).await? {
        Ok(connection) => {
            let _ = connection.close().await;
            Ok(limited)
        }
        // How PgBouncer answers a setting that it does not know.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("08P01") => {
            tracing::debug!("the pooler does not pass a statement_timeout on");
            Ok(options)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a connection within the time.
pub(crate) async fn connect(
    options: &PgConnectOptions,
    patience: Duration,
) -> Result<PgConnection> {
    Ok(within(patience, PgConnection::connect_with(options)).await??)
}

async fn within<T>(patience: Duration, connecting: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(patience, connecting)
        .await
        .map_err(|_| {
            Failure::new(
                StoreErrorKind::Unavailable,
                format!("no connection within {patience:?}"),
            )
        })
}
