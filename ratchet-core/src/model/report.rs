//! Reports: what a running body tells about itself.

use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::id::ClaimToken;
use crate::json::Json;
use crate::limits::{self, MAX_MESSAGE_BYTES, MAX_RESULT_BYTES};

/// A sign of life of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The claim.
    pub token: ClaimToken,
    /// What is told.
    pub kind: ReportKind,
}

/// What a report tells. Each of them also says that the body has begun and is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportKind {
    /// The body runs.
    Alive,
    /// How far it is.
    Progress {
        /// 0 to 100.
        percent: u8,
        /// For people.
        message: String,
    },
    /// What the next attempt should start from.
    Checkpoint(Json),
}

impl Report {
    /// A report on the claim with this token.
    #[must_use]
    pub const fn new(token: ClaimToken, kind: ReportKind) -> Self {
        Self { token, kind }
    }

    /// Refuses what cannot be stored.
    ///
    /// # Errors
    /// [`InvalidInput`] if the percentage is above 100, the message has a NUL or is longer than
    /// [`MAX_MESSAGE_BYTES`], or the checkpoint is larger than [`MAX_RESULT_BYTES`].
    pub fn validate(&self) -> Result<(), InvalidInput> {
        match &self.kind {
            ReportKind::Progress { percent, .. } if *percent > 100 => Err(InvalidInput::new(
                "progress",
                format!("is {percent} %, more than 100"),
            )),
            ReportKind::Progress { message, .. }
                if message.len() > MAX_MESSAGE_BYTES || message.contains('\0') =>
            {
                Err(InvalidInput::new(
                    "progress message",
                    format!("is longer than {MAX_MESSAGE_BYTES} bytes or has a NUL"),
                ))
            }
            ReportKind::Checkpoint(json) => json.check_size("checkpoint", MAX_RESULT_BYTES),
            ReportKind::Alive | ReportKind::Progress { .. } => Ok(()),
        }
    }

    /// Checks a whole batch.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] with the first problem found.
    pub fn validate_all(batch: &[Self]) -> Result<(), StoreError> {
        limits::check_batch("reports", batch.len())
            .and_then(|()| batch.iter().try_for_each(Self::validate))
            .map_err(|problem| {
                StoreError::new(StoreErrorKind::Invalid, "report").with_source(problem)
            })
    }
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// It is stored.
    Applied {
        /// Whether somebody wants the job cancelled.
        cancel_requested: bool,
    },
    /// The claim is no longer this node's; nothing changed.
    Stale,
}
