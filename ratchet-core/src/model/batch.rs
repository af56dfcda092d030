//! Batches: jobs that are counted together as they end.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::id::BatchId;
use crate::limits;
use crate::model::{Guard, document};
use crate::state::JobState;
use crate::time::{Timestamp, from_millis, to_millis};

/// A stored batch.
///
/// A new batch is open, and jobs can join it when they are enqueued. These jobs are its children.
/// After the batch is closed, it ends as soon as all its children have ended. A child counts once,
/// by the state in which it first ended. So a dead letter that is requeued stays counted as failed.
///
/// ```
/// # async fn example(client: &ratchet::Client, batch: ratchet::BatchId) -> Result<(), ratchet::BoxError> {
/// if let Some(record) = client.batch(batch).await? {
///     println!("{} of {} succeeded", record.succeeded, record.total);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchRecord {
    /// The id of the batch.
    pub id: BatchId,
    /// The number of jobs in the batch. These jobs are its children.
    pub total: u64,
    /// The number of children that succeeded.
    pub succeeded: u64,
    /// The number of children that became dead letters.
    pub failed: u64,
    /// The number of children that were cancelled.
    pub cancelled: u64,
    /// Whether the batch is closed, so that no more jobs can join it.
    pub closed: bool,
    /// When the batch was created, by the database's clock.
    pub created_at: Timestamp,
    /// When the batch ended, by the database's clock. `None` if it has not ended yet.
    pub ended_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct Document {
    id: String,
    total: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    closed: bool,
    created_at: i64,
    ended_at: Option<i64>,
}

impl BatchRecord {
    /// Creates the record of an open batch without children. Set the other fields directly.
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

    /// Returns whether the batch is closed and all its children have ended. Such a batch has ended
    /// too.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.closed && self.unfinished() == 0
    }

    /// Returns the percentage of the children that have ended, from 0 to 100. Returns 100 for a
    /// batch without children.
    #[must_use]
    pub fn percent(&self) -> u8 {
        let ended = u128::from(self.total - self.unfinished());
        let percent = (ended * 100).checked_div(u128::from(self.total));
        percent
            .and_then(|percent| u8::try_from(percent).ok())
            .unwrap_or(100)
    }

    /// Closes the batch. If the batch is already closed, returns `Already` and changes nothing.
    /// `[batch.close]`
    pub const fn close(&mut self) -> BatchClosed {
        if self.closed {
            return BatchClosed::Already;
        }
        self.closed = true;
        BatchClosed::Closed
    }

    /// Encodes the record as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the document cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        document::encode(&Document {
            id: self.id.to_string(),
            total: self.total,
            succeeded: self.succeeded,
            failed: self.failed,
            cancelled: self.cancelled,
            closed: self.closed,
            created_at: to_millis(self.created_at),
            ended_at: self.ended_at.map(to_millis),
        })
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `document` if the text is not such a document.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        let read: Document = document::decode(document)?;
        Ok(Self {
            id: read
                .id
                .parse()
                .map_err(|error| document::unreadable(&error))?,
            total: read.total,
            succeeded: read.succeeded,
            failed: read.failed,
            cancelled: read.cancelled,
            closed: read.closed,
            created_at: from_millis(read.created_at),
            ended_at: read.ended_at.map(from_millis),
        })
    }

    /// Adds the numbers of children that have ended to the counts of this record.
    pub const fn add(&mut self, tally: Tally) {
        self.succeeded += tally.succeeded;
        self.failed += tally.failed;
        self.cancelled += tally.cancelled;
    }
}

/// The numbers of ended children of a batch, by the state in which they ended.
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
    /// Adds 1 to the number of children that ended in this terminal state. `[batch.count]`
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum BatchClosed {
    /// The batch was open and is closed now. No more jobs can join it.
    Closed,
    /// The batch was already closed. Nothing changed.
    Already,
    /// No batch with this id exists.
    NotFound,
}

/// A request to delete ended batches.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchPurge {
    /// The time that must have passed since a batch ended, by the database's clock.
    pub older_than: Duration,
    /// The maximum number of batches that one call deletes; at least 1.
    pub limit: usize,
    /// The guard that names the caller's term as leader. If this term has ended, the store deletes
    /// nothing. `None` if the caller need not be the leader.
    pub guard: Option<Guard>,
}

impl BatchPurge {
    /// Creates a request to delete up to `limit` batches that ended more than `older_than` ago.
    #[must_use]
    pub const fn new(older_than: Duration, limit: usize) -> Self {
        Self {
            older_than,
            limit,
            guard: None,
        }
    }

    /// Sets the guard, which names the caller's term as leader. If this term has ended, the store
    /// deletes nothing.
    #[must_use]
    pub fn guarded(mut self, guard: Option<Guard>) -> Self {
        self.guard = guard;
        self
    }

    /// Checks that the limit is at least 1 and at most [`limits::MAX_BATCH`].
    ///
    /// # Errors
    /// Fails with [`StoreErrorKind::Invalid`] if the limit is out of range.
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
    fn a_whole_record_round_trips() {
        let mut batch = BatchRecord::new(BatchId::new(), from_millis(7));
        assert_eq!(
            BatchRecord::decode(&batch.encode().unwrap()),
            Ok(batch.clone())
        );
        (batch.total, batch.succeeded, batch.failed, batch.cancelled) = (9, 2, 3, 4);
        assert_eq!(batch.close(), BatchClosed::Closed);
        assert_eq!(batch.close(), BatchClosed::Already);
        batch.ended_at = Some(from_millis(8));
        assert_eq!(BatchRecord::decode(&batch.encode().unwrap()), Ok(batch));
    }

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
