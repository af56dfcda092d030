//! The keys of a new job, and what its enqueue does if another job has one of them.

use std::time::Duration;

use super::{NewJob, keep, positive};
use crate::error::InvalidInput;
use crate::limits::MAX_DELAY;
use crate::model::{Definition, OnConflict};
use crate::name::Name;
use crate::time;

impl NewJob {
    /// Sets a key that at most one unfinished job may have. Until that job has ended, every other
    /// enqueue with the key returns its id. The enqueue refuses keys that begin with `recurring/`,
    /// because they are reserved for recurring definitions.
    #[must_use]
    pub fn unique_key(mut self, key: &str) -> Self {
        let checked = if key.starts_with(Definition::KEY_PREFIX) {
            let problem = format!(
                "begins with `{}`, which is reserved",
                Definition::KEY_PREFIX
            );
            Err(InvalidInput::new("unique_key", problem))
        } else {
            Name::new("unique_key", key)
        };
        self.spec.unique_key = keep(&mut self.problem, checked);
        self
    }

    /// Sets a key that at most one job may ever have. Every later enqueue with the key returns the
    /// id of the first job, even after the first job was purged. [`unique_for`](Self::unique_for)
    /// limits this to a time.
    #[must_use]
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.spec.idempotency_key = keep(&mut self.problem, Name::new("idempotency_key", key));
        self
    }

    /// Limits how long the [idempotency key](Self::idempotency_key) of this job stays used: until
    /// this duration has passed since the enqueue, whether or not the job has ended by then. After
    /// that, another job can have the key, and maintenance deletes the key. Without a limit, the
    /// key stays used for ever.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratchet::NewJob;
    ///
    /// // At most one reminder in each 24 hours.
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let job = NewJob::new("remind", &7).idempotency_key("remind:7").unique_for(day);
    /// assert!(job.validate().is_ok());
    /// ```
    #[must_use]
    pub fn unique_for(mut self, duration: Duration) -> Self {
        keep(&mut self.problem, positive("unique_for", duration));
        if duration > MAX_DELAY {
            let problem = InvalidInput::new("unique_for", "is longer than 1,000 years");
            self.problem.get_or_insert(problem);
        }
        self.unique_for = Some(time::whole_millis(duration));
        self
    }

    /// Sets what the enqueue does if an unfinished job has the unique key of this job:
    /// [`OnConflict`] has the table. By default, this job is a duplicate.
    ///
    /// The enqueue refuses another value than [`OnConflict::Keep`] for a job without a unique key
    /// and for a job in a lane. It also refuses two jobs with the same unique key if one of them
    /// has such a value.
    #[must_use]
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Makes the job due `delay` after the last enqueue with its unique key, and at most
    /// `max_delay` after the first one. This is the same as [`delay`](Self::delay) and
    /// [`OnConflict::Debounce`]. The job gets the payload of the last enqueue.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratchet::NewJob;
    ///
    /// let (delay, max_delay) = (Duration::from_secs(5), Duration::from_secs(60));
    /// let job = NewJob::new("reindex", &7).unique_key("reindex:7").debounce(delay, max_delay);
    /// assert!(job.validate().is_ok());
    /// ```
    #[must_use]
    pub const fn debounce(self, delay: Duration, max_delay: Duration) -> Self {
        self.delay(delay)
            .on_conflict(OnConflict::Debounce { max_delay })
    }

    /// Makes the enqueue of this job store nothing at all if this job is a duplicate.
    ///
    /// The outcome of a duplicate is [`Duplicate`](super::Enqueued::Duplicate), as always. The
    /// outcome of the jobs that were not stored because of it is
    /// [`Withheld`](super::Enqueued::Withheld). Only duplicates of jobs that have this mark have
    /// this effect. Mark all jobs if any duplicate shall prevent the enqueue.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ratchet::{Enqueued, NewJob, Ratchet};
    ///
    /// let client = Ratchet::client(ratchet::connect("memory:").await?);
    /// let charge = || NewJob::new("charge", &42).idempotency_key("charge:42").all_or_nothing();
    /// let first = client.enqueue(charge()).await?.id();
    /// let receipt = NewJob::new("receipt", &42);
    /// let outcomes = client.enqueue_all(&[charge(), receipt.clone()]).await?;
    /// assert_eq!(outcomes, [Enqueued::Duplicate(first), Enqueued::Withheld(receipt.id())]);
    /// assert_eq!(client.job(receipt.id()).await?, None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub const fn all_or_nothing(mut self) -> Self {
        self.all_or_nothing = true;
        self
    }

    /// Returns how long the idempotency key of this job stays used; `None` for ever.
    #[must_use]
    pub const fn key_lifetime(&self) -> Option<Duration> {
        self.unique_for
    }

    /// Returns until when the idempotency key of this job stays used if the job is enqueued at
    /// `now`; `None` for ever. Both times are in milliseconds since 1970. `[keys.expire]`
    #[must_use]
    pub fn key_expiry(&self, now: i64) -> Option<i64> {
        let lifetime = self.unique_for.map(time::duration_millis);
        lifetime.map(|lifetime| now.saturating_add(lifetime))
    }

    /// Returns what the enqueue does if an unfinished job has the unique key of this job.
    #[must_use]
    pub const fn conflict(&self) -> OnConflict {
        self.on_conflict
    }

    /// Returns whether the enqueue of this job may change the unfinished job that has its unique
    /// key.
    #[must_use]
    pub const fn changes_holder(&self) -> bool {
        !matches!(self.on_conflict, OnConflict::Keep)
    }

    /// Returns whether the enqueue stores nothing if this job is a duplicate
    /// ([`all_or_nothing`](Self::all_or_nothing)).
    #[must_use]
    pub const fn is_all_or_nothing(&self) -> bool {
        self.all_or_nothing
    }
}
