//! Whether the pool leads to where the connection past it leads, whether that leads past it, and
//! whether a pooler on the way keeps prepared statements.

use std::time::Duration;

use ratchet_core::StoreErrorKind;
use ratchet_sql::{Failure, Lease as _, Loss, Query as _, Result, Row as _, Run as _};

use crate::connection::{Lease, Liveness, Pool, fixed};
use crate::dialect::Query;
use crate::error::LOSES_STATEMENTS;
use crate::migrate;
use crate::session::Binding;
use crate::statements::{Statements, quoted};

/// How long the check of prepared statements may take.
const CHECK: Duration = Duration::from_secs(1);

/// The findings of one connection.
#[derive(PartialEq, Eq)]
struct Place {
    database: String,
    /// When the server was started: no two servers were at the same microsecond.
    started: i64,
    /// The number of the table jobs.
    jobs: Option<i64>,
}

/// Refuses a pool that leads to another database than the direct connection: for before anything is
/// made through either. Other nodes may be at making the tables.
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

fn same(pooled: &Place, direct: &Place) -> Result<()> {
    if pooled == direct {
        return Ok(());
    }
    Err(refused(format!(
        "the connections for jobs lead to the database {}, and `direct` to {}{}",
        quoted(&pooled.database),
        quoted(&direct.database),
        if pooled.started == direct.started {
            ""
        } else {
            " on another server"
        },
    )))
}

/// Refuses a pool that leads to other tables than the direct connection, or through which jobs
/// could not be worked on: what migrations were checked on is the direct one.
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
        // A pooler may lose the prepared statement in between.
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

/// Refuses a pooler that gives a client another session for each transaction and does not keep
/// prepared statements: a call would fail there, or run the statement that another client gave the
/// same name.
///
/// Two connections are in transactions at once, so each has a session of its own. The pooler gives
/// away the session that came free last: then the first connection gets that of the second. Without
/// a pooler, and with one session a client, each connection keeps its own, and nothing shows. Where
/// that takes too long, as it does before a pooler with one free session, or fails, there is no
/// proof, and nothing is refused.
pub(crate) async fn check_statements(pool: &Pool) -> Result<()> {
    if pool.max_connections() < 2 {
        return Ok(());
    }
    match tokio::time::timeout(CHECK, loses_statements(pool)).await {
        Ok(Ok(false)) => Ok(()),
        Ok(Ok(true)) => Err(refused(LOSES_STATEMENTS.to_owned())),
        Ok(Err(failure)) => {
            tracing::debug!(%failure, "no check whether a pooler keeps prepared statements");
            Ok(())
        }
        Err(_) => {
            tracing::debug!("no time to check whether a pooler keeps prepared statements");
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
        // The server refused it and the connection goes on: it is another statement, or none.
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

/// Binds locks to the session of the connection for heartbeats and locks, and refuses to if that is
/// a pooler's, which goes on when the connection is gone and may end while it lasts: the session of
/// a new connection cannot have begun before the connection.
pub(crate) async fn bind_locks(liveness: &Liveness, sql: &Statements) -> Result<()> {
    let rows = liveness
        .lease()
        .await?
        .rows(sql.own.own_session.query())
        .await?;
    let asked: Option<i64> = rows.first().map(|row| row.try_get(2)).transpose()?;
    let session = liveness.bind_locks(Binding::new(sql)).await?;
    if session.map(|session| session.start) < asked {
        return Err(refused(
            "session_locks needs a session of its own for heartbeats and locks, and their \
             connection got one that was there before it, as a pooler gives; set `direct` to the \
             URL of the database itself"
                .to_owned(),
        ));
    }
    Ok(())
}

fn not_direct(failure: Failure) -> Failure {
    failure.about("the connections for jobs, which are not `direct`")
}

/// The features that a connection supports.
struct Rights {
    role: String,
    all: bool,
    isolation: String,
}

async fn identify(lease: &mut Lease, sql: &Statements, schema: &str) -> Result<(Place, Rights)> {
    let identify = sql
        .own
        .identify
        .query()
        .bind(schema)
        .bind(&migrate::tables());
    let rows = lease.rows(identify).await?;
    let row = rows
        .first()
        .ok_or_else(|| refused("the server does not say what it is".to_owned()))?;
    let place = Place {
        database: row.try_get(0)?,
        started: row.try_get(1)?,
        jobs: row.try_get(2)?,
    };
    let rights = Rights {
        role: row.try_get(3)?,
        all: row.try_get(4)?,
        isolation: row.try_get(5)?,
    };
    Ok((place, rights))
}

fn refused(text: String) -> Failure {
    Failure::new(StoreErrorKind::Misconfigured, text)
}
