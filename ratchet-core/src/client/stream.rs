use std::pin::pin;

use futures_util::{Stream, StreamExt};

use super::Client;
use crate::error::StoreError;
use crate::model::{Enqueued, NewJob};

/// The most jobs in one call. A larger batch would save little per job.
const BATCH: usize = 1_000;
/// The most bytes of payloads in one call, before its last job is added.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The counts of the jobs that were enqueued from a stream.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::NewJob;
///
/// let jobs = futures_util::stream::iter((0..100_000).map(|n| NewJob::new("resize", &n)));
/// match client.enqueue_stream(jobs).await {
///     Ok(counts) => println!("{} created", counts.created),
///     Err(error) => println!("stopped after {}: {error}", error.before.created),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamCounts {
    /// Jobs that were created.
    pub created: u64,
    /// Jobs that were [duplicates](Enqueued::Duplicate) and were not stored.
    pub duplicates: u64,
    /// Jobs that were not stored, and whose payload replaced that of a waiting job
    /// ([`OnConflict`](crate::OnConflict)).
    pub replaced: u64,
    /// Jobs that were not stored because a duplicate of their call asked for [all or
    /// nothing](NewJob::all_or_nothing).
    pub withheld: u64,
}

impl StreamCounts {
    const fn total(self) -> u64 {
        self.created + self.duplicates + self.replaced + self.withheld
    }
}

/// The error of [`Client::enqueue_stream`]: a call failed before the stream ended.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::NewJob;
///
/// let jobs = futures_util::stream::iter((0..100_000).map(|n| NewJob::new("resize", &n)));
/// match client.enqueue_stream(jobs).await {
///     Ok(counts) => println!("{} created", counts.created),
///     Err(error) => println!("stopped after {}: {error}", error.before.created),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[error("enqueueing the stream stopped after {} jobs: {source}", .before.total())]
#[non_exhaustive]
pub struct StreamError {
    /// The counts of the calls that succeeded. After a timeout, the jobs of the failed call may be
    /// stored as well: at most the next 1,000 jobs of the stream. Jobs with idempotency keys can
    /// safely be enqueued again.
    pub before: StreamCounts,
    /// Why the call failed.
    #[source]
    pub source: StoreError,
}

impl Client {
    /// Enqueues any number of jobs, as fast as the store accepts them.
    ///
    /// The jobs are sent in one call after the other, each with up to 1,000 jobs and about 4 MiB of
    /// payloads. So only the jobs of one call are in memory.
    ///
    /// A job that asks for [all or nothing](NewJob::all_or_nothing) affects only the jobs of its
    /// call.
    ///
    /// Each call enqueues all of its jobs or none, as [`enqueue_all`](Self::enqueue_all) does, but
    /// the stream as a whole may be enqueued in part. A job with an [idempotency
    /// key](crate::NewJob::idempotency_key) can be enqueued again after a failure.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use futures_util::stream;
    /// use ratchet::{MemoryStore, NewJob, Ratchet};
    ///
    /// let client = Ratchet::client(Arc::new(MemoryStore::new()));
    /// let jobs = (0..2_500).map(|row| NewJob::new("import", &row));
    /// let counts = client.enqueue_stream(stream::iter(jobs)).await?;
    /// assert_eq!(counts.created, 2_500);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`StreamError`], with the counts of the earlier calls, at the first call that fails as
    /// [`enqueue_all`](Self::enqueue_all) does. The rest of the stream is not read.
    ///
    /// # Cancel safety
    /// If the future is dropped, the jobs of earlier calls are stored. Of the current call, all
    /// jobs are stored or none.
    pub async fn enqueue_stream(
        &self,
        jobs: impl Stream<Item = NewJob>,
    ) -> Result<StreamCounts, StreamError> {
        let mut jobs = pin!(jobs);
        let mut counts = StreamCounts::default();
        let mut batch: Vec<NewJob> = Vec::new();
        let mut bytes = 0;
        loop {
            let next = jobs.next().await;
            let ended = next.is_none();
            if let Some(job) = next {
                bytes += job.spec().payload.as_str().len();
                batch.push(job);
            }
            let full = batch.len() == BATCH || bytes >= BATCH_BYTES;
            if !batch.is_empty() && (ended || full) {
                let enqueued = self.enqueue_all(&batch).await;
                let before = counts;
                for answer in enqueued.map_err(|source| StreamError { before, source })? {
                    match answer {
                        Enqueued::Created(_) => counts.created += 1,
                        Enqueued::Duplicate(_) => counts.duplicates += 1,
                        Enqueued::Replaced(_) => counts.replaced += 1,
                        Enqueued::Withheld(_) => counts.withheld += 1,
                    }
                }
                batch.clear();
                bytes = 0;
            }
            if ended {
                return Ok(counts);
            }
        }
    }
}
