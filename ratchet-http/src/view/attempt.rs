use ratchet_core::model::{self, AttemptOutcome};
use schemars::JsonSchema;
use serde::Serialize;

use super::{At, millis};

/// The ended claims of a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Attempts {
    /// First to last.
    pub attempts: Vec<Attempt>,
    /// How many before the first of these are left out.
    pub omitted: usize,
}

impl Attempts {
    /// The last of these, up to a limit.
    #[must_use]
    pub fn last(attempts: &[model::Attempt], most: usize) -> Self {
        let omitted = attempts.len().saturating_sub(most);
        Self {
            attempts: attempts.iter().skip(omitted).map(Attempt::from).collect(),
            omitted,
        }
    }
}

/// One ended claim of a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Attempt {
    /// The claim's number.
    pub seq: u64,
    /// The node that held it.
    pub node: Option<String>,
    /// When it was claimed.
    pub claimed_at: At,
    /// When it ended.
    pub ended_at: At,
    /// How long its body ran; null if no body ran to an end.
    pub ran_for_ms: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed: any text.
    pub error: Option<String>,
}

impl From<&model::Attempt> for Attempt {
    fn from(attempt: &model::Attempt) -> Self {
        Self {
            seq: attempt.seq,
            node: attempt.node.map(|node| node.to_string()),
            claimed_at: At(attempt.claimed_at),
            ended_at: At(attempt.ended_at),
            ran_for_ms: attempt.ran_for.map(millis),
            outcome: attempt.outcome.into(),
            error: attempt.error.clone(),
        }
    }
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The body succeeded.
    Succeeded,
    /// It failed and was to be retried.
    Retried,
    /// It failed for good.
    Failed,
    /// It asked to be run later.
    Snoozed,
    /// The claim was handed back.
    Released,
    /// The job was cancelled.
    Cancelled,
    /// The claim was taken back.
    Lost,
    /// The claim was handed back because the store's answer to it never reached the node.
    Undelivered,
    /// One that this version does not know.
    Other,
}

impl From<AttemptOutcome> for Outcome {
    fn from(outcome: AttemptOutcome) -> Self {
        match outcome {
            AttemptOutcome::Succeeded => Self::Succeeded,
            AttemptOutcome::Retried => Self::Retried,
            AttemptOutcome::Failed => Self::Failed,
            AttemptOutcome::Snoozed => Self::Snoozed,
            AttemptOutcome::Released => Self::Released,
            AttemptOutcome::Cancelled => Self::Cancelled,
            AttemptOutcome::Lost => Self::Lost,
            AttemptOutcome::Undelivered => Self::Undelivered,
            _ => Self::Other,
        }
    }
}
