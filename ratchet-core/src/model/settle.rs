//! Settling: how a claim ends, and how that changes the job.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{InvalidInput, StoreError, StoreErrorKind, storable_error};
use crate::id::{ClaimToken, JobId};
use crate::json::Json;
use crate::limits::{self, MAX_RESULT_BYTES};
use crate::model::AttemptOutcome;
use crate::state::JobState;
use crate::time::whole_millis;

/// How a claim ended.
///
/// ```
/// use ratchet::Outcome;
///
/// fn in_words(outcome: &Outcome) -> String {
///     match outcome {
///         Outcome::Retry { delay, error } => format!("runs again in {delay:?}: {error}"),
///         Outcome::Failed { error } => format!("is a dead letter: {error}"),
///         other => format!("ended: {other:?}"),
///     }
/// }
/// # assert_eq!(in_words(&Outcome::Released), "ended: Released");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The body succeeded.
    Succeeded {
        /// The result to store; `None` to store none.
        #[serde(with = "crate::json::optional_text")]
        result: Option<Json>,
    },
    /// The attempt failed and will be retried.
    Retry {
        /// The delay until the job is due again.
        delay: Duration,
        /// The reason for the failure.
        error: String,
    },
    /// The attempt failed and is not retried. The job becomes a dead letter.
    Failed {
        /// The reason for the failure.
        error: String,
    },
    /// The body asked to be run again later. This does not count as an attempt.
    Snoozed {
        /// The delay until the job is due again.
        delay: Duration,
    },
    /// The node gives the claim back. This does not count as an attempt. The job keeps its position
    /// in the claim order.
    Released,
    /// The node gives the claim back, because the store's reply with the claim never reached the
    /// node. The effect is the same as that of [`Released`](Self::Released), except for the outcome
    /// in the job's history.
    Undelivered,
    /// The job is cancelled, because its cancellation was requested or because the body itself
    /// asked for the cancellation.
    Cancelled,
    /// The job is cancelled, because it was claimed only after its expiry. No body ran, so this
    /// does not count as an attempt.
    Expired,
}

/// A request to settle one claim: to end the claim and to store its outcome.
///
/// ```
/// use ratchet::{Claim, NodeHook, Settlement};
///
/// struct Durations;
///
/// impl NodeHook for Durations {
///     fn job_ended(&self, claim: &Claim, end: &Settlement) {
///         if let Some(time) = end.ran_for {
///             println!("{} ran for {time:?}: {:?}", claim.route.kind, end.outcome);
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Settlement {
    /// The token of the claim that ends.
    pub token: ClaimToken,
    /// How the claim ended.
    pub outcome: Outcome,
    /// The running time of the body, measured by the node's monotonic clock; `None` if no body ran.
    /// The store saves this time in the job's history.
    pub ran_for: Option<Duration>,
    /// Whether the end of the claim counts as an attempt.
    counts_attempt: bool,
}

impl Settlement {
    /// Creates the settlement of the claim with this token. [`storable_error`] prepares the error
    /// text of the outcome for storage.
    #[must_use]
    pub fn new(token: ClaimToken, outcome: Outcome) -> Self {
        let outcome = match outcome {
            Outcome::Retry { delay, error } => Outcome::Retry {
                delay,
                error: storable_error(&error),
            },
            Outcome::Failed { error } => Outcome::Failed {
                error: storable_error(&error),
            },
            other => other,
        };
        let counts_attempt = !matches!(
            outcome,
            Outcome::Snoozed { .. } | Outcome::Released | Outcome::Undelivered | Outcome::Expired
        );
        Self {
            token,
            outcome,
            ran_for: None,
            counts_attempt,
        }
    }

    /// Creates the settlement of a job that cannot be read. The job becomes a dead letter with this
    /// problem as its error. This does not count as an attempt.
    #[must_use]
    pub fn unreadable(token: ClaimToken, problem: &InvalidInput) -> Self {
        let error = problem.of_stored_job();
        Self::new(token, Outcome::Failed { error }).without_attempt()
    }

    /// Sets the running time of the body.
    #[must_use]
    pub fn ran_for(mut self, duration: Duration) -> Self {
        self.ran_for = Some(whole_millis(duration));
        self
    }

    /// Sets that the end of the claim does not count as an attempt. Use this method if no body ran.
    #[must_use]
    pub const fn without_attempt(mut self) -> Self {
        self.counts_attempt = false;
        self
    }

    /// Returns the changes to the job. Every store applies exactly these changes.
    ///
    /// If the cancellation of the job was requested, the job always ends as `Cancelled` and without
    /// a result, even if its body succeeded or failed.
    #[must_use]
    pub fn effect(&self, cancel_requested: bool) -> Effect<'_> {
        let effect = |state, record| Effect {
            state,
            next_run: NextRun::Unchanged,
            attempts_added: u32::from(self.counts_attempt),
            error: None,
            result: None,
            record,
        };
        match &self.outcome {
            _ if cancel_requested => effect(JobState::Cancelled, AttemptOutcome::Cancelled),
            Outcome::Succeeded { result } => Effect {
                result: result.as_ref(),
                ..effect(JobState::Succeeded, AttemptOutcome::Succeeded)
            },
            Outcome::Retry { delay, error } => Effect {
                next_run: NextRun::In(*delay),
                error: Some(error),
                ..effect(JobState::Pending, AttemptOutcome::Retried)
            },
            Outcome::Failed { error } => Effect {
                error: Some(error),
                ..effect(JobState::Failed, AttemptOutcome::Failed)
            },
            Outcome::Snoozed { delay } => Effect {
                next_run: NextRun::In(*delay),
                ..effect(JobState::Pending, AttemptOutcome::Snoozed)
            },
            Outcome::Released => effect(JobState::Pending, AttemptOutcome::Released),
            Outcome::Undelivered => effect(JobState::Pending, AttemptOutcome::Undelivered),
            Outcome::Cancelled => effect(JobState::Cancelled, AttemptOutcome::Cancelled),
            Outcome::Expired => effect(JobState::Cancelled, AttemptOutcome::Expired),
        }
    }

    /// Divides the batch into groups, called turns, and returns the indexes of the settlements in
    /// each turn. A turn has at most one settlement of each job. Nearly always, one turn contains
    /// the whole batch.
    ///
    /// Stores need turns if they settle many jobs with one statement. Such a statement can end only
    /// one claim per job. If a batch has several settlements of a job, each is in a later turn than
    /// the previous one.
    #[must_use]
    pub fn turns(batch: &[Self]) -> Vec<Vec<usize>> {
        let mut turns: Vec<Vec<usize>> = Vec::new();
        let mut times: HashMap<JobId, usize> = HashMap::with_capacity(batch.len());
        for (place, settlement) in batch.iter().enumerate() {
            let turn = times.entry(settlement.token.job).or_default();
            if turns.len() == *turn {
                turns.push(Vec::new());
            }
            turns[*turn].push(place);
            *turn += 1;
        }
        turns
    }

    /// Checks all settlements of a batch.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] if a result is larger than [`MAX_RESULT_BYTES`] or the batch
    /// larger than [`limits::MAX_BATCH`].
    pub fn validate_all(batch: &[Self]) -> Result<(), StoreError> {
        let check = |settlement: &Self| match &settlement.outcome {
            Outcome::Succeeded {
                result: Some(result),
            } => result.check_size("result", MAX_RESULT_BYTES),
            _ => Ok::<(), InvalidInput>(()),
        };
        limits::check_batch("settlements", batch.len())
            .and_then(|()| batch.iter().try_for_each(check))
            .map_err(|problem| {
                StoreError::new(StoreErrorKind::Invalid, "settle").with_source(problem)
            })
    }
}

/// The new due time of a job that becomes pending again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextRun {
    /// The due time stays the same.
    Unchanged,
    /// The job becomes due after this delay, which begins now by the database's clock.
    In(Duration),
}

/// The changes that a settlement makes to its job; see [`Settlement::effect`].
///
/// ```
/// # use std::time::Duration;
/// use ratchet::{ClaimToken, JobId, JobState, Outcome, Settlement, Timestamp};
/// use ratchet_core::model::NextRun;
///
/// let token = ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH);
/// let delay = Duration::from_secs(60);
/// let settlement = Settlement::new(token, Outcome::Snoozed { delay });
/// let effect = settlement.effect(false);
/// assert_eq!((effect.state, effect.next_run), (JobState::Pending, NextRun::In(delay)));
/// assert_eq!(effect.attempts_added, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Effect<'a> {
    /// The job's new state.
    pub state: JobState,
    /// The job's new due time, if the job becomes pending again.
    pub next_run: NextRun,
    /// 1 if the end of the claim counts as an attempt, otherwise 0.
    pub attempts_added: u32,
    /// The job's new last error; `None` keeps the previous error.
    pub error: Option<&'a str>,
    /// The result to store; `None` if the job has no result.
    pub result: Option<&'a Json>,
    /// The outcome to write into the job's history.
    pub record: AttemptOutcome,
}

/// The outcome of a write that takes effect only if its claim token or fence is current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fenced {
    /// The write took effect.
    Applied,
    /// The claim token or fence was not current any more; nothing changed.
    Stale,
}

impl Fenced {
    /// Returns `Applied` if the write took effect, otherwise `Stale`.
    #[must_use]
    pub const fn when(applied: bool) -> Self {
        if applied { Self::Applied } else { Self::Stale }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn outcomes() -> Vec<Outcome> {
        let (delay, error) = (Duration::from_secs(1), "e".to_owned());
        vec![
            Outcome::Succeeded {
                result: Some(Json::from_stored("1")),
            },
            Outcome::Retry {
                delay,
                error: error.clone(),
            },
            Outcome::Failed { error },
            Outcome::Snoozed { delay },
            Outcome::Released,
            Outcome::Undelivered,
            Outcome::Cancelled,
            Outcome::Expired,
        ]
    }

    #[test]
    fn every_effect_is_a_legal_end_of_a_running_job() {
        for outcome in outcomes() {
            let settlement = Settlement::new(
                ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH),
                outcome,
            );
            for cancel in [false, true] {
                let state = settlement.effect(cancel).state;
                assert_eq!(JobState::Running.transition(state), Ok(state));
            }
        }
    }

    #[test]
    fn a_requested_cancel_wins_over_every_outcome() {
        for outcome in outcomes() {
            let settlement = Settlement::new(
                ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH),
                outcome,
            );
            let effect = settlement.effect(true);
            assert_eq!(effect.state, JobState::Cancelled);
            assert_eq!(effect.result, None);
        }
    }

    #[test]
    fn only_ended_bodies_count_as_attempts() {
        let added: Vec<u32> = outcomes()
            .into_iter()
            .map(|outcome| {
                let token = ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH);
                Settlement::new(token, outcome).effect(false).attempts_added
            })
            .collect();
        assert_eq!(added, [1, 1, 1, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn a_job_has_one_end_in_each_turn() {
        let (a, b) = (JobId::new(), JobId::new());
        let settlement = |(job, seq)| {
            let token = ClaimToken::new(job, seq, None, Timestamp::UNIX_EPOCH);
            Settlement::new(token, Outcome::Released)
        };
        let batch = [(a, 2), (b, 1), (a, 1), (a, 2)].map(settlement);
        assert_eq!(Settlement::turns(&batch), [vec![0, 1], vec![2], vec![3]]);
        assert!(Settlement::turns(&[]).is_empty());
    }

    #[test]
    fn a_job_that_cannot_be_read_is_a_dead_letter_without_an_attempt() {
        let token = ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH);
        let problem = InvalidInput::new("retry", "is malformed");
        let settlement = Settlement::unreadable(token, &problem);
        let effect = settlement.effect(false);
        assert_eq!((effect.state, effect.attempts_added), (JobState::Failed, 0));
        let text = "the stored job cannot be read: retry is malformed";
        assert_eq!(effect.error, Some(text));
    }

    #[test]
    fn oversized_results_are_refused() {
        let token = ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH);
        let with = |bytes: usize| {
            let result = Some(Json::from_stored("x".repeat(bytes)));
            Settlement::new(token, Outcome::Succeeded { result })
        };
        assert!(Settlement::validate_all(&[with(MAX_RESULT_BYTES)]).is_ok());
        let error = Settlement::validate_all(&[with(MAX_RESULT_BYTES + 1)]).unwrap_err();
        assert_eq!(error.invalid_input().unwrap().field(), "result");
    }
}
