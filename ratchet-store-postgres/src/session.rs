//! Binds locks to a session of the server, so that the locks end with the session.
//!
//! Only the row of a lock determines its holder, fence and expiry. A session can only end the lock
//! sooner. An advisory lock in addition to the row would be a second source of truth, and each of
//! the two could be lost without the other.

use std::time::Duration;

use ratchet_core::StoreErrorKind;
use ratchet_sql::{Failure, Made, Query as _, Result, Row as _, Run as _};
use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::connect::{connect, within};
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

/// The statements for binding locks to the session of a connection.
#[derive(Debug)]
pub(crate) struct Binding {
    own_session: Statement,
    rebind_locks: Statement,
}

impl Binding {
    pub(crate) fn new(sql: &Statements) -> Self {
        Self {
            own_session: sql.own.own_session.clone(),
            rebind_locks: sql.own.rebind_locks.clone(),
        }
    }

    /// Returns the session of this connection. If `before` is set, binds the locks that are bound
    /// to the session `before` to the session of this connection.
    pub(crate) async fn bind(
        &self,
        connection: &mut PgConnection,
        before: Option<Session>,
    ) -> Result<Session> {
        let mut connection = Caller(connection);
        let rows = connection.rows(self.own_session.query()).await?;
        let session = own_session(rows.first().ok_or_else(Failure::unreadable)?)?;
        if let Some(before) = before {
            let rebind = self.rebind_locks.query();
            let rebind = rebind.bind(before.pid).bind(before.start);
            let rebind = rebind.bind(session.pid).bind(session.start);
            connection.execute(rebind).await?;
        }
        Ok(session)
    }
}

/// The connection for heartbeats and locks, with the session to which locks are bound.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) connection: Option<(PgConnection, Made)>,
    /// Session to which locks are bound. After the connection is lost, this remains its old session
    /// until a new connection is opened.
    pub(crate) session: Option<Session>,
}

impl Slot {
    pub(crate) const fn new(connection: Option<(PgConnection, Made)>) -> Self {
        Self {
            connection,
            session: None,
        }
    }

    /// Replaces an old or lost connection by a new connection. Binds the locks of the old session
    /// to the new session.
    pub(crate) async fn replace(
        &mut self,
        options: &PgConnectOptions,
        patience: Duration,
        binding: Option<&Binding>,
        now: Made,
    ) -> Result<()> {
        let Some(binding) = binding else {
            self.connection = None;
            self.connection = Some((connect(options, patience).await?, now));
            return Ok(());
        };
        // An old connection stays open until the locks are bound to the new session. So the locks
        // never name an ended session. If connecting fails, the old connection is kept for another
        // lifetime.
        match &mut self.connection {
            Some((_, made)) if made.is_same_generation(now) => *made = now,
            lost => *lost = None,
        }
        let connected = async {
            let mut connection = connect(options, patience).await?;
            let bind = binding.bind(&mut connection, self.session);
            let session = within(patience, bind).await??;
            Ok((connection, session))
        };
        match connected.await {
            Ok((connection, session)) => {
                self.connection = Some((connection, now));
                self.session = Some(session);
                Ok(())
            }
            Err(failure) if self.connection.is_some() => {
                tracing::debug!(%failure, "could not replace the old connection for heartbeats and locks; keeping it");
                Ok(())
            }
            Err(failure) => Err(failure),
        }
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
