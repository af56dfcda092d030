//! Failures inside the store, and how callers see them.

use ratchet_core::{InvalidInput, SchemaProblem, StoreError, StoreErrorKind};
use rusqlite::ffi;

/// The result of a function inside the store. Its error does not name the operation yet.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// An error inside the store that does not name the operation yet.
///
/// The type is `Clone`, because the store commits the writes of several calls together, and a
/// failed commit fails all these calls. The text never contains stored or bound values.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(crate) kind: StoreErrorKind,
    text: String,
    /// Problem with the caller's input, set only for kind `Invalid`.
    refused: Option<InvalidInput>,
}

impl Failure {
    pub(crate) fn new(kind: StoreErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            refused: None,
        }
    }

    /// Creates a failure of kind `Invalid`, for input that the store rejects.
    pub(crate) fn refused(problem: InvalidInput) -> Self {
        Self {
            text: problem.to_string(),
            refused: Some(problem),
            ..Self::new(StoreErrorKind::Invalid, "")
        }
    }

    /// Prepends `what` and a colon to the text.
    pub(crate) fn about(mut self, what: &str) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// Converts the failure to the error that the caller of `operation` gets.
    pub(crate) fn during(self, operation: &'static str) -> StoreError {
        let error = StoreError::new(self.kind, operation);
        match self.refused {
            Some(problem) => error.with_source(problem),
            None => error.with_source(self),
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match &error {
            rusqlite::Error::SqliteFailure(code, message) => {
                let text = message.clone().unwrap_or_else(|| code.to_string());
                let kind = kind_of(code.extended_code, &text);
                // Messages may quote values, such as those of a trigger. The messages of recognized
                // errors and of constraints name only tables and columns, so only these messages
                // are shown.
                let constraint = code.extended_code & 0xff == ffi::SQLITE_CONSTRAINT
                    && code.extended_code != ffi::SQLITE_CONSTRAINT_TRIGGER;
                match kind {
                    StoreErrorKind::Other if !constraint => Self::new(kind, code.to_string()),
                    _ => Self::new(kind, text),
                }
            }
            // Omits the statement, which is long and does not help the reader of a log.
            rusqlite::Error::SqlInputError { error, msg, .. } => {
                Self::new(kind_of(error.extended_code, msg), msg.clone())
            }
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => {
                Self::new(StoreErrorKind::Corrupt, "a stored value cannot be decoded")
            }
            rusqlite::Error::NulError(_) | rusqlite::Error::InvalidPath(_) => {
                Self::new(StoreErrorKind::Misconfigured, "the path cannot be opened")
            }
            _ => Self::new(StoreErrorKind::Other, error.to_string()),
        }
    }
}

impl From<InvalidInput> for Failure {
    /// Creates a failure of kind `Corrupt`, for a stored value that is invalid.
    fn from(problem: InvalidInput) -> Self {
        Self::new(StoreErrorKind::Corrupt, problem.to_string())
    }
}

/// Maps an extended result code of SQLite to the kind of the error that the caller gets.
fn kind_of(extended: i32, message: &str) -> StoreErrorKind {
    // The file was moved or deleted while it was open: the database is gone, not read-only.
    if extended == ffi::SQLITE_READONLY_DBMOVED {
        return StoreErrorKind::Unavailable;
    }
    match extended & 0xff {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL => StoreErrorKind::Contention,
        ffi::SQLITE_FULL => StoreErrorKind::Full,
        ffi::SQLITE_READONLY => StoreErrorKind::ReadOnly,
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB | ffi::SQLITE_FORMAT => StoreErrorKind::Corrupt,
        ffi::SQLITE_CANTOPEN | ffi::SQLITE_IOERR | ffi::SQLITE_NOMEM => StoreErrorKind::Unavailable,
        ffi::SQLITE_PERM | ffi::SQLITE_AUTH => StoreErrorKind::Misconfigured,
        ffi::SQLITE_SCHEMA => StoreErrorKind::SchemaMismatch(SchemaProblem::Altered),
        ffi::SQLITE_ERROR if names_missing_object(message) => {
            StoreErrorKind::SchemaMismatch(SchemaProblem::Altered)
        }
        _ => StoreErrorKind::Other,
    }
}

/// Returns whether the message reports a missing table, column or index. SQLite has no result code
/// for these problems.
fn names_missing_object(message: &str) -> bool {
    ["no such table", "no such column", "no such index"]
        .iter()
        .any(|start| message.starts_with(start))
        || message.contains("has no column named")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_tells_the_caller_what_to_do() {
        use StoreErrorKind::{
            Contention, Corrupt, Full, Misconfigured, Other, ReadOnly, SchemaMismatch, Unavailable,
        };
        let table = [
            (ffi::SQLITE_BUSY, Contention),
            (ffi::SQLITE_BUSY_SNAPSHOT, Contention),
            (ffi::SQLITE_BUSY_RECOVERY, Contention),
            (ffi::SQLITE_LOCKED, Contention),
            (ffi::SQLITE_LOCKED_SHAREDCACHE, Contention),
            (ffi::SQLITE_PROTOCOL, Contention),
            (ffi::SQLITE_FULL, Full),
            (ffi::SQLITE_READONLY, ReadOnly),
            (ffi::SQLITE_READONLY_DIRECTORY, ReadOnly),
            (ffi::SQLITE_READONLY_CANTLOCK, ReadOnly),
            (ffi::SQLITE_READONLY_DBMOVED, Unavailable),
            (ffi::SQLITE_CORRUPT, Corrupt),
            (ffi::SQLITE_CORRUPT_INDEX, Corrupt),
            (ffi::SQLITE_NOTADB, Corrupt),
            (ffi::SQLITE_CANTOPEN, Unavailable),
            (ffi::SQLITE_IOERR, Unavailable),
            (ffi::SQLITE_IOERR_FSYNC, Unavailable),
            (ffi::SQLITE_IOERR_SHMMAP, Unavailable),
            (ffi::SQLITE_NOMEM, Unavailable),
            (ffi::SQLITE_PERM, Misconfigured),
            (ffi::SQLITE_AUTH, Misconfigured),
            (ffi::SQLITE_SCHEMA, SchemaMismatch(SchemaProblem::Altered)),
            (ffi::SQLITE_ERROR, Other),
            (ffi::SQLITE_CONSTRAINT_UNIQUE, Other),
            (ffi::SQLITE_MISUSE, Other),
        ];
        for (code, kind) in table {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("x".to_owned()));
            assert_eq!(Failure::from(error).kind, kind, "code {code}");
        }
    }

    #[test]
    fn a_missing_table_is_a_wrong_schema_and_the_statement_is_not_told() {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        for sql in ["SELECT 'secret' FROM nowhere", "SELECT absent AS secret"] {
            let failure = Failure::from(database.prepare(sql).unwrap_err());
            assert_eq!(
                failure.kind,
                StoreErrorKind::SchemaMismatch(SchemaProblem::Altered),
                "{failure:?}"
            );
            assert!(!failure.to_string().contains("secret"), "{failure}");
        }
    }

    #[test]
    fn values_never_show_in_an_error() {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        database
            .execute_batch("CREATE TABLE t (a TEXT UNIQUE)")
            .unwrap();
        let insert = || database.execute("INSERT INTO t VALUES (?1)", ["secret"]);
        insert().unwrap();
        let failure = Failure::from(insert().unwrap_err());
        assert!(failure.to_string().contains("t.a"), "{failure}");
        assert!(!failure.to_string().contains("secret"), "{failure}");
        database
            .execute_batch(
                "CREATE TRIGGER r BEFORE DELETE ON t BEGIN SELECT RAISE(ABORT, 'the secret'); END",
            )
            .unwrap();
        let failure = Failure::from(database.execute("DELETE FROM t", []).unwrap_err());
        assert!(!failure.to_string().contains("secret"), "{failure}");
        let path = "SELECT json_extract('{}', 'secret')";
        let failure = database.query_row(path, [], |row| row.get::<_, String>(0));
        let failure = Failure::from(failure.unwrap_err());
        assert!(!failure.to_string().contains("secret"), "{failure}");
    }
}
