use std::time::Duration;

use super::Client;
use crate::error::Result;
use crate::id::JobId;
use crate::model::{ActionOutcome, JobFilter, JobSelector};
use crate::state::JobAction;
use crate::time::monotonic;

impl Client {
    /// Prepares an action on up to `limit` jobs that match the filter and to which the action
    /// applies. [`Bulk::run`] performs it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
    /// # use std::sync::Arc;
    /// # use ratchet::{MemoryStore, Ratchet};
    /// use ratchet::JobFilter;
    /// use ratchet::{JobAction, Name, NewJob};
    ///
    /// # let client = Ratchet::client(Arc::new(MemoryStore::new()));
    /// client.enqueue(NewJob::new("mail", "hello").tag("tenant:7")).await?;
    /// let theirs = JobFilter::all().tag(Name::new("tag", "tenant:7")?);
    /// let done = client.bulk(theirs, JobAction::Cancel, 100_000).run().await?;
    /// assert_eq!(done.changed, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn bulk(&self, filter: JobFilter, action: JobAction, limit: u64) -> Bulk {
        Bulk {
            client: self.clone(),
            filter,
            action,
            limit,
            pass: Bulk::PASS,
            after: None,
            is_complete: false,
            counts: BulkCounts::default(),
        }
    }
}

/// An action on many jobs, from the oldest to the newest, in passes of a bounded size.
///
/// The run as a whole is *not* a transaction. Each pass is one, and changes each job completely or
/// not at all. The changes of a pass stay, even if the next pass fails. A job that is enqueued or
/// begins to match during the run is processed if its id is greater than that of the last job
/// reached. Jobs to which the action does not apply, such as jobs that another caller has changed
/// in the meantime, are skipped and not counted.
///
/// [`Client::bulk`] has an example.
#[derive(Debug)]
pub struct Bulk {
    client: Client,
    filter: JobFilter,
    action: JobAction,
    limit: u64,
    pass: usize,
    after: Option<JobId>,
    is_complete: bool,
    counts: BulkCounts,
}

impl Bulk {
    /// The default number of jobs in a pass, small enough that no other call waits long for a pass.
    const PASS: usize = 500;

    /// Sets the maximum number of jobs in one pass, at least 1. The default is 500.
    #[must_use]
    pub const fn pass(mut self, jobs: usize) -> Self {
        self.pass = jobs;
        self
    }

    /// Restricts the run to jobs after this one. To continue an earlier, unfinished run, pass the
    /// job that it has [reached](Self::reached).
    #[must_use]
    pub const fn after(mut self, job: Option<JobId>) -> Self {
        self.after = job;
        self
    }

    /// Makes passes until no job is left or the limit is reached, and returns the counts of all
    /// passes.
    ///
    /// # Errors
    /// As for [`Client::act`]. A failure ends this call only: another call continues after the last
    /// pass that is known to have succeeded. The failed pass may have taken effect; then it is not
    /// counted, and its jobs may be changed once more.
    ///
    /// # Cancel safety
    /// If the future is dropped, the current pass may or may not have taken effect, as after an
    /// error.
    pub async fn run(&mut self) -> Result<BulkCounts> {
        while !self.is_over() {
            self.make_pass().await?;
        }
        Ok(self.counts)
    }

    /// Makes passes as [`run`](Self::run) does, but begins none after `time` has passed.
    ///
    /// Use it if the caller cannot wait for the whole run. A pass that has begun is completed.
    /// Unless the action [is over](Self::is_over), at least one pass is made. The next call
    /// continues where this one stopped; the returned counts are those of all passes so far.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
    /// # use std::sync::Arc;
    /// # use ratchet::{MemoryStore, NewJob, Ratchet};
    /// use std::time::Duration;
    /// use ratchet::JobAction;
    /// use ratchet::JobFilter;
    ///
    /// # let client = Ratchet::client(Arc::new(MemoryStore::new()));
    /// # client.enqueue_all(&[NewJob::new("mail", "a"), NewJob::new("mail", "b")]).await?;
    /// let mut all = client.bulk(JobFilter::all(), JobAction::Cancel, 100_000).pass(1);
    /// while !all.is_over() {
    ///     let so_far = all.run_for(Duration::from_secs(1)).await?;
    ///     println!("{} are cancelled", so_far.changed);
    /// }
    /// # assert_eq!(all.counts().changed, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    pub async fn run_for(&mut self, time: Duration) -> Result<BulkCounts> {
        let began = monotonic();
        while !self.is_over() {
            self.make_pass().await?;
            if began.elapsed() >= time {
                break;
            }
        }
        Ok(self.counts)
    }

    /// Returns whether no more passes will be made: no job is left, or the limit is reached.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_complete || self.counts.total() >= self.limit
    }

    /// Returns the counts so far.
    #[must_use]
    pub const fn counts(&self) -> BulkCounts {
        self.counts
    }

    /// Returns the last job that was processed, after which the next pass begins. `None` if no job
    /// was.
    #[must_use]
    pub const fn reached(&self) -> Option<JobId> {
        self.after
    }

    /// Returns whether no job is left. `false` if the run is unfinished, because a call failed or
    /// the limit was reached first.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    async fn make_pass(&mut self) -> Result<()> {
        let left = usize::try_from(self.limit - self.counts.total()).unwrap_or(usize::MAX);
        let jobs = JobSelector::matching(self.filter.clone(), self.pass.min(left));
        let acted = (self.client)
            .act(&jobs.after(self.after), self.action)
            .await?;
        // Only an empty pass is the last: a pass that was not full may have lost races for the
        // other jobs.
        self.is_complete = acted.is_empty();
        for one in acted {
            self.after = Some(one.job);
            self.counts.note(one.outcome);
        }
        Ok(())
    }
}

/// The counts of a [`Bulk`].
///
/// ```
/// # async fn example(client: &ratchet::Client, batch: ratchet::BatchId) -> Result<(), ratchet::BoxError> {
/// let counts = client.cancel_batch(batch).await?;
/// println!("{} cancelled, {} asked to stop", counts.changed, counts.cancel_requested);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkCounts {
    /// Jobs that have another state, due time or priority now, or are deleted.
    pub changed: u64,
    /// Running jobs whose cancellation was requested.
    pub cancel_requested: u64,
    /// Dead letters that could not be requeued because another job holds their unique key.
    pub key_taken: u64,
}

impl BulkCounts {
    /// Returns how many jobs were processed, whatever the outcome.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.changed + self.cancel_requested + self.key_taken
    }

    fn note(&mut self, outcome: ActionOutcome) {
        match outcome {
            ActionOutcome::Became(_) | ActionOutcome::Changed | ActionOutcome::Deleted => {
                self.changed += 1;
            }
            ActionOutcome::CancelRequested => self.cancel_requested += 1,
            ActionOutcome::KeyTaken(_) => self.key_taken += 1,
            // A pass over a filter never returns these.
            ActionOutcome::Refused(_) | ActionOutcome::NotFound => {}
        }
    }
}
