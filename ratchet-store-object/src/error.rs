//! Failures of requests, and what they mean for a call of the store.

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

    /// An object whose content is not what was put.
    pub(crate) fn corrupt(object: &str, problem: &str) -> Self {
        Self::new(
            StoreErrorKind::Corrupt,
            format!("the object {object} {problem}"),
        )
    }

    /// An object that another version of Ratchet put.
    pub(crate) fn unknown_format(object: &str, problem: &str) -> Self {
        Self::new(
            StoreErrorKind::SchemaMismatch(SchemaProblem::Newer),
            format!(
                "the object {object} {problem}; this process cannot read on, and writes nothing; \
                 upgrade it"
            ),
        )
    }

    pub(crate) fn closed() -> Self {
        let mut closed = Self::new(StoreErrorKind::Unavailable, "the store is closed");
        closed.refused = true;
        closed
    }

    pub(crate) fn during(&self, operation: &'static str) -> StoreError {
        StoreError::new(self.kind, operation).with_source(self.text.to_string())
    }
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error;
        let (kind, refused) = match &error {
            Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotImplemented { .. }
            | Error::NotSupported { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. } => (StoreErrorKind::Misconfigured, true),
            _ => (StoreErrorKind::Unavailable, false),
        };
        Self {
            kind,
            text: error.to_string().into(),
            refused,
        }
    }
}
