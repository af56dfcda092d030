use std::time::Duration;

use super::Client;
use crate::error::Result;
use crate::id::JobId;
use crate::model::{ActionOutcome, JobFilter, JobSelector};
use crate::state::JobAction;
use crate::time::monotonic;

impl Client {
    /// Prepares an action on jobs that match `filter`. Call [`Bulk::run`] to perform it.
    ///
    /// The action processes up to `limit` jobs. It skips jobs to which it does not apply. Skipped
    /// jobs do not count towards the limit.
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

/// An action on many jobs. It processes the jobs from the oldest to the newest, in passes of
/// limited size.
///
/// Each pass is a transaction that changes each of its jobs completely or not at all. The action as
/// a whole is *not* a transaction: if a pass fails, the changes of earlier passes remain.
///
/// Jobs to which the action does not apply are skipped and not counted. An example is a job that
/// another caller has changed in the meantime. A job that is enqueued while the action runs is
/// processed if its id is greater than the id of the last processed job. The same holds for a job
/// that begins to match the filter while the action runs.
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
    /// Default number of jobs in a pass. A pass is small, so that other store calls wait for it
    /// only briefly.
    const PASS: usize = 500;

    /// Sets the maximum number of jobs in one pass, which must be at least 1. The default is 500.
    #[must_use]
    pub const fn pass(mut self, jobs: usize) -> Self {
        self.pass = jobs;
        self
    }

    /// Restricts the action to jobs with an id greater than `job`. To continue an earlier,
    /// unfinished action, pass the id that [`reached`](Self::reached) of that action returns.
    #[must_use]
    pub const fn after(mut self, job: Option<JobId>) -> Self {
        self.after = job;
        self
    }

    /// Runs passes until no matching job is left or the limit is reached. Returns the counts of all
    /// passes.
    ///
    /// # Errors
    /// The same errors as [`Client::act`]. After an error, call this method again to continue after
    /// the last successful pass. The failed pass may have taken effect. Its jobs are then not
    /// counted, and a later pass may change them once more.
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

    /// Runs passes as [`run`](Self::run) does, but begins no new pass after `time` has passed.
    ///
    /// Use this method if the caller cannot wait for the whole action. A pass that has begun is
    /// always completed. The method runs at least one pass, unless the action [is
    /// over](Self::is_over). The next call continues after the last successful pass. The returned
    /// counts include the passes of earlier calls.
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
    /// The same errors as [`run`](Self::run).
    ///
    /// # Cancel safety
    /// The same as for [`run`](Self::run).
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

    /// Returns whether the action has ended: no matching job is left, or the limit is reached.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_complete || self.counts.total() >= self.limit
    }

    /// Returns the counts of all passes so far.
    #[must_use]
    pub const fn counts(&self) -> BulkCounts {
        self.counts
    }

    /// Returns the id of the last processed job. The next pass begins after this job. Before the
    /// first pass, returns the id that was passed to [`after`](Self::after), or `None`.
    #[must_use]
    pub const fn reached(&self) -> Option<JobId> {
        self.after
    }

    /// Returns whether the action has processed all matching jobs. Returns `false` while matching
    /// jobs may be left, or if the limit was reached first.
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
        // Only an empty pass is the last one. A pass with fewer jobs than requested is not: other
        // jobs may match that it could not change because of lost races.
        self.is_complete = acted.is_empty();
        for one in acted {
            self.after = Some(one.job);
            self.counts.note(one.outcome);
        }
        Ok(())
    }
}

/// The number of jobs that an action on many jobs has processed, by outcome.
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
    /// Number of jobs whose state, due time or priority was changed, or that were deleted.
    pub changed: u64,
    /// Number of running jobs that were asked to cancel.
    pub cancel_requested: u64,
    /// Number of dead letters that could not be requeued because another job holds their unique
    /// key.
    pub key_taken: u64,
}

impl BulkCounts {
    /// Returns the total number of processed jobs, whatever the outcome.
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
            // A pass over a filter never returns these outcomes, because it skips jobs to which the
            // action does not apply.
            ActionOutcome::Refused(_) | ActionOutcome::NotFound => {}
        }
    }
}
