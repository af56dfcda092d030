//! Leased connections: sends statements, in transactions.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratchet_sql::{Leased, Purpose, Result, Run, Statement, connect_within};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Executor, PgPool, Postgres as Driver, SqlSafeStr};

use crate::config::{Config, PoolSettings};
use crate::connect::{connect, connect_for_jobs, limited};
use crate::dialect::{Postgres, Query, Row};
use crate::error::{Classified, classify};
use crate::session::{Binding, Session};

/// Opens the connections of a store.
pub(crate) struct Connector {
    /// Options of the connections in the pool.
    pooled: PgConnectOptions,
    /// Options of the connections outside the pool.
    pub(crate) beside: PgConnectOptions,
    patience: Duration,
    /// Binds locks to the session of the connection for heartbeats and locks. Not set if locks are
    /// not bound.
    binding: OnceLock<Binding>,
}

impl ratchet_sql::Connector for Connector {
    type Connection = PgConnection;
    type Lease = Lease;
    type Lender = PgPool;

    async fn connect(&self, purpose: Purpose) -> Result<PgConnection> {
        if purpose == Purpose::Jobs {
            return connect_for_jobs(&self.pooled, self.patience).await;
        }
        let mut connection = connect(&self.beside, self.patience).await?;
        if let Some(binding) = self.binding.get() {
            connect_within(self.patience, binding.bind(&mut connection)).await??;
        }
        Ok(connection)
    }

    async fn close(connection: PgConnection) {
        // Even if this fails, the server notices that the connection was closed.
        let _ = connection.close().await;
    }
}

ratchet_sql::lender!(Connector, Driver, classify);

pub(crate) type Connections = ratchet_sql::Connections<Connector>;
pub(crate) type Liveness = ratchet_sql::Liveness<Connector>;
pub(crate) type Pool = ratchet_sql::Pool<Connector>;

/// Prepares the connections of a store. Opens only a connection that determines the options, which
/// becomes the one for heartbeats and locks.
pub(crate) async fn connections(config: &Config) -> Result<Connections> {
    let settings = &config.settings;
    let limited = |options| limited(options, settings.deadline, settings.acquire_timeout);
    let (pooled, lender, probed) = match &config.pool {
        PoolSettings::Own(options) => {
            let probed = limited(options.as_ref().clone()).await?;
            (probed.options, None, probed.connection)
        }
        PoolSettings::Theirs(pool) => {
            let options = pool.connect_options().as_ref().clone();
            (options, Some(pool.clone()), None)
        }
    };
    let (beside, first) = match (&config.direct, &lender) {
        (None, None) => (pooled.clone(), probed),
        (direct, _) => {
            if let Some(connection) = probed {
                <Connector as ratchet_sql::Connector>::close(connection).await;
            }
            let beside = limited(direct.as_ref().unwrap_or(&pooled).clone()).await?;
            (beside.options, beside.connection)
        }
    };
    let connector = Connector {
        pooled,
        beside,
        patience: settings.acquire_timeout,
        binding: OnceLock::new(),
    };
    Ok(Connections::new(connector, settings, lender, first))
}

/// Opens the connection for heartbeats and locks again, and binds locks to its new session from now
/// on. Returns that session.
pub(crate) async fn bind_locks(liveness: &Liveness, binding: Binding) -> Result<Option<Session>> {
    liveness.hang_up().await;
    // The store is not open yet, so no other call sets the binding.
    let _ = liveness.connector().binding.set(binding);
    Ok(liveness.lease().await?.session())
}

/// A leased connection.
#[derive(Debug)]
pub(crate) struct Lease(Leased<Connector>);

impl From<Leased<Connector>> for Lease {
    fn from(leased: Leased<Connector>) -> Self {
        Self(leased)
    }
}

impl Lease {
    /// Runs one or more statements that have no parameters.
    pub(crate) async fn run(&mut self, sql: sqlx::SqlStr) -> Result<()> {
        let done = self.0.begin_call()?.execute(sqlx::raw_sql(sql)).await;
        self.0.end_call(done.classified()).map(drop)
    }

    /// Returns the database session to which locks of this connection are bound. Returns `None` if
    /// locks are not bound, or if this connection is not used for locks.
    pub(crate) fn session(&self) -> Option<Session> {
        let binding = self.0.connector().binding.get()?;
        binding.session().filter(|_| self.0.is_liveness())
    }
}

impl Run<Postgres> for Lease {
    async fn rows(&mut self, query: Query) -> Result<Vec<Row>> {
        let rows = query.query.fetch_all(self.0.begin_call()?).await;
        let rows = self.0.end_call(rows.classified())?;
        Ok(rows.into_iter().map(Row).collect())
    }

    async fn execute(&mut self, query: Query) -> Result<u64> {
        let done = query.query.execute(self.0.begin_call()?).await;
        let done = self.0.end_call(done.classified())?;
        Ok(done.rows_affected())
    }
}

impl ratchet_sql::Lease<Postgres> for Lease {
    async fn script(&mut self, statement: &Statement<Postgres>) -> Result<()> {
        let text = AssertSqlSafe(Arc::clone(statement.text()));
        self.run(text.into_sql_str()).await
    }

    async fn begin(&mut self) -> Result<()> {
        self.0.in_transaction = true;
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
                self.0.in_transaction = false;
                Ok(value)
            }
            Err(failure) => {
                // If the rollback fails too, the connection is closed, which also rolls back.
                if !self.0.is_broken() && self.run(fixed("ROLLBACK")).await.is_ok() {
                    self.0.in_transaction = false;
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

pub(crate) fn fixed(sql: &'static str) -> sqlx::SqlStr {
    sql.into_sql_str()
}
