//! Classifies the errors of the driver and the server.

use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_sql::{Failure, Loss, Result};
use sqlx::mysql::MySqlDatabaseError;

/// Converts the driver's errors in a result to failures of the store.
pub(crate) trait Classified<T> {
    /// Converts the error, if any, to a [`Failure`].
    fn classified(self) -> Result<T>;
}

impl<T> Classified<T> for std::result::Result<T, sqlx::Error> {
    fn classified(self) -> Result<T> {
        self.map_err(|error| classify(&error))
    }
}

/// Converts an error of the driver to a failure of the store.
pub(crate) fn classify(error: &sqlx::Error) -> Failure {
    match error {
        sqlx::Error::Database(database) => {
            match database.try_downcast_ref::<MySqlDatabaseError>() {
                Some(error) => of_server(error.number(), error.message()),
                None => Failure::new(StoreErrorKind::Other, "the database refused the call"),
            }
        }
        sqlx::Error::Io(error) => Failure::lost(format!("the connection failed: {error}")),
        sqlx::Error::Protocol(text) => Failure::lost(format!("the connection broke: {text}")),
        sqlx::Error::PoolTimedOut => {
            Failure::new(StoreErrorKind::Timeout, "no connection was free in time")
        }
        sqlx::Error::PoolClosed => Failure::closed(),
        sqlx::Error::Configuration(_) | sqlx::Error::Tls(_) => {
            Failure::new(StoreErrorKind::Misconfigured, error.to_string())
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Failure::unreadable(),
        sqlx::Error::ColumnIndexOutOfBounds { .. } | sqlx::Error::ColumnNotFound(_) => {
            Failure::new(
                StoreErrorKind::SchemaMismatch(SchemaProblem::Altered),
                error.to_string(),
            )
        }
        _ => Failure::new(StoreErrorKind::Other, error.to_string()),
    }
}

fn of_server(number: u16, message: &str) -> Failure {
    let mut failure = Failure::new(kind_of(number, message), shown(number, message));
    failure.loss = match number {
        // The server shuts down, or has ended this connection, after it has rolled back.
        1053 | 1927 | 4031 => Loss::Told,
        _ if failure.kind == StoreErrorKind::ReadOnly => Loss::ReadOnly,
        _ => Loss::No,
    };
    failure.held = matches!(number, 1205 | 3572);
    failure.duplicate = matches!(number, 1022 | 1062 | 1586);
    failure.forbidden = matches!(number, 1044 | 1142 | 1143 | 1227 | 1370);
    // A changed record (innodb_snapshot_isolation), a full lock table, and a deadlock.
    failure.rolled_back = matches!(number, 1020 | 1206 | 1213);
    // The column of a job's route is not NULL (jobs.sql).
    failure.refuted = number == 1048;
    failure
}

/// Returns the text to show for an error of the server. A message may quote stored values. So the
/// message is shown only for numbers whose messages name nothing except the server's own objects.
fn shown(number: u16, message: &str) -> String {
    let message = match number {
        1022 | 1062 | 1586 => "a key or an id exists already",
        1048 => "the database lacks a route of the jobs",
        1153 => {
            "the call has more bytes than max_allowed_packet of the server allows; run: SET GLOBAL \
             max_allowed_packet = 67108864"
        }
        1305 => "the connection is not in a transaction",
        1665 => {
            "the server writes statements to its binary log, which READ COMMITTED does not allow; \
             set binlog_format to ROW or MIXED"
        }
        1021 | 1030 | 1034 | 1040 | 1044 | 1045 | 1047 | 1049 | 1053 | 1054 | 1114 | 1129
        | 1130 | 1142 | 1143 | 1146 | 1194 | 1195 | 1203 | 1205 | 1213 | 1226 | 1227 | 1290
        | 1317 | 1364 | 1370 | 1698 | 1712 | 1792 | 1836 | 1927 | 1969 | 3024 | 3572 | 4031 => {
            message
        }
        1264..=1265 | 1366 | 1406 | 3819 | 4025 => "the server rejected a value",
        _ => "the server refused the call; its log may have the reason",
    };
    format!("{message} (error {number})")
}

/// Maps a number of the server to the kind of the error that the caller gets.
fn kind_of(number: u16, message: &str) -> StoreErrorKind {
    match number {
        // Record has changed, missing route, duplicate key, lock wait timeout, deadlock, NOWAIT.
        // After a duplicate key, the next try finds the row that has the key or id.
        1020 | 1022 | 1048 | 1062 | 1205 | 1213 | 1586 | 3572 => StoreErrorKind::Contention,
        // KILL QUERY, and statements that ran for too long.
        1317 | 1969 | 3024 => StoreErrorKind::Timeout,
        1021 | 1114 => StoreErrorKind::Full,
        // An error of the storage engine, which has the number of the operating system.
        1030 if message.contains("error 28 ") => StoreErrorKind::Full,
        1290 if message.contains("read-only") => StoreErrorKind::ReadOnly,
        1792 | 1836 => StoreErrorKind::ReadOnly,
        // Access denied, unknown database, missing privileges, no transaction where one is
        // required, and settings of the server that the store does not work with.
        1044 | 1045 | 1049 | 1130 | 1142 | 1143 | 1153 | 1227 | 1290 | 1305 | 1370 | 1665
        | 1698 => StoreErrorKind::Misconfigured,
        // Tables or columns that are missing or not Ratchet's.
        1051 | 1054 | 1072 | 1091 | 1146 | 1176 | 1364 | 1366 | 1406 => {
            StoreErrorKind::SchemaMismatch(SchemaProblem::Altered)
        }
        1034 | 1194 | 1195 | 1712 => StoreErrorKind::Corrupt,
        // Too many connections, a node of a cluster that is not ready, a shutdown, a connection
        // that was killed or idle for too long.
        1040 | 1047 | 1053 | 1129 | 1203 | 1226 | 1927 | 4031 => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_tells_the_caller_what_to_do() {
        use StoreErrorKind::{
            Contention, Corrupt, Full, Misconfigured, Other, ReadOnly, SchemaMismatch, Timeout,
            Unavailable,
        };
        for (number, message, kind) in [
            (1062, "", Contention),
            (1205, "", Contention),
            (1213, "", Contention),
            (3572, "", Contention),
            (1317, "", Timeout),
            (1969, "", Timeout),
            (3024, "", Timeout),
            (1114, "", Full),
            (1030, "Got error 28 \"No space left on device\"", Full),
            (1030, "Got error 128 \"Unknown error 128\"", Other),
            (
                1290,
                "The server is running with the --read-only option",
                ReadOnly,
            ),
            (
                1290,
                "The server is running with the --skip-grant-tables option",
                Misconfigured,
            ),
            (1836, "", ReadOnly),
            (1045, "", Misconfigured),
            (1142, "", Misconfigured),
            (1153, "", Misconfigured),
            (1146, "", SchemaMismatch(SchemaProblem::Altered)),
            (1364, "", SchemaMismatch(SchemaProblem::Altered)),
            (1712, "", Corrupt),
            (1040, "", Unavailable),
            (1053, "", Unavailable),
            (1927, "", Unavailable),
            (4031, "", Unavailable),
            (1064, "", Other),
        ] {
            assert_eq!(kind_of(number, message), kind, "{number} {message}");
        }
    }

    #[test]
    fn a_deadlock_ends_the_transaction_and_a_lock_wait_only_the_statement() {
        let (deadlock, wait) = (of_server(1213, ""), of_server(1205, ""));
        assert!(deadlock.rolled_back && !deadlock.held);
        assert!(wait.held && !wait.rolled_back);
        for ended in [1053, 1927, 4031] {
            assert_eq!(of_server(ended, "").loss, Loss::Told);
        }
        assert!(of_server(1142, "").forbidden && of_server(1062, "").duplicate);
    }

    #[test]
    fn only_messages_without_values_are_shown() {
        for number in [1062, 1366, 1406, 4025, 1064, 1105, 0] {
            let text = shown(number, "the value secret");
            assert!(!text.contains("secret"), "{text}");
            assert!(text.contains(&number.to_string()), "{text}");
        }
        assert!(shown(1146, "Table 'a.jobs' doesn't exist").contains("a.jobs"));
    }
}
