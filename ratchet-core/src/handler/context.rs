use std::any::{TypeId, type_name};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::{Job, Requires, StateMap};
use crate::client::Client;
use crate::error::{InvalidInput, Result};
use crate::id::JobId;
use crate::json::{Json, misfit};
use crate::limits::MAX_MESSAGE_BYTES;
use crate::model::{Claim, Enqueued, NewJob, ReportKind, Reported};
use crate::name::Name;
use crate::priority::Priority;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// The context of a running body. It provides the job's data, the shared state, progress reports
/// and cancellation. Cloning is cheap.
///
/// ```
/// use ratchet::{JobContext, JobResult};
///
/// async fn import(rows: Vec<String>, ctx: JobContext) -> JobResult<usize> {
///     let done: usize = ctx.checkpoint()?.unwrap_or(0); // saved by an earlier attempt
///     for (row, text) in rows.iter().enumerate().skip(done) {
///         println!("attempt {} imports {text}", ctx.attempt());
///         ctx.save_checkpoint(&(row + 1)).await?;
///     }
///     ctx.progress(100, "imported");
///     Ok(rows.len())
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let job = ratchet::NewJob::new("import", &());
/// # let test = ratchet::testing::TestContext::of_job(&job).checkpoint(&1);
/// # let rows = vec!["Ada".to_owned(), "Bea".to_owned()];
/// # assert_eq!(import(rows, test.context()).await.unwrap(), 2);
/// # assert_eq!(test.saved_checkpoint(), Some(2));
/// # }
/// ```
#[derive(Clone)]
pub struct JobContext {
    parts: Arc<ContextParts>,
    /// A function that returns the state types that the job type declares. `None` if this context
    /// does not belong to a body, for example in a tower layer.
    requires: Option<fn() -> Requires>,
}

pub(crate) struct ContextParts {
    pub(crate) claim: Arc<Claim>,
    pub(crate) checkpoint: Option<Json>,
    pub(crate) state: Arc<StateMap>,
    pub(crate) cancel: CancelHandle,
    pub(crate) client: Client,
    pub(crate) reports: Arc<dyn ReportSink>,
}

/// Sends the reports of running bodies to the store.
#[async_trait]
pub(crate) trait ReportSink: Send + Sync {
    /// Queues a report. It is sent soon, in one call with other reports.
    fn queue(&self, claim: &Claim, kind: ReportKind);

    /// Sends a report immediately, and returns the store's answer.
    async fn send(&self, claim: &Claim, kind: ReportKind) -> Result<Reported>;
}

impl JobContext {
    pub(crate) fn new(parts: ContextParts) -> Self {
        Self {
            parts: Arc::new(parts),
            requires: None,
        }
    }

    /// Returns this context for a body of the job type `J`. The body may read only the state types
    /// that `J` declares.
    pub(crate) fn of<J: Job>(mut self) -> Self {
        self.requires = Some(J::requires);
        self
    }

    /// Returns the id of the job.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.parts.claim.token.job
    }

    /// Returns the kind of the job.
    #[must_use]
    pub fn kind(&self) -> &Name {
        &self.parts.claim.route.kind
    }

    /// Returns the queue of the job.
    #[must_use]
    pub fn queue(&self) -> &Name {
        &self.parts.claim.route.queue
    }

    /// Returns the lane of the job, or `None` if the job has no lane. A running job is the first
    /// unfinished job of its lane.
    #[must_use]
    pub fn lane(&self) -> Option<&Name> {
        self.parts.claim.lane.as_ref()
    }

    /// Returns the priority that is stored with the job. Aging does not change this priority.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.parts.claim.priority
    }

    /// Returns when the job became due, by the database's clock.
    #[must_use]
    pub fn run_at(&self) -> Timestamp {
        self.parts.claim.run_at
    }

    /// Returns the slot for which this job was created: one of the times in the schedule of a
    /// recurring definition. `None` if the job was not created for a slot, for example because it
    /// was [triggered](crate::client::RecurringClient::trigger).
    ///
    /// Unlike [`run_at`](Self::run_at), the slot is the same in all attempts.
    #[must_use]
    pub fn slot(&self) -> Option<Timestamp> {
        self.job_id().slot()
    }

    /// Returns the number of this attempt, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.parts.claim.attempts + 1
    }

    /// Returns whether this attempt is the last one that the retry policy allows.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.parts.claim.retry.is_exhausted(self.attempt())
    }

    /// Returns the trace context with which the job was enqueued. `None` if it was enqueued without
    /// a trace.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceContext> {
        self.parts.claim.trace.as_ref()
    }

    /// Returns the value of type `T` that the application gave to the node's builder.
    ///
    /// # Panics
    /// In a body, panics if the job type does not declare `T` in
    /// [`Job::requires`](super::Job::requires), even if the node has such a value. So the first run
    /// of the body reveals a missing declaration. The builder rejects a node that lacks a declared
    /// type.
    ///
    /// Outside of a body, panics if the node has no value of type `T`. A panic in a body or in a
    /// tower layer fails the attempt.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(&self) -> &T {
        if let Some(requires) = self.requires
            && !requires().types().any(|(id, _)| id == TypeId::of::<T>())
        {
            panic!(
                "job {} reads state of type {}, which it does not declare in Job::requires",
                self.kind(),
                type_name::<T>()
            );
        }
        match self.parts.state.get::<T>() {
            Some(value) => value,
            None => panic!(
                "the node has no state of type {}; add it with NodeBuilder::state",
                type_name::<T>()
            ),
        }
    }

    /// Enqueues another job. If `job` has no trace, it becomes part of the running job's trace.
    ///
    /// # Errors
    /// Fails in the same cases as [`Client::enqueue`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the job may or may not have been enqueued.
    pub async fn enqueue(&self, job: NewJob) -> Result<Enqueued> {
        #[cfg(not(feature = "otel"))]
        let trace = self.trace().cloned();
        // The current span is the span of this body. If this job has a trace, that span is part of
        // it.
        #[cfg(feature = "otel")]
        let trace = TraceContext::current().or_else(|| self.trace().cloned());
        let job = match trace {
            Some(trace) if job.spec().trace.is_none() => job.trace(trace),
            _ => job,
        };
        self.parts.client.enqueue(job).await
    }

    /// Returns the node's client, for operations that the context does not offer.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.parts.client
    }

    /// Reports the progress of the body in percent, with a message for operators. The latest report
    /// is sent within a second. A percentage above 100 counts as 100. A message longer than 1,024
    /// bytes is cut.
    pub fn progress(&self, percent: u8, message: impl Into<String>) {
        let mut message = message.into().replace('\0', "\u{fffd}");
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        let percent = percent.min(100);
        let progress = ReportKind::Progress { percent, message };
        self.parts.reports.queue(&self.parts.claim, progress);
    }

    /// Reports that the body is alive. If the job has a stall timeout, its body must report
    /// regularly. Reports of progress and checkpoints count too.
    pub fn heartbeat(&self) {
        self.parts
            .reports
            .queue(&self.parts.claim, ReportKind::Alive);
    }

    /// Saves the state from which the next attempt should continue. When this method returns `Ok`,
    /// the checkpoint is durable, unless the node has lost the claim. In that case the checkpoint
    /// is not saved, and [`cancelled`](Self::cancelled) reports the loss.
    ///
    /// # Errors
    /// Fails if the value does not serialize or is larger than 64 KiB, or if the store fails.
    pub async fn save_checkpoint<T: Serialize + Sync + ?Sized>(&self, value: &T) -> Result<()> {
        let checkpoint = Json::encode("checkpoint", value)?;
        let report = ReportKind::Checkpoint(checkpoint);
        let reported = self.parts.reports.send(&self.parts.claim, report).await?;
        match reported {
            Reported::Applied {
                cancel_requested: false,
            } => {}
            Reported::Applied {
                cancel_requested: true,
            } => self.parts.cancel.cancel(CancelReason::Requested),
            Reported::Stale => self.parts.cancel.cancel(CancelReason::ClaimLost),
        }
        Ok(())
    }

    /// Returns the last checkpoint that was saved before this body began. `None` if no earlier
    /// attempt saved a checkpoint.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the checkpoint does not decode into a `T`.
    pub fn checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, InvalidInput> {
        let decode = |json: &Json| {
            json.decode().map_err(|error| {
                InvalidInput::new("checkpoint", format!("does not decode: {}", misfit(&error)))
            })
        };
        self.parts.checkpoint.as_ref().map(decode).transpose()
    }

    /// Waits until the body should stop, and returns the reason. [`CancelReason`] lists the
    /// reasons.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn cancelled(&self) -> CancelReason {
        self.parts.cancel.cancelled().await
    }

    /// Waits until the body should stop for a more severe reason than `reason`, and returns that
    /// reason. Use this method in a body that continues after [`CancelReason::SoftTimeout`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn cancelled_beyond(&self, reason: CancelReason) -> CancelReason {
        self.parts.cancel.reached(|reached| reached > reason).await
    }

    /// Returns the reason why the body should stop. `None` if the body should continue.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.parts.cancel.reason()
    }
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("token", &self.parts.claim.token)
            .field("kind", self.kind())
            .finish_non_exhaustive()
    }
}

/// The reason why a body should stop. The reasons are ordered by severity, and a more severe reason
/// replaces a less severe one.
///
/// ```
/// use ratchet::{CancelReason, JobContext, JobError, JobResult};
///
/// async fn body(ctx: JobContext) -> JobResult {
///     let reason = ctx.cancelled().await;
///     match reason {
///         CancelReason::Shutdown => println!("another node continues"),
///         reason => println!("stops because of {reason:?}"),
///     }
///     Err(JobError::from("stopped"))
/// }
/// # let _ = body;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum CancelReason {
    /// 80 % of the job's timeout have passed. The body is dropped when the whole timeout has
    /// passed.
    SoftTimeout = 1,
    /// A client cancelled the job. The job ends cancelled, even if the body succeeds.
    Requested = 2,
    /// The node shuts down. The node drops bodies that do not end in time. It hands their jobs
    /// back, so that other nodes can run them.
    Shutdown = 3,
    /// The node lost its claim of the job. All later reports of the body, and its result, have no
    /// effect.
    ClaimLost = 4,
}

impl CancelReason {
    const ALL: [Self; 4] = [
        Self::SoftTimeout,
        Self::Requested,
        Self::Shutdown,
        Self::ClaimLost,
    ];
}

/// Stores the reason why a body should stop, and notifies the tasks that wait for a reason. The
/// [`Notify`] is created only when a task waits.
#[derive(Clone, Default)]
pub(crate) struct CancelHandle(Arc<CancelState>);

#[derive(Default)]
struct CancelState {
    reason: AtomicU8,
    waiters: OnceLock<Notify>,
}

impl CancelHandle {
    /// Sets the reason why the body should stop, unless a more severe reason is already set.
    pub(crate) fn cancel(&self, reason: CancelReason) {
        self.0.reason.fetch_max(reason as u8, Ordering::SeqCst);
        if let Some(waiters) = self.0.waiters.get() {
            waiters.notify_waiters();
        }
    }

    pub(crate) fn reason(&self) -> Option<CancelReason> {
        let code = usize::from(self.0.reason.load(Ordering::SeqCst));
        CancelReason::ALL.get(code.checked_sub(1)?).copied()
    }

    /// Waits until a reason to stop is set, and returns the reason.
    pub(crate) async fn cancelled(&self) -> CancelReason {
        self.reached(|_| true).await
    }

    /// Waits until a reason is set that is at least as severe as `gravity`.
    pub(crate) async fn at_least(&self, gravity: CancelReason) {
        self.reached(|reason| reason >= gravity).await;
    }

    async fn reached(&self, enough: impl Fn(CancelReason) -> bool) -> CancelReason {
        let waiters = self.0.waiters.get_or_init(Notify::new);
        loop {
            let notified = waiters.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some(reason) = self.reason().filter(|reason| enough(*reason)) {
                return reason;
            }
            notified.await;
        }
    }
}

/// Returns the soft timeout: 80 % of `timeout`. After this time, the body receives
/// [`CancelReason::SoftTimeout`].
pub(crate) fn soft_timeout(timeout: Duration) -> Duration {
    timeout.mul_f64(0.8)
}
