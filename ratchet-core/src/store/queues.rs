use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{DueRoute, QueueInfo};
use crate::name::Name;

/// Queues: pausing them, and what waits in them.
#[async_trait]
pub trait QueueStore: Debug + Send + Sync {
    /// Stops the claiming of a queue's jobs; running ones go on.
    ///
    /// # Contract
    /// - **[queue.pause]** From the return of the call on, no claim returns a job of the queue, and
    ///   the pause survives restarts. The queue need not have jobs.
    /// - **[queue.again]** Pausing a paused queue or resuming one that is not is `Unchanged`.
    ///
    /// # Errors
    /// A failure of the store.
    async fn pause_queue(&self, queue: &Name) -> Result<Changed>;

    /// Lets the queue's jobs be claimed again.
    ///
    /// # Contract
    /// - **[queue.resume]** Jobs that waited can be claimed at once, in the usual order.
    ///
    /// # Errors
    /// A failure of the store.
    async fn resume_queue(&self, queue: &Name) -> Result<Changed>;

    /// Lists the queues by name, with their jobs counted by state.
    ///
    /// # Contract
    /// - **[queue.list]** Every queue that has jobs or is paused, once, ordered by name; the counts
    ///   add up to the jobs that exist.
    ///
    /// # Errors
    /// A failure of the store.
    async fn queues(&self) -> Result<Vec<QueueInfo>>;

    /// Lists the routes of which a pending job is due or comes due within this time.
    ///
    /// This is for looking every few seconds: it takes a few seeks in the claim index for each
    /// route and does not read the backlog.
    ///
    /// # Contract
    /// - **[queue.due]** Exactly the routes with a pending job whose `run_at` has come or comes
    ///   within `within`, each once, in the order of [`DueRoute::sort`]: how long ago the first of
    ///   them came due or when it does, and whether the queue is paused. Jobs that are blocked,
    ///   paused, running or ended do not count.
    ///
    /// # Errors
    /// A failure of the store.
    async fn due_routes(&self, within: Duration) -> Result<Vec<DueRoute>>;

    /// Counts the due jobs of a queue, but no further than `limit`.
    ///
    /// This is for looking every few seconds: its cost grows with `limit` and not with the backlog.
    ///
    /// # Contract
    /// - **[queue.depth]** The smaller of `limit` and the number of pending jobs of the queue whose
    ///   `run_at` has come, whether the queue is paused or not. Jobs that are blocked, paused,
    ///   running or ended do not count.
    ///
    /// # Errors
    /// A failure of the store.
    async fn count_due(&self, queue: &Name, limit: u64) -> Result<u64>;
}

/// Whether a request changed anything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{Changed, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// assert_eq!(client.pause_queue("mail").await?, Changed::Changed);
/// assert_eq!(client.pause_queue("mail").await?, Changed::Unchanged);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It did.
    Changed,
    /// It was as requested already, or does not exist.
    Unchanged,
}

impl Changed {
    /// Returns `Changed` if something changed.
    #[must_use]
    pub const fn when(changed: bool) -> Self {
        if changed {
            Self::Changed
        } else {
            Self::Unchanged
        }
    }
}
