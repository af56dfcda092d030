//! Failures inside the store, and the errors that callers get for them.

use mongodb::error::{
    Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, WriteFailure,
};
use ratchet_core::error::storable_error;
use ratchet_core::{InvalidInput, SchemaProblem, StoreError, StoreErrorKind};

/// The result of a function inside the store. Its error does not name the operation yet.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// An error inside the store that does not name the operation yet. Its text never contains
/// credentials, stored values or sent values.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(crate) kind: StoreErrorKind,
    pub(crate) loss: Loss,
    /// Error code of the server, or 0 if the error has no code.
    pub(crate) code: i32,
    /// Whether the server rejected the call because the user of the connection no longer exists.
    pub(crate) user_is_gone: bool,
    text: String,
    /// Problem with the caller's input, set only for kind `Invalid`.
    refused: Option<InvalidInput>,
}

/// Whether a failed call may have taken effect, if it failed because a server or a connection was
/// lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Loss {
    /// No server or connection was lost.
    #[default]
    No,
    /// The call had no effect: the server reported this, or the transaction around the call was
    /// aborted.
    Told,
    /// Unknown: the call may have taken effect.
    Silent,
}

/// Error code of the server for a duplicate key.
pub(crate) const DUPLICATE_KEY: i32 = 11_000;

/// Error code of the server for a missing privilege. The server also uses it for a connection whose
/// user was dropped.
pub(crate) const UNAUTHORIZED: i32 = 13;

/// Part of the server's message that shows that the user of the connection was dropped.
const NO_USER: &str = "requires authentication";
/// Error code of the server for an invalid value in a statement.
pub(crate) const BAD_VALUE: i32 = 2;
/// Part of the server's message if a statement names an index that does not exist.
const NO_INDEX: &str = "hint provided does not correspond to an existing index";

/// Beginning of the driver's message if the session of a call was created by another client.
const OTHER_CLIENT: &str = "the session provided to an operation must be created from the same";

impl Failure {
    pub(crate) fn new(kind: StoreErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            loss: Loss::No,
            code: 0,
            user_is_gone: false,
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

    /// Creates a failure of kind `Contention`, for a conflict with another call. The caller retries
    /// the whole call.
    pub(crate) fn contention(text: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Contention, text)
    }

    /// Prepends `what` and a colon to the text.
    pub(crate) fn about(mut self, what: &str) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// Returns whether the call failed because the stored collections or indexes are not those that
    /// Ratchet creates.
    pub(crate) fn is_altered(&self) -> bool {
        self.kind == StoreErrorKind::SchemaMismatch(SchemaProblem::Altered)
    }

    /// Returns whether the call failed because a document with the same key or id already exists.
    pub(crate) const fn is_duplicate(&self) -> bool {
        self.code == DUPLICATE_KEY
    }

    /// Converts the failure to the error that the caller of `operation` gets.
    pub(crate) fn during(self, operation: &'static str) -> StoreError {
        let error = StoreError::new(self.kind, operation);
        match self.refused {
            Some(problem) => error.with_source(problem),
            None => error.with_source(self),
        }
    }

    pub(crate) fn from_server(code: i32, name: &str, message: &str) -> Self {
        let no_index = code == BAD_VALUE && message.contains(NO_INDEX);
        let kind = match no_index {
            true => StoreErrorKind::SchemaMismatch(SchemaProblem::Altered),
            false => kind_of(code),
        };
        let text = match no_index {
            true => "an index that the statement names does not exist".to_owned(),
            false => shown(code, message),
        };
        let name = if name.is_empty() { "error" } else { name };
        Self {
            kind,
            loss: match (kind, code) {
                (StoreErrorKind::Unavailable, 10_107 | 13_435) => Loss::Told,
                (StoreErrorKind::Unavailable, _) => Loss::Silent,
                _ => Loss::No,
            },
            code,
            user_is_gone: code == UNAUTHORIZED && message.contains(NO_USER),
            text: format!("{text} ({name} {code})"),
            refused: None,
        }
    }

    fn lost(text: impl Into<String>) -> Self {
        Self {
            loss: Loss::Silent,
            ..Self::new(StoreErrorKind::Unavailable, text)
        }
    }
}

/// Returns the text to show for an error of the server. The server's message may quote stored
/// values and commands. So the message is shown only for known codes, and for some of these without
/// the values.
fn shown(code: i32, message: &str) -> String {
    match code {
        DUPLICATE_KEY => format!("duplicate key{}", index_of(message)),
        UNAUTHORIZED => storable_error(&without_command(message)),
        // Code 121 is `DocumentValidationFailure`.
        121 => "a validator of the collection refused a document".to_owned(),
        _ if kind_of(code) != StoreErrorKind::Other => storable_error(message),
        _ => "the server refused the call or a value; see the server's log".to_owned(),
    }
}

/// Removes the values of the command from the server's message about a missing privilege. Such a
/// message looks like `not authorized on jobs to execute command { update: "ratchet_jobs", …`.
fn without_command(message: &str) -> String {
    match message.split_once('{') {
        None => message.to_owned(),
        Some((text, command)) => {
            let name = command.trim_start().split(':').next().unwrap_or_default();
            let plain = name.chars().all(|c| c.is_ascii_alphanumeric());
            let name = if plain { name } else { "" };
            format!("{text}{name}").trim_end().to_owned()
        }
    }
}

/// Returns a text that names the index of a duplicate key, or an empty text if the index is
/// unknown. Takes the name from the server's message, because no other part of the error contains
/// it.
fn index_of(message: &str) -> String {
    let name = message.split_once(" index: ").map(|(_, rest)| rest);
    let name = name.and_then(|rest| rest.split_once(" dup key"));
    name.map(|(name, _)| format!(" in the index {name}"))
        .unwrap_or_default()
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let transient = error.contains_label(TRANSIENT_TRANSACTION_ERROR);
        let unknown = error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT);
        let mut failure = Self::of_kind(&error.kind);
        if transient && !unknown {
            // The label `TransientTransactionError` alone means that the transaction was aborted,
            // whatever the cause. So the call had no effect.
            if failure.loss == Loss::Silent {
                failure.loss = Loss::Told;
            } else if failure.loss == Loss::No {
                failure.kind = StoreErrorKind::Contention;
            }
        }
        failure
    }
}

impl Failure {
    fn of_kind(kind: &ErrorKind) -> Self {
        match kind {
            ErrorKind::Command(error) => {
                Self::from_server(error.code, &error.code_name, &error.message)
            }
            ErrorKind::Write(WriteFailure::WriteError(error)) => Self::from_server(
                error.code,
                error.code_name.as_deref().unwrap_or_default(),
                &error.message,
            ),
            ErrorKind::Write(WriteFailure::WriteConcernError(error)) => {
                Self::from_concern(error.code, &error.code_name, &error.message)
            }
            ErrorKind::InsertMany(errors) => {
                let refused = errors.write_errors.as_ref().and_then(|all| all.first());
                match (refused, &errors.write_concern_error) {
                    (Some(error), _) => Self::from_server(
                        error.code,
                        error.code_name.as_deref().unwrap_or_default(),
                        &error.message,
                    ),
                    (None, Some(error)) => {
                        Self::from_concern(error.code, &error.code_name, &error.message)
                    }
                    (None, None) => Self::new(
                        StoreErrorKind::Other,
                        "an insert failed, and the server gave no reason",
                    ),
                }
            }
            ErrorKind::Io(error) => Self::lost(format!("the connection failed: {error}")),
            ErrorKind::ConnectionPoolCleared { .. } => {
                Self::lost("the driver closed its connections to a server")
            }
            ErrorKind::ServerSelection { message, .. } => Self::new(
                StoreErrorKind::Unavailable,
                format!("no server can be used: {}", storable_error(message)),
            ),
            ErrorKind::DnsResolve { message, .. } => Self::new(
                StoreErrorKind::Unavailable,
                format!(
                    "a host name cannot be resolved: {}",
                    storable_error(message)
                ),
            ),
            ErrorKind::Shutdown => Self::new(StoreErrorKind::Unavailable, "the store is closed"),
            ErrorKind::Authentication { .. } => Self::new(
                StoreErrorKind::Misconfigured,
                "the server refused the credentials",
            ),
            ErrorKind::InvalidTlsConfig { message, .. }
            | ErrorKind::IncompatibleServer { message, .. } => {
                Self::new(StoreErrorKind::Misconfigured, storable_error(message))
            }
            ErrorKind::SessionsNotSupported => Self::new(
                StoreErrorKind::Misconfigured,
                "the server does not support sessions",
            ),
            ErrorKind::Transaction { message, .. } => {
                Self::new(StoreErrorKind::Other, storable_error(message))
            }
            ErrorKind::InvalidResponse { .. } | ErrorKind::BsonDeserialization(_) => Self::new(
                StoreErrorKind::Corrupt,
                "a reply of the server cannot be decoded",
            ),
            ErrorKind::InvalidArgument { message, .. } if message.starts_with(OTHER_CLIENT) => {
                Self::new(
                    StoreErrorKind::Misconfigured,
                    "the session belongs to another client than the store's: create the store with \
                     MongoStore::from_database from the client of the session",
                )
            }
            // The messages of these errors may quote the values to be sent, so they are not shown.
            ErrorKind::InvalidArgument { .. }
            | ErrorKind::BsonSerialization(_)
            | ErrorKind::Bson(_) => Self::new(StoreErrorKind::Other, "the driver refused the call"),
            _ => Self::new(
                StoreErrorKind::Other,
                "the driver failed with an unexpected error",
            ),
        }
    }

    /// Creates a failure for a write that succeeded on one server, and that a majority has not
    /// confirmed.
    fn from_concern(code: i32, name: &str, message: &str) -> Self {
        let mut failure = Self::from_server(code, name, message);
        if failure.kind == StoreErrorKind::Unavailable {
            failure.loss = Loss::Silent;
        }
        failure.about("the write is not confirmed by a majority")
    }
}

impl From<mongodb::bson::error::Error> for Failure {
    fn from(_: mongodb::bson::error::Error) -> Self {
        Self::new(StoreErrorKind::Corrupt, "a stored value cannot be decoded")
    }
}

impl From<InvalidInput> for Failure {
    /// Creates a failure of kind `Corrupt`, for a stored value that is invalid.
    fn from(problem: InvalidInput) -> Self {
        Self::new(StoreErrorKind::Corrupt, problem.to_string())
    }
}

/// Maps an error code of the server to the kind of the error that the caller gets.
fn kind_of(code: i32) -> StoreErrorKind {
    match code {
        // Codes for a write conflict, a lock timeout, and a snapshot or transaction that no longer
        // exists. Also the code for a duplicate key or id, because a retry reads keys and ids
        // before it writes.
        24 | 46 | 112 | 225 | 239 | 244 | 246 | 251 | DUPLICATE_KEY => StoreErrorKind::Contention,
        // Codes for an exceeded time limit, an operation that an operator killed, and a majority
        // that was not reached in time.
        50 | 64 | 202 | 262 | 290 | 11_601 => StoreErrorKind::Timeout,
        14_031 => StoreErrorKind::Full,
        // Codes for an unknown user, a missing privilege, a wrong password, missing transactions,
        // an invalid name, a replica set that is not initiated, and a concern that cannot be
        // satisfied.
        11 | 13 | 18 | 20 | 72 | 73 | 79 | 93 | 94 | 100 | 263 | 8_000 => {
            StoreErrorKind::Misconfigured
        }
        // Codes for indexes and collections that are missing or differ from Ratchet's: other keys,
        // other options, or a view instead of a collection.
        26 | 27 | 48 | 67 | 85 | 86 | 121 | 166 | 197 => {
            StoreErrorKind::SchemaMismatch(SchemaProblem::Altered)
        }
        // Codes for unreachable servers, lost connections, elections, shutdowns and killed cursors.
        6 | 7 | 43 | 89 | 91 | 134 | 136 | 189 | 237 | 317 | 461 | 462 | 9_001 | 10_058
        | 10_107 | 11_600 | 11_602 | 13_388 | 13_435 | 13_436 => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_tells_the_caller_what_to_do() {
        use StoreErrorKind::{
            Contention, Full, Misconfigured, Other, SchemaMismatch, Timeout, Unavailable,
        };
        let table: [(&[i32], StoreErrorKind); 7] = [
            (&[24, 46, 112, 225, 239, 244, 246, 251, 11_000], Contention),
            (&[50, 64, 202, 262, 290, 11_601], Timeout),
            (&[14_031], Full),
            (
                &[11, 13, 18, 20, 72, 73, 79, 93, 94, 100, 263, 8_000],
                Misconfigured,
            ),
            (
                &[26, 27, 48, 67, 85, 86, 121, 166, 197],
                SchemaMismatch(SchemaProblem::Altered),
            ),
            (
                &[
                    6, 7, 43, 89, 91, 134, 136, 189, 237, 317, 461, 462, 9_001, 10_058, 10_107,
                    11_600, 11_602, 13_388, 13_435, 13_436,
                ],
                Unavailable,
            ),
            (&[0, 1, 2, 9, 14, 10_334, -1], Other),
        ];
        for (codes, kind) in table {
            for code in codes {
                assert_eq!(kind_of(*code), kind, "code {code}");
                let failure = Failure::from_server(*code, "Name", "text");
                let lost = kind == Unavailable;
                assert_eq!(failure.loss != Loss::No, lost, "code {code}");
            }
        }
    }

    #[test]
    fn a_server_that_is_no_primary_has_done_nothing() {
        for code in [10_107, 13_435] {
            assert_eq!(Failure::from_server(code, "", "").loss, Loss::Told);
        }
        assert_eq!(Failure::from_server(189, "", "").loss, Loss::Silent);
        let unsafe_write = Failure::from_concern(10_107, "", "");
        assert_eq!(unsafe_write.loss, Loss::Silent);
    }

    #[test]
    fn values_and_credentials_stay_out_of_the_text() {
        let duplicate = "E11000 duplicate key error collection: db.ratchet_jobs index: \
                         unique_key dup key: { live_key: \"secret\" }";
        let failure = Failure::from_server(DUPLICATE_KEY, "DuplicateKey", duplicate);
        assert!(failure.is_duplicate());
        assert!(failure.to_string().contains("in the index unique_key"));
        assert!(!failure.to_string().contains("secret"), "{failure}");
        for code in [0, 1, 2, 9, 14, 59, 121, 10_334, 17_280, 4_031_700] {
            let refused = Failure::from_server(code, "Name", "cannot take secret");
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
        let command = "not authorized on jobs to execute command { update: \"ratchet_jobs\", \
                       updates: [ { u: [ { $set: { result: \"secret\" } } ] } ] }";
        let forbidden = Failure::from_server(UNAUTHORIZED, "Unauthorized", command);
        let text = forbidden.to_string();
        assert!(text.contains("on jobs to execute command update"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn failures_of_the_driver_are_told_apart() {
        let io = ErrorKind::Io(std::sync::Arc::new(
            std::io::ErrorKind::ConnectionReset.into(),
        ));
        let failure = Failure::of_kind(&io);
        assert_eq!(failure.kind, StoreErrorKind::Unavailable);
        assert_eq!(failure.loss, Loss::Silent);
        let shut = Failure::of_kind(&ErrorKind::Shutdown);
        assert_eq!(shut.kind, StoreErrorKind::Unavailable);
        assert_eq!(shut.loss, Loss::No);
        let refused = Failure::of_kind(&ErrorKind::SessionsNotSupported);
        assert_eq!(refused.kind, StoreErrorKind::Misconfigured);
    }
}
