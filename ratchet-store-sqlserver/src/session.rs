//! The settings of sessions, and the checks of the server and the database.

use std::time::Duration;

use ratchet_core::{SchemaProblem, StoreErrorKind, time};
use ratchet_sql::{Failure, Result, Row as _};

use crate::connection::Lease;
use crate::row::Row;
use crate::words::quoted;

/// The settings of database sessions.
pub(crate) struct Session {
    /// Batch of statements that applies the settings to a new session.
    pub(crate) setup: String,
    /// Maximum time that a statement waits for a lock, in milliseconds.
    pub(crate) lock_timeout: i64,
}

/// Settings that filtered indexes need. A session must have them to create such an index or to
/// write to its table.
pub(crate) const INDEXABLE: &str = "SET ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, \
     CONCAT_NULL_YIELDS_NULL, QUOTED_IDENTIFIER ON;\n\
     SET NUMERIC_ROUNDABORT OFF;\n\
     SET XACT_ABORT ON;\n";

impl Session {
    /// Builds the settings. They cover everything on which the statements depend. So the defaults
    /// of the login, the database and the server have no effect.
    ///
    /// The server does not notice that a connection was dropped, and continues to run the
    /// statement. So the settings limit each wait for a lock to the deadline of a call. They also
    /// make every error end the transaction.
    pub(crate) fn new(deadline: Duration) -> Self {
        let lock_timeout = lock_timeout(deadline);
        let setup = format!(
            "{INDEXABLE}\
             SET IMPLICIT_TRANSACTIONS OFF;\n\
             SET NOCOUNT OFF;\n\
             SET ROWCOUNT 0;\n\
             SET TEXTSIZE 2147483647;\n\
             SET LOCK_TIMEOUT {lock_timeout};\n\
             SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
        );
        Self {
            setup,
            lock_timeout,
        }
    }
}

/// Query for the part of a session's state that the setup does not reset, as one text. The text
/// contains the database, the user and several settings. After an application has used a session,
/// the store uses it again only if this text has not changed.
pub(crate) const CHARACTER: &str = "SELECT CAST(CONCAT(DB_NAME(), N'/', CURRENT_USER, N'/', \
     @@LANGUAGE, N'/', @@DATEFIRST, N'/', @@OPTIONS, N'/', @@TRANCOUNT, N'/', own.date_format, N'/', \
     own.deadlock_priority, N'/', own.transaction_isolation_level, N'/', \
     CONVERT(nvarchar(256), own.context_info, 2)) AS nvarchar(max)) \
     FROM (SELECT 1 AS one) AS one \
     LEFT JOIN sys.dm_exec_sessions AS own ON own.session_id = @@SPID";

/// Returns the state of a session from the result of the query [`CHARACTER`].
pub(crate) fn character(rows: &[Row]) -> Result<String> {
    let row = rows.first().ok_or_else(|| {
        let text = "the server returned no state of the session";
        Failure::new(StoreErrorKind::Other, text)
    })?;
    row.try_get(0)
}

/// Converts a timeout to milliseconds for the server. Returns at least 1, because with 0 the server
/// would not wait at all. Returns at most `i32::MAX`.
pub(crate) fn lock_timeout(patience: Duration) -> i64 {
    time::duration_millis(patience).clamp(1, i32::MAX.into())
}

/// Properties of the server and the user of a store.
pub(crate) struct Server {
    pub(crate) version: String,
    /// Name of the store's user in the database.
    pub(crate) user: String,
    /// Whether the server is Babelfish, which emulates SQL Server.
    pub(crate) is_babelfish: bool,
}

/// Query for the version of the server, the name of the database, its option
/// `READ_COMMITTED_SNAPSHOT`, and the user. The casts are needed because the driver cannot read the
/// type `sql_variant` of the properties.
const WHO_AND_WHERE: &str = "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), \
     CAST(CASE WHEN is_read_committed_snapshot_on = 1 THEN 1 ELSE 0 END AS int), \
     CAST(name AS nvarchar(128)), \
     CAST(SERVERPROPERTY('BabelfishVersion') AS nvarchar(128)), \
     CAST(CURRENT_USER AS nvarchar(128)) \
     FROM sys.databases WHERE name = DB_NAME()";

const HAS_JSON: &str = "SELECT COUNT(*) FROM OPENJSON(N'[1]')";

/// Queries that a store sends to the server when it connects.
#[cfg(test)]
pub(crate) const QUESTIONS: [&str; 3] = [WHO_AND_WHERE, HAS_JSON, CHARACTER];

/// Fails if the store cannot use the server or the database. The error contains the statements that
/// a DBA must run.
///
/// `locking_reads` is true if a database where readers wait for writers is accepted.
pub(crate) async fn check(lease: &mut Lease, locking_reads: bool) -> Result<Server> {
    let rows = lease.batch(WHO_AND_WHERE).await?;
    let row = rows.first().ok_or_else(|| {
        misconfigured(
            "the login is not allowed to see its own database in sys.databases".to_owned(),
        )
    })?;
    let version: Option<String> = row.try_get(0)?;
    let babelfish: Option<String> = row.try_get(3)?;
    let server = Server {
        user: row.try_get(4)?,
        is_babelfish: babelfish.is_some(),
        version: match babelfish {
            Some(version) => format!("Babelfish {version}"),
            None => version.unwrap_or_else(|| "unknown".to_owned()),
        },
    };
    let database = quoted(row.try_get(2)?);
    check_reads(&database, row.try_get::<i32>(1)? != 0 || locking_reads)?;
    match lease.batch(HAS_JSON).await {
        Ok(_) => Ok(server),
        Err(failure) => Err(without_json(&database, failure)),
    }
}

fn check_reads(database: &str, will_do: bool) -> Result<()> {
    if will_do {
        return Ok(());
    }
    Err(misconfigured(format!(
        "READ_COMMITTED_SNAPSHOT is off in the database, so that readers and writers of jobs wait \
         for each other; a DBA must run: ALTER DATABASE {database} SET READ_COMMITTED_SNAPSHOT ON \
         WITH ROLLBACK IMMEDIATE; or accept the setting with Builder::locking_reads"
    )))
}

/// Explains the failure of a query that uses OPENJSON. An old server, or a database with an old
/// compatibility level, reports OPENJSON as a missing table. Other failures are returned unchanged.
fn without_json(database: &str, failure: Failure) -> Failure {
    if failure.kind != StoreErrorKind::SchemaMismatch(SchemaProblem::Altered) {
        return failure;
    }
    misconfigured(format!(
        "there is no OPENJSON: the server is older than SQL Server 2016, or the compatibility level \
         of the database is below 130; in the latter case, a DBA must run: ALTER DATABASE {database} SET \
         COMPATIBILITY_LEVEL = 130"
    ))
}

fn misconfigured(text: String) -> Failure {
    Failure::new(StoreErrorKind::Misconfigured, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_one_that_the_server_takes() {
        assert_eq!(lock_timeout(Duration::from_nanos(1)), 1);
        assert_eq!(lock_timeout(Duration::from_secs(10)), 10_000);
        assert_eq!(lock_timeout(Duration::MAX), i64::from(i32::MAX));
    }

    #[test]
    fn a_database_whose_readers_wait_is_refused_with_what_a_dba_must_run() {
        check_reads("[app]", true).unwrap();
        let failure = check_reads("[app]", false).unwrap_err();
        assert_eq!(failure.kind, StoreErrorKind::Misconfigured);
        let text = failure.to_string();
        let must_run = "a DBA must run: ALTER DATABASE [app] SET READ_COMMITTED_SNAPSHOT ON WITH \
                        ROLLBACK IMMEDIATE";
        assert!(text.contains(must_run), "{text}");
        assert!(text.contains("locking_reads"), "{text}");
    }

    #[test]
    fn a_compatibility_level_without_lists_is_refused_with_what_a_dba_must_run() {
        // The failure that error 208 becomes.
        let missing = Failure::new(
            StoreErrorKind::SchemaMismatch(SchemaProblem::Altered),
            "Invalid object name",
        );
        let failure = without_json("[app]", missing);
        assert_eq!(failure.kind, StoreErrorKind::Misconfigured);
        let text = failure.to_string();
        let must_run = "a DBA must run: ALTER DATABASE [app] SET COMPATIBILITY_LEVEL = 130";
        assert!(text.contains(must_run), "{text}");
        let lost = without_json("[app]", Failure::lost("gone"));
        assert_eq!(lost.kind, StoreErrorKind::Unavailable);
    }

    /// The test covers two groups of settings: those that filtered indexes need, and those that the
    /// defaults of a login could change.
    #[test]
    fn sessions_leave_nothing_to_defaults() {
        let setup = Session::new(Duration::from_secs(2)).setup;
        for setting in [
            "ANSI_NULLS",
            "ANSI_PADDING",
            "ANSI_WARNINGS",
            "ARITHABORT",
            "CONCAT_NULL_YIELDS_NULL",
            "QUOTED_IDENTIFIER",
            "NUMERIC_ROUNDABORT OFF",
            "IMPLICIT_TRANSACTIONS OFF",
            "NOCOUNT OFF",
            "ROWCOUNT 0",
            "XACT_ABORT ON",
            "LOCK_TIMEOUT 2000;",
            "TRANSACTION ISOLATION LEVEL READ COMMITTED",
        ] {
            assert!(setup.contains(setting), "{setting}");
        }
    }
}
