use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::model::{DueRoute, PauseInfo, PauseRequest, PauseScope, QueueInfo};
use crate::name::Name;

/// Pauses and resumes queues and kinds, lists queues, and reads which of their jobs are due.
#[async_trait]
pub trait QueueStore: Debug + Send + Sync {
    /// Pauses a queue or a kind: its jobs are no longer claimed, and running jobs continue.
    ///
    /// A job of a paused kind keeps its place in its lane, so the lane waits with it.
    ///
    /// # Contract
    /// - **[queue.pause]** After the call has returned, no claim returns a job of the queue or
    ///   kind, and the pause survives restarts. The queue or kind need not have jobs.
    /// - **[queue.again]** Pausing what is paused already is `Unchanged`, and keeps the first
    ///   pause with its time, operator and reason. So is resuming what is not paused.
    ///
    /// # Errors
    /// `Invalid` for a text that [`PauseRequest::validate`] refuses, or a failure of the store.
    async fn pause(&self, request: &PauseRequest) -> Result<Changed>;

    /// Resumes a queue or a kind: its jobs can be claimed again.
    ///
    /// # Contract
    /// - **[queue.resume]** After the call, jobs that waited can be claimed at once, in the usual
    ///   order. A job whose queue and kind were both paused waits until both are resumed.
    ///
    /// # Errors
    /// A failure of the store.
    async fn resume(&self, scope: &PauseScope) -> Result<Changed>;

    /// Lists the pauses that are in effect.
    ///
    /// # Contract
    /// - **[queue.pauses]** The list has each pause once, first the queues and then the kinds, each
    ///   ordered by name. Each has the time of the database's clock at which it began, and the
    ///   texts of the request that began it.
    ///
    /// # Errors
    /// A failure of the store.
    async fn pauses(&self) -> Result<Vec<PauseInfo>>;

    /// Lists the queues, ordered by name, with the number of their jobs per state.
    ///
    /// # Contract
    /// - **[queue.list]** The list has every queue that has jobs or is paused, once, ordered by
    ///   name. The sum of the counts is the number of stored jobs.
    ///
    /// # Errors
    /// A failure of the store.
    async fn queues(&self) -> Result<Vec<QueueInfo>>;

    /// Lists the routes with a pending job that is due, or that becomes due within `within`.
    ///
    /// Nodes call this method every few seconds. So a call must cost only a few index seeks per
    /// route, and must not read the backlog.
    ///
    /// # Contract
    /// - **[queue.due]** The list has exactly the routes with a pending job that is due, or becomes
    ///   due within `within`, each once, in the order of [`DueRoute::sort`]. Each entry contains
    ///   the time since the first of these jobs became due, or the time until it becomes due. It
    ///   also says whether the queue is paused, and whether the kind is. Jobs that are blocked,
    ///   paused, running or ended do not count.
    ///
    /// # Errors
    /// A failure of the store.
    async fn due_routes(&self, within: Duration) -> Result<Vec<DueRoute>>;

    /// Counts the due jobs of a queue, up to `limit`.
    ///
    /// This method is cheap enough to be called every few seconds: its cost grows with `limit`, not
    /// with the backlog.
    ///
    /// # Contract
    /// - **[queue.depth]** The call returns the number of pending jobs of the queue whose `run_at`
    ///   has come, up to `limit`. Pauses of the queue or of kinds make no difference. Jobs that are
    ///   blocked, paused, running or ended do not count.
    ///
    /// # Errors
    /// A failure of the store.
    async fn count_due(&self, queue: &Name, limit: u64) -> Result<u64>;

    /// Moves up to `limit` pending jobs to routes that only their queues use, and returns how many
    /// it moved.
    ///
    /// A store may keep the jobs of many queues together, so that the cost of a claim does not
    /// depend on the number of queues; see [`dictionary`](crate::dictionary). A claim then reads
    /// the jobs of a queue that is paused, or that it excludes, only to skip them. This call moves
    /// the jobs of such queues. The leader makes it again and again. Stores that keep each queue
    /// apart do nothing.
    ///
    /// # Contract
    /// - **[queue.separate]** The call changes nothing that another call returns. A claim may leave
    ///   out a job in the moment in which the job moves, as it leaves out a job that another claim
    ///   takes. The next claim returns it, and no job is returned twice.
    ///
    /// # Errors
    /// A failure of the store.
    async fn separate_queues(&self, limit: usize) -> Result<u64> {
        let _ = limit;
        Ok(0)
    }
}

/// The answer of a call that says whether the call changed anything.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    /// The call changed something.
    Changed,
    /// The call changed nothing: the state was already as requested, or the object does not exist.
    Unchanged,
}

impl Changed {
    /// Returns `Changed` if `changed` is true, otherwise `Unchanged`.
    #[must_use]
    pub const fn when(changed: bool) -> Self {
        if changed {
            Self::Changed
        } else {
            Self::Unchanged
        }
    }
}
