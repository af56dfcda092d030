use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::JobId;
use crate::model::{Delivered, Signal};

/// Signals: external events that jobs wait for.
///
/// A job waits for its signal from its enqueue on; signals sent earlier do not count. A store
/// without this part never receives a job that waits for a signal, because the door refuses such
/// jobs.
///
/// # Contract
/// - **[signal.wait]** A job that is stored with a signal to wait for is `Blocked`, and never
///   claimed, until the signal has come and all links of the job are met. The deadline is the time
///   of the enqueue plus the timeout of the wait, on the database's clock.
#[async_trait]
pub trait SignalStore: Debug + Send + Sync {
    /// Delivers a signal to all its targets or, on an error, to none.
    ///
    /// # Contract
    /// - **[signal.deliver]** A job that waits for the signal stores its payload and the time of
    ///   the delivery. If the job has no open links, the same write makes it `Pending`, due at its
    ///   `run_at` or now, whichever is later. A signal to a name reaches every job that waits for
    ///   the name; a signal to an id reaches only that job.
    /// - **[signal.once]** A job receives only one signal: the first that comes, however many are
    ///   delivered at once.
    /// - **[signal.late]** A job receives no signal once its deadline has come or it has ended.
    /// - **[signal.answer]** The answer lists the jobs that the signal reached, or says why it
    ///   reached none. Reaching no job is not an error.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn deliver(&self, signal: &Signal) -> Result<Delivered>;

    /// Fails jobs whose signal did not come in time: the longest overdue first, up to `limit`.
    ///
    /// # Contract
    /// - **[signal.expire]** A job that still waits at its deadline, and not before, becomes
    ///   `Failed` with [`SignalWait::missed`](crate::model::SignalWait::missed) as its error, no
    ///   attempt counted and no attempt in its history. This is an end like any other: its unique
    ///   key is freed, its batch counts it, and the links on it are decided. Of concurrent passes
    ///   only one fails the job, and each returns the jobs that it failed, in order of id.
    /// - **[signal.limit]** A pass fails at most `limit` jobs, and no fewer while that many are
    ///   overdue.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn expire(&self, limit: usize) -> Result<Vec<JobId>>;
}
