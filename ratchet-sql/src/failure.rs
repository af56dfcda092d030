//! Failures inside a store, and the errors that callers get for them.

use ratchet_core::{InvalidInput, StoreError, StoreErrorKind};

/// Result of a function inside a store. Its error is a [`Failure`], which does not name the failed
/// operation yet.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A failure inside a store, without the name of the failed operation. [`during`](Self::during)
/// converts it to an error that has this name. The text of a failure never contains stored values,
/// bound values or credentials.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// Kind of the error that the caller of the store gets.
    pub kind: StoreErrorKind,
    /// Whether the failure makes the connection unusable, and whether the call may have taken
    /// effect.
    pub loss: Loss,
    /// Whether the call failed because another transaction held a lock for too long.
    pub held: bool,
    /// Whether the call failed because of a duplicate key or id.
    pub duplicate: bool,
    /// Whether the call stored nothing because the database lacks routes that this process has
    /// cached.
    pub refuted: bool,
    /// Whether the database user lacks a privilege that an administrator could grant.
    pub forbidden: bool,
    /// Whether the server has rolled back the whole transaction of the call, not only the
    /// statement. Set only by dialects whose servers do this for some failures.
    pub rolled_back: bool,
    text: String,
    /// The problem with the caller's input. `None` if the input did not cause the failure.
    refused: Option<InvalidInput>,
}

/// Whether a failure makes the connection unusable, and whether the failed call may have taken
/// effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// The connection remains usable.
    #[default]
    No,
    /// The server reported that it is closing the connection. The call was rolled back.
    Told,
    /// The session is read-only, and may remain read-only until it ends. The call was rolled back.
    ReadOnly,
    /// The connection was lost. It is unknown whether the call took effect.
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
            rolled_back: false,
            text: text.into(),
            refused: None,
        }
    }

    /// Builds the failure for input that is invalid because of the data in the database, such as a
    /// missing parent.
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

    /// Builds the failure of a call on a lease whose connection became unusable in an earlier call.
    #[must_use]
    pub fn no_connection() -> Self {
        Self::new(
            StoreErrorKind::Unavailable,
            "the connection became unusable in an earlier call",
        )
    }

    /// Builds the failure of a call that lost its connection. It is unknown whether the call took
    /// effect.
    pub fn lost(text: impl Into<String>) -> Self {
        Self {
            loss: Loss::Silent,
            ..Self::new(StoreErrorKind::Unavailable, text)
        }
    }

    /// Builds the failure for a stored value that does not have the expected type.
    #[must_use]
    pub fn unreadable() -> Self {
        Self::new(StoreErrorKind::Corrupt, "a stored value cannot be read")
    }

    /// Returns whether a conflict with a concurrent transaction caused the failure. A duplicate key
    /// does not count as such a conflict.
    #[must_use]
    pub fn raced(&self) -> bool {
        self.kind == StoreErrorKind::Contention && !self.duplicate
    }

    /// Adds `what`, the subject of the failure, to the beginning of the text.
    #[must_use]
    pub fn about(mut self, what: &str) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// Adds `advice`, which suggests how to solve the problem, to the end of the text.
    #[must_use]
    pub fn advised(mut self, advice: &str) -> Self {
        self.text = format!("{}; {advice}", self.text);
        self
    }

    /// Converts the failure to the error that the caller of the store gets. `operation` is the name
    /// of the failed operation.
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
    /// Builds the failure for a stored value that is invalid.
    fn from(problem: InvalidInput) -> Self {
        Self::new(StoreErrorKind::Corrupt, problem.to_string())
    }
}
