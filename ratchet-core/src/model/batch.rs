//! Batches: jobs that are counted together as they end.

use crate::error::{StoreError, StoreErrorKind};
use crate::id::BatchId;
use crate::limits;
use crate::model::Guard;
use crate::state::JobState;
use crate::time::Timestamp;

use std::time::Duration;

/// A stored batch.
///
/// A batch is created open. While it is open, jobs join it at their enqueue. After it is closed, it
/// ends as soon as all its children have ended. A child counts once, by the state in which it first
/// ended: a dead letter that is requeued stays counted as failed.
///
/// ```
/// # async fn example(client: &ratchet::Client, batch: ratchet::BatchId) -> Result<(), ratchet::BoxError> {
/// if let Some(record) = client.batch(batch).await? {
///     println!("{} of {} succeeded", record.succeeded, record.total);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchRecord {
    /// The id of the batch.
    pub id: BatchId,
    /// The number of jobs in the batch, which are its children.
    pub total: u64,
    /// The number of children that succeeded.
    pub succeeded: u64,
    /// The number of children that became dead letters.
    pub failed: u64,
    /// The number of children that were cancelled.
    pub cancelled: u64,
    /// Whether no more children can join.
    pub closed: bool,
    /// When the batch was created, by the database's clock.
    pub created_at: Timestamp,
    /// When the batch ended, by the database's clock; `None` before that.
    pub ended_at: Option<Timestamp>,
}

impl BatchRecord {
    /// Creates the record of an open batch without children; set the other fields directly.
    #[must_use]
    pub const fn new(id: BatchId, created_at: Timestamp) -> Self {
        Self {
            id,
            total: 0,
            succeeded: 0,
            failed: 0,
            cancelled: 0,
            closed: false,
            created_at,
            ended_at: None,
        }
    }

    /// Returns the number of children that failed or were cancelled.
    #[must_use]
    pub const fn failures(&self) -> u64 {
        self.failed + self.cancelled
    }

    /// Returns the number of children that have not ended.
    #[must_use]
    pub const fn unfinished(&self) -> u64 {
        self.total
            .saturating_sub(self.succeeded)
            .saturating_sub(self.failures())
    }

    /// Returns whether the batch is closed and all its children have ended, so that it has ended
    /// too.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.closed && self.unfinished() == 0
    }

    /// Returns the percentage of the children that have ended, 0 to 100; 100 for a batch without
    /// children.
    #[must_use]
    pub fn percent(&self) -> u8 {
        let ended = u128::from(self.total - self.unfinished());
        let percent = (ended * 100).checked_div(u128::from(self.total));
        percent
            .and_then(|percent| u8::try_from(percent).ok())
            .unwrap_or(100)
    }

    /// Adds the counts of children that have ended.
    pub(crate) const fn add(&mut self, tally: Tally) {
        self.succeeded += tally.succeeded;
        self.failed += tally.failed;
        self.cancelled += tally.cancelled;
    }
}

/// The number of ended children of a batch, by the state in which they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// The number of children that succeeded.
    pub succeeded: u64,
    /// The number of children that became dead letters.
    pub failed: u64,
    /// The number of children that were cancelled.
    pub cancelled: u64,
}

impl Tally {
    /// Counts a child that ended in this terminal state. `[batch.count]`
    pub const fn count(&mut self, state: JobState) {
        match state {
            JobState::Succeeded => self.succeeded += 1,
            JobState::Failed => self.failed += 1,
            _ => self.cancelled += 1,
        }
    }
}

/// The outcome of closing a batch.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{BatchClosed, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let batch = client.create_batch().await?;
/// assert_eq!(client.close_batch(batch).await?, BatchClosed::Closed);
/// assert_eq!(client.close_batch(batch).await?, BatchClosed::Already);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchClosed {
    /// The batch is closed: no more jobs can join it.
    Closed,
    /// The batch was already closed; nothing changed.
    Already,
    /// There is no such batch.
    NotFound,
}

/// A request to delete ended batches.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BatchPurge {
    /// Only batches that ended longer ago than this, by the database's clock.
    pub older_than: Duration,
    /// The maximum number of batches to delete in one pass; at least 1.
    pub limit: usize,
    /// The tenure of the caller; the pass takes effect only while it lasts. `None` if any caller
    /// may run the pass.
    pub guard: Option<Guard>,
}

impl BatchPurge {
    /// Selects up to `limit` batches that ended more than `older_than` ago.
    #[must_use]
    pub const fn new(older_than: Duration, limit: usize) -> Self {
        Self {
            older_than,
            limit,
            guard: None,
        }
    }

    /// Lets the pass take effect only while this tenure lasts.
    #[must_use]
    pub fn guarded(mut self, guard: Option<Guard>) -> Self {
        self.guard = guard;
        self
    }

    /// Refuses a limit of 0 or above [`limits::MAX_BATCH`].
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`].
    pub fn validate(&self) -> Result<(), StoreError> {
        limits::check_limit("limit", self.limit).map_err(|problem| {
            StoreError::new(StoreErrorKind::Invalid, "purge_batches").with_source(problem)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    #[test]
    fn progress_is_what_ended_of_all() {
        let mut batch = BatchRecord::new(BatchId::new(), from_millis(0));
        assert_eq!((batch.percent(), batch.is_complete()), (100, false));
        batch.total = 3;
        batch.closed = true;
        let ends = [JobState::Failed, JobState::Cancelled, JobState::Succeeded];
        for (end, percent) in ends.into_iter().zip([33, 66, 100]) {
            assert!(!batch.is_complete());
            let mut tally = Tally::default();
            tally.count(end);
            batch.add(tally);
            assert_eq!(batch.percent(), percent);
        }
        assert!(batch.is_complete());
        assert_eq!((batch.succeeded, batch.failed, batch.cancelled), (1, 1, 1));
    }
}
