//! Turns the end of a body into the outcome of its claim. The function is pure: its random number
//! is an argument.

use std::any::Any;
use std::time::Duration;

use crate::engine::panic_text::panic_text;
use crate::handler::{JobError, Verdict};
use crate::json::Json;
use crate::limits::{MAX_DELAY, MAX_RESULT_BYTES};
use crate::model::{Claim, Outcome};

/// How a body ended.
pub(super) enum Ended {
    /// The body returned.
    Returned(Result<Option<Json>, JobError>),
    /// The body panicked.
    Panicked(Box<dyn Any + Send>),
    /// The body was dropped at its hard timeout.
    TimedOut(Duration),
}

/// Returns the outcome of a claim, for a `random` in `0.0..1.0` that gives the delay of a retry its
/// jitter.
pub(super) fn outcome(claim: &Claim, ended: Ended, random: f64) -> Outcome {
    let failed = |error: String, delay: Option<Duration>| {
        let attempt = claim.attempts + 1;
        if claim.retry.is_exhausted(attempt) {
            return Outcome::Failed { error };
        }
        let delay = delay.unwrap_or_else(|| claim.retry.delay(attempt, random));
        Outcome::Retry {
            delay: delay.min(MAX_DELAY),
            error,
        }
    };
    match ended {
        Ended::Returned(Ok(result)) => {
            let fits = result
                .as_ref()
                .map_or(Ok(()), |json| json.check_size("result", MAX_RESULT_BYTES));
            match fits {
                Ok(()) => Outcome::Succeeded { result },
                Err(problem) => Outcome::Failed {
                    error: problem.to_string(),
                },
            }
        }
        Ended::Returned(Err(error)) => match error.verdict() {
            Verdict::Retry => failed(error.into_message(), None),
            Verdict::RetryAfter(delay) => failed(error.into_message(), Some(delay)),
            Verdict::Snooze(delay) => Outcome::Snoozed {
                delay: delay.min(MAX_DELAY),
            },
            Verdict::Discard => Outcome::Failed {
                error: error.into_message(),
            },
            Verdict::Cancel => Outcome::Cancelled,
        },
        Ended::Panicked(payload) => failed(format!("panicked: {}", panic_text(&*payload)), None),
        Ended::TimedOut(timeout) => failed(format!("timed out after {timeout:?}"), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ClaimToken, JobId};
    use crate::model::NewJob;
    use crate::priority::Priority;
    use crate::retry::RetryPolicy;
    use crate::time::Timestamp;

    fn claim(attempts: u32) -> Claim {
        let mut claim = Claim::new(
            ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH),
            NewJob::new("kind", &()).spec().route.clone(),
            Priority::Normal,
            Timestamp::UNIX_EPOCH,
        );
        claim.attempts = attempts;
        claim.retry = RetryPolicy::fixed(3, Duration::from_secs(7));
        claim
    }

    fn after(attempts: u32, ended: Ended) -> Outcome {
        outcome(&claim(attempts), ended, 0.5)
    }

    fn error(error: JobError) -> Ended {
        Ended::Returned(Err(error))
    }

    #[test]
    fn failures_retry_until_the_policy_is_exhausted() {
        let (delay, error_text) = (Duration::from_secs(7), "no".to_owned());
        let retry = Outcome::Retry {
            delay,
            error: error_text.clone(),
        };
        assert_eq!(after(0, error("no".into())), retry);
        assert_eq!(after(1, error("no".into())), retry);
        let failed = Outcome::Failed { error: error_text };
        assert_eq!(after(2, error("no".into())), failed);
        assert_eq!(after(0, error(JobError::discard("no"))), failed);
    }

    #[test]
    fn bodies_can_choose_the_delay_but_not_the_number_of_attempts() {
        let minute = Duration::from_secs(60);
        let retry_after = || error(JobError::retry_after(minute, "busy"));
        assert!(matches!(after(0, retry_after()), Outcome::Retry { delay, .. } if delay == minute));
        assert!(matches!(after(2, retry_after()), Outcome::Failed { .. }));
        let snoozed = Outcome::Snoozed { delay: minute };
        assert_eq!(after(2, error(JobError::snooze(minute))), snoozed);
    }

    #[test]
    fn panics_and_timeouts_are_failed_attempts() {
        let panicked = after(0, Ended::Panicked(Box::new("oh")));
        assert!(matches!(panicked, Outcome::Retry { error, .. } if error == "panicked: oh"));
        let late = after(2, Ended::TimedOut(Duration::from_secs(3)));
        assert!(matches!(late, Outcome::Failed { error } if error == "timed out after 3s"));
    }

    #[test]
    fn a_timeout_or_a_panic_without_attempts_left_is_a_dead_letter() {
        for (attempts, dead) in [(0, false), (1, false), (2, true), (7, true)] {
            let ends = [
                Ended::TimedOut(Duration::from_secs(3)),
                Ended::Panicked(Box::new("oh")),
            ];
            for ended in ends {
                let failed = matches!(after(attempts, ended), Outcome::Failed { .. });
                assert_eq!(failed, dead, "after {attempts} attempts");
            }
        }
    }

    #[test]
    fn delays_above_the_maximum_are_cut() {
        let beyond = MAX_DELAY + Duration::from_secs(1);
        for asked in [beyond, Duration::MAX] {
            let later = after(0, error(JobError::retry_after(asked, "busy")));
            assert!(matches!(later, Outcome::Retry { delay, .. } if delay == MAX_DELAY));
            let snoozed = Outcome::Snoozed { delay: MAX_DELAY };
            assert_eq!(after(0, error(JobError::snooze(asked))), snoozed);
        }
        // Jitter must not raise a delay above the maximum.
        let mut claim = claim(0);
        claim.retry = RetryPolicy::fixed(3, MAX_DELAY).with_jitter(50);
        for (random, longest) in [(0.0, MAX_DELAY / 2), (1.0, MAX_DELAY)] {
            let retried = outcome(&claim, error("no".into()), random);
            assert!(matches!(retried, Outcome::Retry { delay, .. } if delay == longest));
        }
    }

    #[test]
    fn results_that_do_not_fit_fail_the_job() {
        let result = Json::from_stored("x".repeat(MAX_RESULT_BYTES + 1));
        let outcome = after(0, Ended::Returned(Ok(Some(result))));
        assert!(matches!(outcome, Outcome::Failed { error } if error.starts_with("result has")));
    }
}
