//! The shop's own tables, in the same database as Ratchet's tables. Only this file distinguishes
//! SQLite from PostgreSQL.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use ratchet::postgres::PostgresStore;
use ratchet::postgres::sqlx::{self, PgPool, Postgres, Row, postgres::PgArguments, query::Query};
use ratchet::sqlite::SqliteStore;
use ratchet::sqlite::rusqlite::{
    self, Connection, OptionalExtension, TransactionBehavior, types::Value,
};
use ratchet::{Checked, Client, NewJob, SharedStore};

/// SQL that creates the tables, valid for both SQLite and PostgreSQL.
///
/// Every SQL statement of the shop must use its parameters in ascending order: first `$1`, then
/// `$2`. SQLite treats `$1` as a name, and gives the names positions in the order in which they
/// first appear.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS orders (
        id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents BIGINT NOT NULL, status TEXT NOT NULL,
        packed BIGINT, mails BIGINT NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS charges (order_id TEXT PRIMARY KEY, cents BIGINT NOT NULL);
    CREATE TABLE IF NOT EXISTS imports (batch TEXT PRIMARY KEY, total BIGINT NOT NULL, succeeded BIGINT NOT NULL);
    CREATE TABLE IF NOT EXISTS reports (slot TEXT PRIMARY KEY, shipped BIGINT NOT NULL);";

/// The database of the shop: SQLite or PostgreSQL.
#[derive(Clone, Debug)]
pub enum Db {
    /// An SQLite file: Ratchet's store, and one connection for the shop's own tables.
    Sqlite(Checked<SqliteStore>, Arc<Mutex<Connection>>),
    /// A PostgreSQL database: Ratchet's store, and the connection pool that the store and the shop
    /// share.
    Postgres(Checked<PostgresStore>, PgPool),
}

/// One row of the table `orders`.
#[derive(Debug, serde::Serialize, serde::Deserialize, PartialEq, Eq)]
pub struct OrderRow {
    /// The customer who ordered.
    pub customer: String,
    /// The price in cents.
    pub cents: i64,
    /// The status of the order, such as `placed`, `charged` or `shipped`.
    pub status: String,
    /// The position of the order among the customer's packed orders, from 1. `None` if the order is
    /// not packed yet.
    pub packed: Option<i64>,
    /// The number of confirmation mails that were sent.
    pub mails: i64,
}

impl Db {
    /// Connects to a PostgreSQL URL, or opens an SQLite file. Creates the shop's tables if they do
    /// not exist yet.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub async fn connect(url: &str) -> Result<Self> {
        if url.starts_with("postgres") {
            let pool = PgPool::connect(url).await?;
            // The lock makes processes that start together create the tables one after the other.
            let locked = sqlx::AssertSqlSafe(format!(
                "BEGIN; SELECT pg_advisory_xact_lock(7077); {TABLES} COMMIT;"
            ));
            sqlx::raw_sql(locked).execute(&pool).await?;
            return Ok(Self::Postgres(
                PostgresStore::from_pool(pool.clone()).await?,
                pool,
            ));
        }
        let path = url.trim_start_matches("sqlite://");
        Self::on_sqlite(path, SqliteStore::builder(path).connect().await?)
    }

    /// Opens the SQLite file at `path` for the shop's own tables. `store` is a store that is
    /// already open on the same file.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn on_sqlite(path: &str, store: Checked<SqliteStore>) -> Result<Self> {
        let own = Connection::open(path)?;
        own.busy_timeout(Duration::from_secs(20))?;
        own.execute_batch(&format!("BEGIN IMMEDIATE; {TABLES} COMMIT;"))?;
        Ok(Self::Sqlite(store, Arc::new(Mutex::new(own))))
    }

    /// Returns Ratchet's store on this database, for building nodes and clients.
    #[must_use]
    pub fn store(&self) -> SharedStore {
        match self {
            Self::Sqlite(store, _) => Arc::new(store.clone()),
            Self::Postgres(store, _) => Arc::new(store.clone()),
        }
    }

    /// Runs an `INSERT` statement and enqueues the jobs, in one transaction. Returns whether the
    /// statement added a row. If the statement adds no row, enqueues no jobs.
    ///
    /// # Errors
    /// If the database fails, or a job is invalid. In both cases, nothing is stored.
    pub async fn insert_with_jobs(
        &self,
        client: &Client,
        sql: &'static str,
        args: Vec<Value>,
        jobs: Vec<NewJob>,
    ) -> Result<bool> {
        match self {
            Self::Sqlite(store, own) => {
                let store = store.clone();
                blocking(own, move |own| {
                    let tx = own.transaction_with_behavior(TransactionBehavior::Immediate)?;
                    let new = tx.execute(sql, rusqlite::params_from_iter(args))? > 0;
                    if new {
                        store.enqueue_in_blocking(&tx, &jobs)?;
                    }
                    tx.commit()?;
                    Ok(new)
                })
                .await
            }
            Self::Postgres(_, pool) => {
                let mut tx = pool.begin().await?;
                let new = bind(sql, args).execute(&mut *tx).await?.rows_affected() > 0;
                if new {
                    client.enqueue_all_in(&mut tx, &jobs).await?;
                }
                tx.commit().await?;
                Ok(new)
            }
        }
    }

    /// Runs one SQL statement.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn execute(&self, sql: &'static str, args: Vec<Value>) -> Result<()> {
        match self {
            Self::Sqlite(_, own) => {
                blocking(own, move |own| {
                    Ok(own
                        .execute(sql, rusqlite::params_from_iter(args))
                        .map(drop)?)
                })
                .await
            }
            Self::Postgres(_, pool) => Ok(bind(sql, args).execute(pool).await.map(drop)?),
        }
    }

    /// Runs a query, and returns the number in its first row.
    ///
    /// # Errors
    /// If the database fails, or the query returns no row.
    pub async fn number(&self, sql: &'static str, args: Vec<Value>) -> Result<i64> {
        match self {
            Self::Sqlite(_, own) => {
                blocking(own, move |own| {
                    Ok(own.query_row(sql, rusqlite::params_from_iter(args), |row| row.get(0))?)
                })
                .await
            }
            Self::Postgres(_, pool) => Ok(bind(sql, args).fetch_one(pool).await?.try_get(0)?),
        }
    }

    /// Returns the order with this id, or `None` if there is no such order.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn order(&self, id: String) -> Result<Option<OrderRow>> {
        const SQL: &str = "SELECT customer, cents, status, packed, mails FROM orders WHERE id = $1";
        match self {
            Self::Sqlite(_, own) => {
                blocking(own, move |own| {
                    let row = own.query_row(SQL, [id], |row| {
                        Ok(OrderRow {
                            customer: row.get(0)?,
                            cents: row.get(1)?,
                            status: row.get(2)?,
                            packed: row.get(3)?,
                            mails: row.get(4)?,
                        })
                    });
                    Ok(row.optional()?)
                })
                .await
            }
            Self::Postgres(_, pool) => {
                let Some(row) = sqlx::query(SQL).bind(id).fetch_optional(pool).await? else {
                    return Ok(None);
                };
                Ok(Some(OrderRow {
                    customer: row.try_get(0)?,
                    cents: row.try_get(1)?,
                    status: row.try_get(2)?,
                    packed: row.try_get(3)?,
                    mails: row.try_get(4)?,
                }))
            }
        }
    }
}

/// Runs `work` with the connection, on a thread that may block.
async fn blocking<T: Send + 'static>(
    own: &Arc<Mutex<Connection>>,
    work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
) -> Result<T> {
    let own = Arc::clone(own);
    let task = move || work(&mut own.lock().unwrap_or_else(PoisonError::into_inner));
    tokio::task::spawn_blocking(task)
        .await
        .context("a statement panicked")?
}

fn bind(sql: &'static str, args: Vec<Value>) -> Query<'static, Postgres, PgArguments> {
    args.into_iter()
        .fold(sqlx::query(sql), |query, arg| match arg {
            Value::Integer(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
            Value::Null | Value::Real(_) | Value::Blob(_) => query.bind(None::<String>),
        })
}
