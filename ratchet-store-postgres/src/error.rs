//! Classifies the errors of the driver and the server.

use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_sql::{Failure, Loss, Result};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

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
        sqlx::Error::Database(database) => match database.try_downcast_ref::<PgDatabaseError>() {
            Some(error) => of_server(error),
            None => Failure::new(StoreErrorKind::Other, "the database refused the call"),
        },
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
        sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::ColumnNotFound(_) => Failure::new(
            StoreErrorKind::SchemaMismatch(SchemaProblem::Altered),
            error.to_string(),
        ),
        _ => Failure::new(StoreErrorKind::Other, error.to_string()),
    }
}

fn of_server(error: &PgDatabaseError) -> Failure {
    let code = error.code();
    if code == "08P01" && error.message().contains("unsupported startup parameter") {
        return Failure::new(
            StoreErrorKind::Misconfigured,
            format!(
                "the pooler refuses a setting of the connection: {} (SQLSTATE {code}); add it \
                 to ignore_startup_parameters of PgBouncer, or create the pool without it \
                 (`PgConnectOptions::extra_float_digits(None)`)",
                error.message()
            ),
        );
    }
    let ended = matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic);
    // With these codes, the server itself reports that it ended the session, and the call was
    // rolled back. After other fatal errors, such as those of a pooler, the outcome of the call is
    // unknown.
    let by_server = code.starts_with("57P") || code.starts_with("53") || code == "25P03";
    let text = shown(code, error.routine(), error.message());
    let mut failure = Failure::new(kind_of(code), text);
    failure.loss = match (ended, by_server) {
        (false, _) if kind_of(code) == StoreErrorKind::ReadOnly => Loss::ReadOnly,
        (false, _) => Loss::No,
        (true, true) => Loss::Told,
        (true, false) => Loss::Silent,
    };
    failure.held = code == "55P03";
    failure.duplicate = code == "23505";
    failure.forbidden = code == "42501";
    failure
}

/// Message about a pooler that changes the session between transactions and does not keep prepared
/// statements.
pub(crate) const LOSES_STATEMENTS: &str = "the pooler in front of the server does not keep prepared statements: use PgBouncer 1.21 or \
     later with max_prepared_statements above 0, or pool_mode=session";

/// Returns the text to show for an error of the server. A message may quote stored values. So the
/// message is shown only for codes whose messages name nothing except the server's own objects.
fn shown(code: &str, routine: Option<&str>, message: &str) -> String {
    let class = code.get(..2).unwrap_or_default();
    let message = match (code, class) {
        ("26000" | "42P05", _) => LOSES_STATEMENTS,
        // A trigger or a function may raise any code, with stored values in the message.
        _ if routine == Some("exec_stmt_raise") => "a trigger or a function refused the call",
        ("XX001" | "XX002", _)
        | (
            _,
            "08" | "0A" | "23" | "25" | "28" | "3D" | "3F" | "40" | "42" | "53" | "54" | "55"
            | "57" | "58",
        ) => message,
        (_, "22") => "the server rejected a value",
        _ => "the server refused the call; see the server's log for the reason",
    };
    format!("{message} (SQLSTATE {code})")
}

/// Maps a SQLSTATE to the kind of the error that the caller gets.
fn kind_of(code: &str) -> StoreErrorKind {
    match code {
        // Serialization failure, deadlock, lock not available, and unique violation. After a unique
        // violation, the next try finds the row that has the key or id.
        "40001" | "40P01" | "55P03" | "23505" => StoreErrorKind::Contention,
        "57014" => StoreErrorKind::Timeout,
        "53100" => StoreErrorKind::Full,
        "25006" => StoreErrorKind::ReadOnly,
        // Unknown role, wrong password, unknown database, missing privilege, no transaction where
        // one is required, a pooler that loses prepared statements.
        "28000" | "28P01" | "3D000" | "42501" | "25P01" | "26000" | "42P05" => {
            StoreErrorKind::Misconfigured
        }
        // A table, schema, column, function, type or constraint that is missing, or differs from
        // the one that the migrations created.
        "42P01" | "3F000" | "42703" | "42883" | "42704" | "42804" | "42P10" | "42809" => {
            StoreErrorKind::SchemaMismatch(SchemaProblem::Altered)
        }
        "XX001" | "XX002" => StoreErrorKind::Corrupt,
        _ => match code.get(..2) {
            // Connection errors, insufficient resources, operator intervention and system errors.
            Some("08" | "53" | "57" | "58") => StoreErrorKind::Unavailable,
            _ if code == "25P03" => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_tells_the_caller_what_to_do() {
        use StoreErrorKind::{
            Contention, Corrupt, Full, Misconfigured, Other, ReadOnly, SchemaMismatch, Timeout,
            Unavailable,
        };
        let table = [
            ("40001", Contention),
            ("40P01", Contention),
            ("55P03", Contention),
            ("23505", Contention),
            ("57014", Timeout),
            ("53100", Full),
            ("53200", Unavailable),
            ("53300", Unavailable),
            ("53400", Unavailable),
            ("25006", ReadOnly),
            ("25P03", Unavailable),
            ("08000", Unavailable),
            ("08006", Unavailable),
            ("57P01", Unavailable),
            ("57P02", Unavailable),
            ("57P03", Unavailable),
            ("57P04", Unavailable),
            ("57P05", Unavailable),
            ("58030", Unavailable),
            ("28000", Misconfigured),
            ("28P01", Misconfigured),
            ("3D000", Misconfigured),
            ("42501", Misconfigured),
            ("25P01", Misconfigured),
            ("26000", Misconfigured),
            ("42P05", Misconfigured),
            ("42P01", SchemaMismatch(SchemaProblem::Altered)),
            ("3F000", SchemaMismatch(SchemaProblem::Altered)),
            ("42703", SchemaMismatch(SchemaProblem::Altered)),
            ("42883", SchemaMismatch(SchemaProblem::Altered)),
            ("XX001", Corrupt),
            ("XX002", Corrupt),
            ("XX000", Other),
            ("22P02", Other),
            ("23514", Other),
            ("25P02", Other),
            ("", Other),
        ];
        for (code, kind) in table {
            assert_eq!(kind_of(code), kind, "SQLSTATE {code}");
        }
    }

    #[test]
    fn only_messages_without_values_are_shown() {
        for code in ["22P02", "22001", "P0001", "XX000", "38000", "99999", ""] {
            let text = shown(code, None, "the value secret");
            assert!(!text.contains("secret") && text.contains(code), "{text}");
        }
        let raised = shown("23514", Some("exec_stmt_raise"), "the value secret");
        assert!(!raised.contains("secret"), "{raised}");
        for code in [
            "42501", "42P01", "23505", "57P01", "55P03", "28P01", "XX001",
        ] {
            let text = shown(
                code,
                Some("aclcheck_error"),
                "permission denied for table jobs",
            );
            assert!(text.contains("table jobs") && text.contains(code), "{text}");
        }
    }

    #[test]
    fn failures_of_the_driver_are_told_apart() {
        let io = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        let lost = classify(&io());
        assert_eq!(lost.kind, StoreErrorKind::Unavailable);
        assert_eq!(lost.loss, Loss::Silent);
        let table = [
            (sqlx::Error::PoolTimedOut, StoreErrorKind::Timeout),
            (sqlx::Error::PoolClosed, StoreErrorKind::Unavailable),
            (
                sqlx::Error::Configuration("bad".into()),
                StoreErrorKind::Misconfigured,
            ),
            (
                sqlx::Error::Decode("secret".into()),
                StoreErrorKind::Corrupt,
            ),
        ];
        for (error, kind) in table {
            let failure = classify(&error);
            assert_eq!(failure.kind, kind);
            assert_eq!(failure.loss, Loss::No);
            assert!(!failure.to_string().contains("secret"));
        }
    }
}
