//! Reports: the progress, the checkpoints and the signs of life of a running body.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::id::ClaimToken;
use crate::json::Json;
use crate::limits::{self, MAX_MESSAGE_BYTES, MAX_RESULT_BYTES};

/// A report of a running body: its progress, a checkpoint or a sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The token of the claim for which the body runs.
    pub token: ClaimToken,
    /// The content of the report.
    pub kind: ReportKind,
}

/// The content of a report. Every report also shows that the body has begun and is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum ReportKind {
    /// The body is running. This report has no other content.
    Alive,
    /// The progress of the body.
    Progress {
        /// The percentage, 0 to 100.
        percent: u8,
        /// A message for operators.
        message: String,
    },
    /// A checkpoint from which the next attempt should start.
    Checkpoint(#[serde(with = "crate::json::text")] Json),
}

impl Report {
    /// Creates a report about the claim with this token.
    #[must_use]
    pub const fn new(token: ClaimToken, kind: ReportKind) -> Self {
        Self { token, kind }
    }

    /// Returns the data of a batch that a store must save: the last progress and the last
    /// checkpoint of each claim.
    #[must_use]
    pub fn last_of_each(batch: &[Self]) -> BTreeMap<ClaimToken, LastReport<'_>> {
        let mut last: BTreeMap<ClaimToken, LastReport<'_>> = BTreeMap::new();
        for report in batch {
            let last = last.entry(report.token).or_default();
            match &report.kind {
                ReportKind::Alive => {}
                ReportKind::Progress { percent, message } => {
                    last.progress = Some((*percent, message));
                }
                ReportKind::Checkpoint(checkpoint) => last.checkpoint = Some(checkpoint),
            }
        }
        last
    }

    /// Returns the outcome of each report of a batch, in order.
    ///
    /// `held` returns whether the cancellation of the claim's job was requested. It returns `None`
    /// if the node no longer holds the claim.
    #[must_use]
    pub fn answers(batch: &[Self], held: impl Fn(ClaimToken) -> Option<bool>) -> Vec<Reported> {
        let answer = |report: &Self| match held(report.token) {
            Some(cancel_requested) => Reported::Applied { cancel_requested },
            None => Reported::Stale,
        };
        batch.iter().map(answer).collect()
    }

    /// Checks that the report can be stored.
    ///
    /// # Errors
    /// [`InvalidInput`] if the percentage is above 100, the message has a NUL or is longer than
    /// [`MAX_MESSAGE_BYTES`], or the checkpoint is larger than [`MAX_RESULT_BYTES`].
    pub fn validate(&self) -> Result<(), InvalidInput> {
        match &self.kind {
            ReportKind::Progress { percent, .. } if *percent > 100 => Err(InvalidInput::new(
                "progress",
                format!("is {percent} %; at most 100 % are allowed"),
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

    /// Checks all reports of a batch.
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

/// The last progress and the last checkpoint that a batch reports for one claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastReport<'a> {
    /// The percentage and the message of the last progress report.
    pub progress: Option<(u8, &'a str)>,
    /// The last reported checkpoint.
    pub checkpoint: Option<&'a Json>,
}

/// The outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reported {
    /// The report was stored.
    Applied {
        /// Whether the cancellation of the job was requested.
        cancel_requested: bool,
    },
    /// The node no longer holds the claim; nothing changed.
    Stale,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;
    use crate::time::Timestamp;

    fn token() -> ClaimToken {
        ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH)
    }

    fn progress(token: ClaimToken, percent: u8, message: &str) -> Report {
        let message = message.to_owned();
        Report::new(token, ReportKind::Progress { percent, message })
    }

    #[test]
    fn the_last_of_each_kind_is_left_of_a_claim() {
        let (a, b, c) = (token(), token(), token());
        let json = |text: &str| Json::from_stored(text);
        let checkpoint = |token, text: &str| Report::new(token, ReportKind::Checkpoint(json(text)));
        let batch = [
            progress(a, 10, "first"),
            checkpoint(a, "1"),
            checkpoint(b, "2"),
            progress(a, 90, "last"),
            checkpoint(b, "3"),
            Report::new(a, ReportKind::Alive),
            Report::new(c, ReportKind::Alive),
        ];
        let (one, three) = (json("1"), json("3"));
        let last = |progress, checkpoint| LastReport {
            progress,
            checkpoint,
        };
        let expected = [
            (a, last(Some((90, "last")), Some(&one))),
            (b, last(None, Some(&three))),
            (c, LastReport::default()),
        ];
        assert_eq!(Report::last_of_each(&batch), BTreeMap::from(expected));
    }

    #[test]
    fn each_report_is_answered_by_whether_its_claim_is_held() {
        let (held, wanted_cancelled, lost) = (token(), token(), token());
        let batch = [held, lost, wanted_cancelled, held];
        let batch = batch.map(|token| Report::new(token, ReportKind::Alive));
        let cancel = |token| (token != lost).then_some(token == wanted_cancelled);
        let applied = |cancel_requested| Reported::Applied { cancel_requested };
        let answers = [
            applied(false),
            Reported::Stale,
            applied(true),
            applied(false),
        ];
        assert_eq!(Report::answers(&batch, cancel), answers);
    }
}
