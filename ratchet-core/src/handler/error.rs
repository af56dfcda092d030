use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// A boxed error of any type.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// The result of a body: its output, or a [`JobError`].
pub type JobResult<T = ()> = Result<T, JobError>;

/// The error that a body returns. It also decides what happens to the job.
///
/// The operator `?` converts every error type and every text into a `JobError` with
/// [`Verdict::Retry`]. The constructors create errors with other verdicts.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{JobError, JobResult};
///
/// fn charge(balance: i64) -> JobResult<()> {
///     let limit: i64 = "100".parse()?;              // a failed attempt, retried by the policy
///     if balance == 0 {
///         return Err(JobError::snooze(Duration::from_secs(60))); // later, at no cost
///     }
///     if balance < 0 {
///         return Err(JobError::discard("no such account")); // a dead letter at once
///     }
///     if balance > limit {
///         return Err("over the limit".into());
///     }
///     Ok(())
/// }
/// # assert!(charge(7).is_ok());
/// ```
///
/// `JobError` does not implement [`std::error::Error`]. If it did, the conversion from every error
/// type would conflict with the conversion of `JobError` into itself.
pub struct JobError {
    verdict: Verdict,
    message: String,
}

/// Decides what happens to a job whose body did not succeed.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{JobError, Verdict};
///
/// assert_eq!(JobError::from("busy").verdict(), Verdict::Retry);
/// let later = JobError::snooze(Duration::from_secs(60));
/// assert_eq!(later.verdict(), Verdict::Snooze(Duration::from_secs(60)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The attempt failed. The retry policy decides whether and when another attempt follows.
    Retry,
    /// The attempt failed. If the retry policy allows another attempt, it starts after this delay.
    RetryAfter(Duration),
    /// The job runs again after this delay. The present run does not count as an attempt.
    Snooze(Duration),
    /// The attempt failed, and the job is not retried: it becomes a dead letter.
    Discard,
    /// The job ends in the state `Cancelled`.
    Cancel,
}

impl JobError {
    const fn new(verdict: Verdict, message: String) -> Self {
        Self { verdict, message }
    }

    /// Creates an error that fails the attempt. If the retry policy allows another attempt, it
    /// starts after `delay`. The backoff of the policy is ignored.
    #[must_use]
    pub fn retry_after(delay: Duration, error: impl Into<Self>) -> Self {
        Self::new(Verdict::RetryAfter(delay), error.into().message)
    }

    /// Creates an error that postpones the job. The job runs again after `delay`, and the present
    /// run does not count as an attempt.
    #[must_use]
    pub const fn snooze(delay: Duration) -> Self {
        Self::new(Verdict::Snooze(delay), String::new())
    }

    /// Creates an error that fails the job. The job becomes a dead letter at once, even if the
    /// retry policy allows more attempts.
    #[must_use]
    pub fn discard(error: impl Into<Self>) -> Self {
        Self::new(Verdict::Discard, error.into().message)
    }

    /// Creates an error that cancels the job. Use it if the job is no longer needed.
    #[must_use]
    pub const fn cancel() -> Self {
        Self::new(Verdict::Cancel, String::new())
    }

    /// Returns the verdict, which decides what happens to the job.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns the same error with another verdict.
    #[cfg(feature = "tower")]
    pub(crate) fn followed_by(self, verdict: Verdict) -> Self {
        Self { verdict, ..self }
    }

    pub(crate) fn into_message(self) -> String {
        self.message
    }
}

impl<E> From<E> for JobError
where
    E: Into<BoxError>,
{
    fn from(error: E) -> Self {
        let error: BoxError = error.into();
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::new(Verdict::Retry, message)
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobError")
            .field("verdict", &self.verdict)
            .field("message", &self.message)
            .finish()
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{StoreError, StoreErrorKind};

    #[test]
    fn errors_convert_with_their_causes() {
        let cause = StoreError::new(StoreErrorKind::Other, "x").with_source("the cause");
        let error = JobError::from(cause);
        assert_eq!(error.verdict(), Verdict::Retry);
        assert_eq!(error.into_message(), "x: failed: the cause: the cause");
    }

    #[test]
    fn constructors_say_what_follows() {
        let second = Duration::from_secs(1);
        assert_eq!(JobError::snooze(second).verdict(), Verdict::Snooze(second));
        assert_eq!(JobError::cancel().verdict(), Verdict::Cancel);
        assert_eq!(JobError::discard("no").verdict(), Verdict::Discard);
        let after = JobError::retry_after(second, "busy");
        assert_eq!(after.verdict(), Verdict::RetryAfter(second));
        assert_eq!(after.to_string(), "busy");
    }
}
