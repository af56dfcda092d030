use std::pin::pin;

use futures_util::{Stream, StreamExt};

use super::Client;
use crate::error::StoreError;
use crate::model::{Enqueued, NewJob};

/// The most jobs of one call: a batch of this size costs little more per job than a larger one.
const BATCH: usize = 1_000;
/// The most bytes of payloads of one call, but for the last job of it.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The counts of an enqueued stream.
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
    /// Jobs that are stored now.
    pub created: u64,
    /// Jobs that were [duplicates](Enqueued::Duplicate), and are not.
    pub duplicates: u64,
}

/// Why [`Client::enqueue_stream`] ended before its stream.
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
#[error("after {} jobs: {source}", .before.created + .before.duplicates)]
#[non_exhaustive]
pub struct StreamError {
    /// The jobs of the calls that succeeded. After a timeout the jobs of the failed call, which are
    /// the next 1,000 at most, may be stored as well: with idempotency keys they can be enqueued
    /// again.
    pub before: StreamCounts,
    /// Why the call failed.
    #[source]
    pub source: StoreError,
}

impl Client {
    /// Enqueues any number of jobs, as fast as the store takes them: in calls of up to 1,000 jobs
    /// and about 4 MiB of payloads, one after the other, so that no more than that is in memory.
    ///
    /// Each call is all or nothing where [`enqueue_all`](Self::enqueue_all) is; the whole is not. A
    /// job with an [idempotency key](crate::NewJob::idempotency_key) can be enqueued again after a
    /// failure.
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
    /// [`StreamError`], with how many jobs were enqueued before, at the first call that fails as
    /// [`enqueue_all`](Self::enqueue_all) does. The rest of the stream is not read.
    ///
    /// # Cancel safety
    /// If the future is dropped, the jobs of earlier calls are stored, and those of the present
    /// call all or not at all.
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
