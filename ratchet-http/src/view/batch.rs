use ratchet_core::model::BatchRecord;
use schemars::JsonSchema;
use serde::Serialize;

use super::At;

/// One page of batches.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Batches {
    /// The newest first.
    pub batches: Vec<Batch>,
    /// The value of `before` for the next page; null on the last page.
    pub next: Option<String>,
}

/// A batch.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Batch {
    /// The batch.
    pub id: String,
    /// Its jobs.
    pub total: u64,
    /// Those that succeeded.
    pub succeeded: u64,
    /// Those that became dead letters.
    pub failed: u64,
    /// Those that were cancelled.
    pub cancelled: u64,
    /// Those that have not ended.
    pub unfinished: u64,
    /// The part of them that has ended, 0 to 100.
    pub percent: u8,
    /// Whether no more jobs join it.
    pub closed: bool,
    /// When it was created.
    pub created_at: At,
    /// When it ended.
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
