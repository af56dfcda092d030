//! Connections: of the pool for jobs, and the one of their own that heartbeats and locks have.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{Connection, Executor, PgPool};
use tokio::sync::{Mutex, MutexGuard};

use crate::error::{Failure, Loss, Result};
use ratchet_core::StoreErrorKind;

/// A connection in use. If its use ends in the middle of a statement or of a transaction, or with
/// the loss of the connection, it is closed and never used again.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    held: Held<'a>,
    /// Whether a statement is going on or failed in a way that leaves the connection unknown.
    broken: bool,
    /// Whether a transaction is open.
    in_transaction: bool,
}

#[derive(Debug)]
enum Held<'a> {
    Pooled(PoolConnection<Postgres>),
    Liveness(MutexGuard<'a, Option<PgConnection>>),
}

impl<'a> Lease<'a> {
    /// A connection of the pool, which has its own limit on the wait.
    pub(crate) async fn pooled(pool: &PgPool) -> Result<Self> {
        Ok(Self::new(Held::Pooled(pool.acquire().await?)))
    }

    const fn new(held: Held<'a>) -> Self {
        Self {
            held,
            broken: false,
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

    /// Ends the transaction: commits if all went well, and rolls back otherwise.
    pub(crate) async fn end<T>(mut self, result: Result<T>) -> Result<T> {
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
        self.broken = result
            .as_ref()
            .is_err_and(|failure| failure.loss != Loss::No);
        result
    }

    fn connection(&mut self) -> Result<&mut PgConnection> {
        match &mut self.held {
            Held::Pooled(connection) => Ok(connection),
            Held::Liveness(slot) => slot
                .as_mut()
                .ok_or_else(|| Failure::new(StoreErrorKind::Unavailable, "there is no connection")),
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if self.broken || self.in_transaction {
            match &mut self.held {
                Held::Pooled(connection) => connection.close_on_drop(),
                Held::Liveness(slot) => **slot = None,
            }
        }
    }
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

/// Opens a connection within the time.
pub(crate) async fn connect(
    options: &PgConnectOptions,
    patience: Duration,
) -> Result<PgConnection> {
    match tokio::time::timeout(patience, PgConnection::connect_with(options)).await {
        Ok(connection) => Ok(connection?),
        Err(_) => Err(Failure::new(
            StoreErrorKind::Unavailable,
            format!("no connection within {patience:?}"),
        )),
    }
}
