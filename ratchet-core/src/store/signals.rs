use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::JobId;
use crate::model::{Delivered, Signal};

/// Delivers signals: external events that jobs wait for.
///
/// A job waits for its signal from the time it is enqueued. Earlier signals do not count. A
/// store without this part never receives a job that waits for a signal, because the
/// [door](super::Checked) refuses such jobs.
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
    /// - **[signal.deliver]** The call stores the signal's payload and the time of the delivery
    ///   with each job that waits for the signal. If the job has no open links, the same write
    ///   makes it `Pending`, due at its `run_at` or now, whichever is later. A signal to a name
    ///   reaches every job that waits for the name. A signal to a job id reaches only that job.
    /// - **[signal.once]** A job receives only one signal: the first that is delivered, even if
    ///   several are delivered at the same time.
    /// - **[signal.late]** A job receives no signal once its deadline has come or it has ended.
    /// - **[signal.answer]** The answer lists the jobs that the signal reached, or contains the
    ///   reason why it reached no job. Reaching no job is not an error.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn deliver(&self, signal: &Signal) -> Result<Delivered>;

    /// Fails jobs whose signal did not come before the deadline: up to `limit` jobs, the longest
    /// overdue first.
    ///
    /// # Contract
    /// - **[signal.expire]** A job that still waits at its deadline, and not before, becomes
    ///   `Failed` with the error [`SignalWait::missed`](crate::model::SignalWait::missed). No
    ///   attempt is counted or added to the job's history. As for any other end, the unique key is
    ///   freed, the batch counts the job, and the links on the job are decided. Of concurrent
    ///   calls, only one fails the job. Each call returns the jobs that it failed, in order of id.
    /// - **[signal.limit]** A call fails at most `limit` jobs, and fewer only if fewer jobs are
    ///   overdue.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn expire(&self, limit: usize) -> Result<Vec<JobId>>;
}
