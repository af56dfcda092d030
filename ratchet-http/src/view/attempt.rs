use ratchet_core::model::{self, AttemptOutcome};
use schemars::JsonSchema;
use serde::Serialize;

use super::{At, millis};

/// The ended claims of a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Attempts {
    /// The attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Number of older attempts that were left out.
    pub omitted: usize,
}

impl Attempts {
    /// Creates a view of the last attempts, at most `most` of them.
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
    /// The number of the claim, which is the `claim_seq` of the job during this claim.
    pub seq: u64,
    /// The node that held the claim.
    pub node: Option<String>,
    /// When the job was claimed.
    pub claimed_at: At,
    /// When the claim ended.
    pub ended_at: At,
    /// How long the body ran, in milliseconds; null if no body ran to its end.
    pub ran_for_ms: Option<u64>,
    /// How the claim ended.
    pub outcome: Outcome,
    /// The error of a failed attempt, as free text.
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
    /// The body failed, and the job was scheduled for another attempt.
    Retried,
    /// The job became a dead letter.
    Failed,
    /// The body asked to run again later.
    Snoozed,
    /// The node released the claim.
    Released,
    /// The job was cancelled.
    Cancelled,
    /// The node lost the claim, for example because the node died.
    Lost,
    /// The claim was released because the node never received the response to its claim.
    Undelivered,
    /// The job was claimed only after its expiry, and was cancelled without running.
    Expired,
    /// An outcome that this version does not know.
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
            AttemptOutcome::Expired => Self::Expired,
            _ => Self::Other,
        }
    }
}
