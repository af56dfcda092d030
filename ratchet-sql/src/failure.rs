//! Failures inside a store, and the errors that callers get for them.

use ratchet_core::{InvalidInput, StoreError, StoreErrorKind};

/// A result whose failure does not name the operation yet.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A failure that does not name the operation yet. Its text never contains stored or bound values
/// or credentials.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// The kind of error that the caller gets.
    pub kind: StoreErrorKind,
    /// Whether the failure makes the connection unusable.
    pub loss: Loss,
    /// Whether the call gave up because another transaction held a lock for too long.
    pub held: bool,
    /// Whether the call failed because of a duplicate key or id.
    pub duplicate: bool,
    /// Whether nothing was stored because the cached routes are missing in the database.
    pub refuted: bool,
    /// Whether the user lacks a privilege that a DBA could grant.
    pub forbidden: bool,
    text: String,
    /// The problem of the caller's input, if the failure is about the input.
    refused: Option<InvalidInput>,
}

/// Whether a failure makes the connection unusable, and what became of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// The connection remains usable.
    #[default]
    No,
    /// The server reported that it is closing the connection. The call was rolled back.
    Told,
    /// The session is read-only, perhaps until it ends. The call was rolled back.
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

    /// Builds the failure for input that is invalid because of what the database contains.
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

    /// Builds the failure of a call on a lease that has lost its connection.
    #[must_use]
    pub fn no_connection() -> Self {
        Self::new(
            StoreErrorKind::Unavailable,
            "the connection became unusable in an earlier call",
        )
    }

    /// Builds the failure of a call whose connection was lost silently.
    pub fn lost(text: impl Into<String>) -> Self {
        Self {
            loss: Loss::Silent,
            ..Self::new(StoreErrorKind::Unavailable, text)
        }
    }

    /// Builds the failure of reading a column whose value has another type.
    #[must_use]
    pub fn unreadable() -> Self {
        Self::new(StoreErrorKind::Corrupt, "a stored value cannot be read")
    }

    /// Returns whether concurrent transactions caused the failure, other than by a duplicate key.
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
    /// Builds the failure of reading a stored value that the model rejects.
    fn from(problem: InvalidInput) -> Self {
        Self::new(StoreErrorKind::Corrupt, problem.to_string())
    }
}
