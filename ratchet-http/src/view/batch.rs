use ratchet_core::model::BatchRecord;
use schemars::JsonSchema;
use serde::Serialize;

use super::At;

/// One page of batches.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Batches {
    /// The batches, newest first.
    pub batches: Vec<Batch>,
    /// The value of `before` for the next page; null on the last page.
    pub next: Option<String>,
}

/// A batch: a group of jobs whose ends are counted together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Batch {
    /// The id of the batch.
    pub id: String,
    /// The number of jobs in the batch.
    pub total: u64,
    /// The number of jobs that succeeded.
    pub succeeded: u64,
    /// The number of jobs that became dead letters.
    pub failed: u64,
    /// The number of jobs that were cancelled.
    pub cancelled: u64,
    /// The number of jobs that have not ended.
    pub unfinished: u64,
    /// The percentage of the jobs that have ended, from 0 to 100.
    pub percent: u8,
    /// Whether the batch accepts no more jobs.
    pub closed: bool,
    /// When the batch was created.
    pub created_at: At,
    /// When the batch ended; null if the batch has not ended.
    pub ended_at: Option<At>,
}

impl From<&BatchRecord> for Batch {
    fn from(batch: &BatchRecord) -> Self {
        Self {
            id: batch.id.to_string(),
            total: batch.total,
            succeeded: batch.succeeded,
            failed: batch.failed,
            cancelled: batch.cancelled,
            unfinished: batch.unfinished(),
            percent: batch.percent(),
            closed: batch.closed,
            created_at: At(batch.created_at),
            ended_at: batch.ended_at.map(At),
        }
    }
}
