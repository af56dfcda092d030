//! The expiry of a new job: until when it must begin.

use std::time::Duration;

use super::{NewJob, keep, positive};
use crate::due::RunAt;
use crate::error::InvalidInput;
use crate::limits::{MAX_DELAY, MAX_RUN_AT};
use crate::time::{self, Timestamp, duration_millis, to_millis};

impl NewJob {
    /// Ends the job as expired if it has not begun within this time after its enqueue. The database
    /// measures the time by its clock, from the enqueue on, also for a delayed job.
    ///
    /// A job begins when its node reports to the store that its first body is about to run. After
    /// that it never expires: a retry of the job runs however late it is, and so does a run after a
    /// crash. A job that a node has claimed and given back or lost without this report, such as for
    /// a rate limit, has not begun. The report costs a call before the first body of the job, for
    /// all bodies of the node that begin at the same time. A job that has not begun by then ends as
    /// [`Cancelled`](crate::JobState::Cancelled), whether it was pending, blocked or paused, and
    /// [`JobRecord::is_expired`](crate::JobRecord::is_expired) returns true. Everything else
    /// happens as in any other cancellation: its unique key is free, its lane continues, and the
    /// links of its children are decided. If an operator requeues a job, its expiry is removed.
    ///
    /// The enqueue refuses a time of zero or of more than 1,000 years, and a time that is not
    /// longer than the [delay](Self::delay). For a job with a due time ([`run_at`](Self::run_at)),
    /// use [`expires_at`](Self::expires_at).
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratchet::NewJob;
    ///
    /// // A code that arrives after 5 minutes is of no use.
    /// let job = NewJob::new("send_code", &7).expires_in(Duration::from_secs(5 * 60));
    /// assert!(job.validate().is_ok());
    /// ```
    #[must_use]
    pub fn expires_in(mut self, duration: Duration) -> Self {
        keep(&mut self.problem, positive("expires_in", duration));
        if duration > MAX_DELAY {
            let problem = InvalidInput::new("expires_in", "is longer than 1,000 years");
            self.problem.get_or_insert(problem);
        }
        self.expiry = Some(RunAt::In(time::whole_millis(duration)));
        self
    }

    /// Ends the job as expired if it has not begun by this time, as [`expires_in`](Self::expires_in)
    /// does. A job whose expiry has already passed when it is enqueued is stored, and expires.
    ///
    /// The enqueue refuses a time that is not later than the due time of the job
    /// ([`run_at`](Self::run_at)). For a job with a [delay](Self::delay), use
    /// [`expires_in`](Self::expires_in).
    #[must_use]
    pub const fn expires_at(mut self, at: Timestamp) -> Self {
        self.expiry = Some(RunAt::At(at));
        self
    }

    /// Returns when the job expires. `None` if it never does.
    #[must_use]
    pub const fn expiry(&self) -> Option<RunAt> {
        self.expiry
    }

    /// Returns when the job expires if it is enqueued at `now`. Both times are in milliseconds
    /// since 1970. `None` if it never does.
    #[must_use]
    pub fn resolve_expiry(&self, now: i64) -> Option<i64> {
        self.expiry.map(|expiry| expiry.resolve(now))
    }

    /// Refuses an expiry that cannot be stored, that is not later than the due time, or that cannot
    /// be compared with the due time before the enqueue.
    pub(super) fn check_expiry(&self) -> Result<(), InvalidInput> {
        let refuse = |field, problem: &str| Err(InvalidInput::new(field, problem));
        match (self.expiry, self.run_at) {
            (Some(RunAt::At(at)), _) if to_millis(at) < 0 => refuse("expires_at", "is before 1970"),
            (Some(RunAt::At(at)), _) if to_millis(at) > MAX_RUN_AT => {
                refuse("expires_at", "is after the year 9999")
            }
            (Some(RunAt::In(expiry)), RunAt::In(delay))
                if duration_millis(expiry) <= duration_millis(delay) =>
            {
                let problem = format!(
                    "is {expiry:?}, which is not longer than the delay of {delay:?}; set a longer \
                     time, because the job could never begin"
                );
                refuse("expires_in", &problem)
            }
            (Some(RunAt::At(expiry)), RunAt::At(due)) if to_millis(expiry) <= to_millis(due) => {
                let problem = format!(
                    "is {expiry}, which is not later than the due time {due}; set a later time, \
                     because the job could never begin"
                );
                refuse("expires_at", &problem)
            }
            (Some(RunAt::In(_)), RunAt::At(_)) => refuse(
                "expires_in",
                "cannot be combined with a due time; use expires_at",
            ),
            (Some(RunAt::At(_)), RunAt::In(delay)) if !delay.is_zero() => refuse(
                "expires_at",
                "cannot be combined with a delay; use expires_in",
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    const SECOND: Duration = Duration::from_secs(1);

    fn job() -> NewJob {
        NewJob::new("kind", &1)
    }

    #[test]
    fn an_expiry_that_lets_the_job_begin_is_accepted() {
        let (due, later) = (from_millis(5_000), from_millis(5_001));
        for job in [
            job().expires_in(Duration::from_nanos(1)),
            job().expires_in(MAX_DELAY),
            job().delay(SECOND).expires_in(2 * SECOND),
            job().expires_in(2 * SECOND).delay(SECOND),
            job().expires_at(due),
            job().delay(Duration::ZERO).expires_at(due),
            job().run_at(due).expires_at(later),
        ] {
            assert_eq!(job.validate(), Ok(()), "{job:?}");
        }
    }

    #[test]
    fn an_expiry_before_which_the_job_cannot_begin_is_refused_by_name() {
        let due = from_millis(5_000);
        for (job, field) in [
            (job().expires_in(Duration::ZERO), "expires_in"),
            (job().expires_in(MAX_DELAY + SECOND), "expires_in"),
            (job().expires_in(Duration::MAX), "expires_in"),
            (job().delay(SECOND).expires_in(SECOND), "expires_in"),
            (job().expires_in(SECOND).delay(2 * SECOND), "expires_in"),
            (job().run_at(due).expires_in(SECOND), "expires_in"),
            (job().expires_at(from_millis(-1)), "expires_at"),
            (job().expires_at(Timestamp::MAX_UTC), "expires_at"),
            (job().run_at(due).expires_at(due), "expires_at"),
            (job().delay(SECOND).expires_at(due), "expires_at"),
        ] {
            let problem = job.validate().expect_err("the job must be refused");
            assert_eq!(problem.field(), field, "{job:?}");
        }
        let problem = job().delay(SECOND).expires_in(SECOND).validate();
        assert_eq!(
            problem.unwrap_err().to_string(),
            "expires_in is 1s, which is not longer than the delay of 1s; set a longer time, because \
             the job could never begin"
        );
    }

    #[test]
    fn an_expiry_is_resolved_on_the_given_clock() {
        assert_eq!(job().resolve_expiry(5), None);
        assert_eq!(job().expires_in(SECOND).resolve_expiry(5), Some(1_005));
        assert_eq!(job().expires_at(from_millis(7)).resolve_expiry(5), Some(7));
    }
}
