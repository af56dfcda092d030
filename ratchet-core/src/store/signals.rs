use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::JobId;
use crate::model::{Delivered, Signal};

/// Signals: what jobs wait for from outside.
///
/// A job waits for a signal from its enqueue on; nothing that came before counts. A store without
/// this power sees no such job: they are refused before.
///
/// # Contract
/// - **[signal.wait]** A job stored with a signal to wait for is `Blocked`, and never claimed,
///   until it has come and all its links are met. Its deadline is its timeout after the enqueue, on
///   the database's clock.
#[async_trait]
pub trait SignalStore: Debug + Send + Sync {
    /// Delivers a signal, to all it is for or, on an error, to none.
    ///
    /// # Contract
    /// - **[signal.deliver]** A job that waits for it, keeps its payload and the time; if it has no
    ///   open links it becomes `Pending` in the same write, due when it was or now, whichever is
    ///   later. A name reaches every job that waits for it, an id one.
    /// - **[signal.once]** A job has one signal: of several the first that came, however many are
    ///   delivered at once.
    /// - **[signal.late]** From its deadline on nothing is delivered to a job, nor once it has
    ///   ended.
    /// - **[signal.answer]** The answer says which jobs it reached, or why none; that is no error.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn deliver(&self, signal: &Signal) -> Result<Delivered>;

    /// Fails jobs whose signal did not come in time: the longest overdue first, up to `limit`.
    ///
    /// # Contract
    /// - **[signal.expire]** From its deadline on, and not before, a job that still waits becomes
    ///   `Failed` with [`SignalWait::missed`](crate::model::SignalWait::missed) as its error, no
    ///   attempt counted and none in its history. That is an end like any other: its key is freed,
    ///   it is counted in its batch, its children are decided. Of concurrent passes one fails it.
    ///   Answers which jobs failed, in order of id.
    /// - **[signal.limit]** At most `limit` jobs a pass, and no fewer while there are enough.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    async fn expire(&self, limit: usize) -> Result<Vec<JobId>>;
}
