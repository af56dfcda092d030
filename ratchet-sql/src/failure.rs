//! Failures inside a store, and the errors that callers get for them.

use ratchet_core::{InvalidInput, StoreError, StoreErrorKind};

/// A result without the name of the operation.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A failure without the name of the operation. The text never contains stored or bound values or
/// credentials.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// The kind for the caller.
    pub kind: StoreErrorKind,
    /// Whether the connection is lost with the call.
    pub loss: Loss,
    /// Whether the call gave up because another transaction held a lock for too long.
    pub held: bool,
    /// Whether the call failed because a key or an id is taken.
    pub duplicate: bool,
    /// Whether nothing was stored because the cached routes are missing in the database.
    pub refuted: bool,
    /// Whether the user lacks a privilege that a DBA could grant.
    pub forbidden: bool,
    text: String,
    /// The refused part of the input.
    refused: Option<InvalidInput>,
}

/// Whether the connection is lost with the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// The connection remains usable.
    #[default]
    No,
    /// The server announced that it ends the connection. The call was rolled back.
    Told,
    /// The session is read-only, perhaps to its end. The call was rolled back.
    ReadOnly,
    /// The connection was lost, and it is unknown whether the call took effect.
    Silent,
}

impl Failure {
    /// Builds a failure after which the connection remains usable.
    pub fn new(kind: StoreErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            loss: Loss::No,
            held: false,
            duplicate: false,
            refuted: false,
            forbidden: false,
            text: text.into(),
            refused: None,
        }
    }

    /// Builds the failure of input that proved invalid only against the database.
    #[must_use]
    pub fn refused(problem: InvalidInput) -> Self {
        Self {
            text: problem.to_string(),
            refused: Some(problem),
            ..Self::new(StoreErrorKind::Invalid, "")
        }
    }

    /// Builds the failure of a call on a store that was closed.
    #[must_use]
    pub fn closed() -> Self {
        Self::new(StoreErrorKind::Unavailable, "the store is closed")
    }

    /// Builds the failure of a call on a lease whose connection is gone.
    #[must_use]
    pub fn no_connection() -> Self {
        Self::new(StoreErrorKind::Unavailable, "there is no connection")
    }

    /// Builds the failure of a call whose connection was lost silently.
    pub fn lost(text: impl Into<String>) -> Self {
        Self {
            loss: Loss::Silent,
            ..Self::new(StoreErrorKind::Unavailable, text)
        }
    }

    /// Builds the failure of reading a column whose value is of another type.
    #[must_use]
    pub fn unreadable() -> Self {
        Self::new(StoreErrorKind::Corrupt, "a stored value cannot be read")
    }

    /// Returns whether it was caused by concurrent transactions rather than a taken key.
    #[must_use]
    pub fn raced(&self) -> bool {
        self.kind == StoreErrorKind::Contention && !self.duplicate
    }

    /// Prefixes the text with what the failure is about.
    #[must_use]
    pub fn about(mut self, what: &str) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// Appends advice on what to do to the text.
    #[must_use]
    pub fn advised(mut self, advice: &str) -> Self {
        self.text = format!("{}; {advice}", self.text);
        self
    }

    /// Returns the error that the caller of `operation` gets.
    #[must_use]
    pub fn during(self, operation: &'static str) -> StoreError {
        let error = StoreError::new(self.kind, operation);
        match self.refused {
            Some(problem) => error.with_source(problem),
            None => error.with_source(self),
        }
    }
}

impl From<InvalidInput> for Failure {
    /// Builds the failure of reading a stored value that the model refuses.
    fn from(problem: InvalidInput) -> Self {
        Self::new(StoreErrorKind::Corrupt, problem.to_string())
    }
}
