//! Checks connections through a pooler: whether the pool and the direct connection lead to the same
//! database, whether the direct connection bypasses the pooler, and whether the pooler keeps
//! prepared statements.

use std::time::Duration;

use ratchet_core::StoreErrorKind;
use ratchet_sql::{Failure, Lease as _, Loss, Query as _, Result, Row as _, Run as _};

use crate::connection::{self, Lease, Liveness, Pool, fixed};
use crate::dialect::Query;
use crate::error::LOSES_STATEMENTS;
use crate::migrate;
use crate::session::Binding;
use crate::statements::{Statements, quoted};

/// Timeout for the check of prepared statements.
const CHECK: Duration = Duration::from_secs(1);

/// The identity of the database to which a connection leads.
#[derive(PartialEq, Eq)]
struct DatabaseIdentity {
    database: String,
    /// Start time of the server in microseconds since 1970. It identifies the server.
    started: i64,
    /// OID of the table `jobs`, if the table exists.
    jobs: Option<i64>,
}

/// Fails if the pool and the direct connection lead to different databases. Runs before the
/// migrations. It does not compare the tables, because other nodes may be creating them.
pub(crate) async fn check_database(
    pool: &Pool,
    liveness: &Liveness,
    sql: &Statements,
    schema: &str,
) -> Result<()> {
    let (mut direct, _) = identify(&mut liveness.lease().await?, sql, schema).await?;
    let pooled = async { identify(&mut pool.lease().await?, sql, schema).await };
    let (mut pooled, _) = pooled.await.map_err(not_direct)?;
    (direct.jobs, pooled.jobs) = (None, None);
    same(&pooled, &direct)
}

fn same(pooled: &DatabaseIdentity, direct: &DatabaseIdentity) -> Result<()> {
    if pooled == direct {
        return Ok(());
    }
    Err(refused(format!(
        "the connections for jobs lead to the database {}, but `direct` leads to {}{}",
        quoted(&pooled.database),
        quoted(&direct.database),
        if pooled.started == direct.started {
            ""
        } else {
            " on another server"
        },
    )))
}

/// Fails if the pool and the direct connection lead to different tables. Also fails if the pool's
/// role or isolation level does not work for jobs. The migrations have checked the role and the
/// isolation level only on the direct connection.
pub(crate) async fn check(
    pool: &Pool,
    liveness: &Liveness,
    sql: &Statements,
    schema: &str,
) -> Result<()> {
    let (direct, _) = identify(&mut liveness.lease().await?, sql, schema).await?;
    let pooled = async {
        let mut lease = pool.lease().await?;
        let first = identify(&mut lease, sql, schema).await?;
        // Runs the statement twice, because the pooler may lose the prepared statement in between.
        identify(&mut lease, sql, schema).await?;
        Ok::<_, Failure>(first)
    };
    let (pooled, rights) = pooled.await.map_err(not_direct)?;
    same(&pooled, &direct)?;
    migrate::check_isolation(&rights.isolation).map_err(not_direct)?;
    if !rights.all {
        return Err(refused(format!(
            "the connections for jobs have another role than `direct`; a DBA must run: \
             GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL \
             TABLES IN SCHEMA {schema} TO {role};",
            schema = quoted(schema),
            role = quoted(&rights.role),
        )));
    }
    Ok(())
}

/// Fails if a pooler changes the session between transactions and does not keep prepared
/// statements. Through such a pooler, a call would fail, or would run another client's statement of
/// the same name.
///
/// The check opens two transactions at once, so that each connection has its own session. A pooler
/// assigns the session that was freed last. So the next statement of the first connection runs in
/// the session of the second connection, where its prepared statement is missing. Without a pooler,
/// or with one session per client, each connection keeps its session, and the check passes.
///
/// The check also returns `Ok` if it fails itself or takes too long, because that proves nothing.
/// For example, a pooler may have only one free session.
pub(crate) async fn check_statements(pool: &Pool) -> Result<()> {
    if pool.max_connections() < 2 {
        return Ok(());
    }
    match tokio::time::timeout(CHECK, loses_statements(pool)).await {
        Ok(Ok(false)) => Ok(()),
        Ok(Ok(true)) => Err(refused(LOSES_STATEMENTS.to_owned())),
        Ok(Err(failure)) => {
            tracing::debug!(%failure, "could not check whether a pooler keeps prepared statements");
            Ok(())
        }
        Err(_) => {
            tracing::debug!("timed out checking whether a pooler keeps prepared statements");
            Ok(())
        }
    }
}

async fn loses_statements(pool: &Pool) -> Result<bool> {
    let (mut one, mut other) = (pool.lease().await?, pool.lease().await?);
    one.begin().await?;
    let first = echo(&mut one, 1).await?;
    other.begin().await?;
    let unlike = Query::new(fixed("SELECT $1::text")).bind("another statement");
    let unlike = other.rows(unlike).await;
    one.finish(Ok(())).await?;
    other.finish(unlike).await?;
    match echo(&mut one, 2).await {
        Ok(second) => Ok((first, second) != (1, 2)),
        // The server rejected the statement, but the connection still works: the session has
        // another statement of this name, or none.
        Err(failure) if failure.loss == Loss::No => Ok(true),
        Err(failure) => Err(failure),
    }
}

async fn echo(lease: &mut Lease, number: i64) -> Result<i64> {
    let echo = Query::new(fixed("SELECT $1::bigint")).bind(number);
    let rows = lease.rows(echo).await?;
    let echoed = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(echoed.unwrap_or_default())
}

/// Binds locks to the session of the connection for heartbeats and locks. Fails if the session
/// belongs to a pooler, because such a session may outlive the connection, or end earlier. The
/// check compares times: the session of a new connection without a pooler is never older than the
/// connection.
pub(crate) async fn bind_locks(liveness: &Liveness, sql: &Statements) -> Result<()> {
    let rows = liveness
        .lease()
        .await?
        .rows(sql.own.own_session.query())
        .await?;
    let asked: Option<i64> = rows.first().map(|row| row.try_get(2)).transpose()?;
    let session = connection::bind_locks(liveness, Binding::new(sql)).await?;
    if session.map(|session| session.start) < asked {
        return Err(refused(
            "session_locks needs a dedicated session for heartbeats and locks, but the server's \
             session is older than the connection, as behind a pooler; set `direct` to the URL \
             of the database itself"
                .to_owned(),
        ));
    }
    Ok(())
}

fn not_direct(failure: Failure) -> Failure {
    failure.about("the connections for jobs, which are not `direct`")
}

/// The role of a connection, its privileges and its isolation level.
struct Rights {
    role: String,
    all: bool,
    isolation: String,
}

async fn identify(
    lease: &mut Lease,
    sql: &Statements,
    schema: &str,
) -> Result<(DatabaseIdentity, Rights)> {
    let identify = sql
        .own
        .identify
        .query()
        .bind(schema)
        .bind(&migrate::tables());
    let rows = lease.rows(identify).await?;
    let row = rows.first().ok_or_else(|| {
        refused("the server returned no row that identifies its database".to_owned())
    })?;
    let identity = DatabaseIdentity {
        database: row.try_get(0)?,
        started: row.try_get(1)?,
        jobs: row.try_get(2)?,
    };
    let rights = Rights {
        role: row.try_get(3)?,
        all: row.try_get(4)?,
        isolation: row.try_get(5)?,
    };
    Ok((identity, rights))
}

fn refused(text: String) -> Failure {
    Failure::new(StoreErrorKind::Misconfigured, text)
}
