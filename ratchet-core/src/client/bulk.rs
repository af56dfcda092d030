use std::time::Duration;

use super::Client;
use crate::error::Result;
use crate::id::JobId;
use crate::model::{ActionOutcome, JobFilter, JobSelector};
use crate::state::JobAction;
use crate::time::monotonic;

impl Client {
    /// Begins an action on every job that matches the filter and can take it, at most `limit` of
    /// them. [`Bulk::run`] does it.
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
/// It is *not* one transaction: each pass is, and each job is changed as a whole or not at all.
/// The changes of a pass stay, even if the next one fails. A job that is enqueued, or begins to
/// match, is found if its place is after the one reached so far. Jobs that cannot take the action,
/// such as those that another caller changes meanwhile, are skipped and not counted.
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
    /// The default number of jobs in a pass: few enough that no other call waits for it long.
    const PASS: usize = 500;

    /// Sets how many jobs one pass takes at most; at least 1. Default 500.
    #[must_use]
    pub const fn pass(mut self, jobs: usize) -> Self {
        self.pass = jobs;
        self
    }

    /// Takes only jobs after this one: the job that an earlier, unfinished run has
    /// [reached](Self::reached).
    #[must_use]
    pub const fn after(mut self, job: Option<JobId>) -> Self {
        self.after = job;
        self
    }

    /// Makes passes until no job is left or the limit is reached, and returns the counts of all
    /// passes.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store, which ends this call only: another call continues
    /// after the last pass that is known to have been made. The failed pass may have been made.
    /// Then it is not counted, and its jobs may be changed once more.
    ///
    /// # Cancel safety
    /// If the future is dropped, the pass under way was made or not, as after an error.
    pub async fn run(&mut self) -> Result<BulkCounts> {
        while !self.is_over() {
            self.make_pass().await?;
        }
        Ok(self.counts)
    }

    /// As [`run`](Self::run), but begins no pass once this time is over, and returns after the one
    /// that goes on then: for callers that cannot wait for the end. Unless it is
    /// [over](Self::is_over), at least one pass is made. Called again, it goes on; the counts say
    /// how far it has come.
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

    /// Whether there is no more pass to make: nothing is left, or the limit is reached.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_complete || self.counts.total() >= self.limit
    }

    /// Returns the counts so far.
    #[must_use]
    pub const fn counts(&self) -> BulkCounts {
        self.counts
    }

    /// The last job that was taken on, behind which the next pass goes on.
    #[must_use]
    pub const fn reached(&self) -> Option<JobId> {
        self.after
    }

    /// Returns whether no job is left. If not, the limit was reached first, or a call failed.
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
        // One that did not fill its batch may have lost a race for the rest of it.
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
    /// Running jobs whose nodes will be told to cancel them.
    pub cancel_requested: u64,
    /// Dead letters that could not be requeued, since another job has their unique key.
    pub key_taken: u64,
}

impl BulkCounts {
    /// The jobs that were taken on.
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
            // Not among the answers to a filter.
            ActionOutcome::Refused(_) | ActionOutcome::NotFound => {}
        }
    }
}
