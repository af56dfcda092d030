//! Failures of requests, and what they mean for a call of the store.

use std::fmt;
use std::sync::Arc;

use ratchet_core::{SchemaProblem, StoreError, StoreErrorKind};

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The failure of a request, or an object that cannot be used. Several calls can fail with the same
/// failure.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: StoreErrorKind,
    text: Arc<str>,
    /// Whether the request has certainly changed nothing.
    pub(crate) refused: bool,
}

impl Failure {
    pub(crate) fn new(kind: StoreErrorKind, text: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            text: text.into(),
            refused: false,
        }
    }

    /// The failure of a request that has certainly changed nothing, and is not repeated.
    pub(crate) fn refusal(kind: StoreErrorKind, text: impl Into<Arc<str>>) -> Self {
        let mut failure = Self::new(kind, text);
        failure.refused = true;
        failure
    }

    /// The refusal of one of several puts at the same time, of which none has taken effect yet.
    pub(crate) fn conflict() -> Self {
        Self::new(
            StoreErrorKind::Unavailable,
            "puts at the same time conflict",
        )
    }

    /// An object whose content is not what was put.
    pub(crate) fn corrupt(object: &str, problem: &str) -> Self {
        Self::new(
            StoreErrorKind::Corrupt,
            format!("the object {object} {problem}"),
        )
    }

    /// Something that was not stored, because it has no serialized form.
    pub(crate) fn unencodable(what: &str, error: &dyn fmt::Display) -> Self {
        let text = format!("{what} cannot be encoded: {error}");
        Self::refusal(StoreErrorKind::Invalid, text)
    }

    /// An object of this format that this process cannot decode: another version of Ratchet put it,
    /// or this process lacks a time zone of a schedule.
    pub(crate) fn undecodable(object: &str, problem: &str) -> Self {
        Self::new(
            StoreErrorKind::SchemaMismatch(SchemaProblem::Newer),
            format!(
                "the object {object} {problem}; this process cannot read on, and writes nothing; \
                 upgrade it, or if it does not know a time zone, update its time-zone data"
            ),
        )
    }

    /// An object of another format.
    pub(crate) fn other_format(object: &str, format: u32, known: u32) -> Self {
        let (problem, remedy) = if format > known {
            let remedy = "upgrade this program";
            (SchemaProblem::Newer, remedy)
        } else {
            let remedy = "open the bucket with the older version of Ratchet that wrote it, or use \
                          another prefix";
            (SchemaProblem::Altered, remedy)
        };
        Self::new(
            StoreErrorKind::SchemaMismatch(problem),
            format!(
                "the object {object} has the format {format}, and this program knows only {known}; \
                 this process cannot read on, and writes nothing; {remedy}"
            ),
        )
    }

    /// The same failure of a call that may have taken effect.
    pub(crate) fn unknown(mut self) -> Self {
        if !self.kind.is_transient() {
            self.kind = StoreErrorKind::Unavailable;
            self.text = format!("{}; whether the call took effect is unknown", self.text).into();
        }
        self.refused = false;
        self
    }

    /// The same failure of a request without which the store cannot be used.
    pub(crate) fn needed(mut self, why: &str) -> Self {
        self.text = format!("{}; {why}", self.text).into();
        self
    }

    pub(crate) fn closed() -> Self {
        Self::refusal(StoreErrorKind::Unavailable, "the store is closed")
    }

    pub(crate) fn during(&self, operation: &'static str) -> StoreError {
        StoreError::new(self.kind, operation).with_source(self.text.to_string())
    }
}

/// Codes in the answers of services that refuse the credentials with the status 400.
const REFUSED_CREDENTIALS: [&str; 3] = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"];

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error;
        let text = error.to_string();
        let (kind, refused) = match &error {
            Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotImplemented { .. }
            | Error::NotSupported { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. }
            // No bucket has the name. A request for an object that does not exist is no failure.
            | Error::NotFound { .. } => (StoreErrorKind::Misconfigured, true),
            _ if REFUSED_CREDENTIALS.iter().any(|code| text.contains(code)) => {
                (StoreErrorKind::Misconfigured, true)
            }
            _ => (StoreErrorKind::Unavailable, false),
        };
        let text = match &error {
            Error::NotFound { .. } => format!("the bucket does not exist: {text}"),
            _ => text,
        };
        Self {
            kind,
            text: text.into(),
            refused,
        }
    }
}
