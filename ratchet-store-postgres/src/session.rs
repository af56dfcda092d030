//! Binds locks to a session of the server, so that the locks end with the session.
//!
//! Only the row of a lock determines its holder, fence and expiry. A session can only end the lock
//! sooner. An advisory lock in addition to the row would be a second source of truth, and each of
//! the two could be lost without the other.

use std::sync::{Mutex, PoisonError};

use ratchet_core::StoreErrorKind;
use ratchet_sql::{Failure, Query as _, Result, Row as _, Run as _};
use sqlx::postgres::PgConnection;

use crate::connection::Caller;
use crate::dialect::Row;
use crate::statements::{Statement, Statements};

/// A session of the server. It is identified by process id and start time, because the server
/// reuses process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) pid: i32,
    /// Start of the session, in microseconds since 1970.
    pub(crate) start: i64,
}

/// Binds locks to the session of the connection for heartbeats and locks.
#[derive(Debug)]
pub(crate) struct Binding {
    own_session: Statement,
    rebind_locks: Statement,
    /// Session to which locks are bound. After the connection is lost, this remains its old session
    /// until a new connection is opened.
    session: Mutex<Option<Session>>,
}

impl Binding {
    pub(crate) fn new(sql: &Statements) -> Self {
        Self {
            own_session: sql.own.own_session.clone(),
            rebind_locks: sql.own.rebind_locks.clone(),
            session: Mutex::default(),
        }
    }

    /// Returns the session to which locks are bound.
    pub(crate) fn session(&self) -> Option<Session> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds locks to the session of this connection, including those that are bound to the session
    /// before it.
    pub(crate) async fn bind(&self, connection: &mut PgConnection) -> Result<()> {
        let mut connection = Caller(connection);
        let rows = connection.rows(self.own_session.query()).await?;
        let session = own_session(rows.first().ok_or_else(Failure::unreadable)?)?;
        if let Some(before) = self.session() {
            let rebind = self.rebind_locks.query();
            let rebind = rebind.bind(before.pid).bind(before.start);
            let rebind = rebind.bind(session.pid).bind(session.start);
            connection.execute(rebind).await?;
        }
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
        Ok(())
    }
}

/// Reads a session from a row of the statement `own_session`.
fn own_session(row: &Row) -> Result<Session> {
    let start: Option<i64> = row.try_get(1)?;
    let start = start.ok_or_else(|| {
        Failure::new(
            StoreErrorKind::Misconfigured,
            "the role may not see its own session, which session_locks needs; a DBA must run: \
             GRANT pg_read_all_stats TO the role that statements run as",
        )
    })?;
    Ok(Session {
        pid: row.try_get(0)?,
        start,
    })
}
