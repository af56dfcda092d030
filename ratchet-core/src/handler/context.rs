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

/// The context of a running body: its job, the shared state, progress and cancellation. Cheap to
/// clone.
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
    /// Returns the state that the job's type declares. `None` outside of a body.
    requires: Option<fn() -> Requires>,
}

/// The parts of a context.
pub(crate) struct ContextParts {
    pub(crate) claim: Arc<Claim>,
    pub(crate) checkpoint: Option<Json>,
    pub(crate) state: Arc<StateMap>,
    pub(crate) cancel: CancelHandle,
    pub(crate) client: Client,
    pub(crate) reports: Arc<dyn ReportSink>,
}

/// Receives the reports of a running body.
#[async_trait]
pub(crate) trait ReportSink: Send + Sync {
    /// Queues a report, which is soon sent together with other reports.
    fn queue(&self, claim: &Claim, kind: ReportKind);

    /// Sends a report now.
    async fn send(&self, claim: &Claim, kind: ReportKind) -> Result<Reported>;
}

impl JobContext {
    pub(crate) fn new(parts: ContextParts) -> Self {
        Self {
            parts: Arc::new(parts),
            requires: None,
        }
    }

    /// Returns the context for a body of this type.
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

    /// Returns the lane of the job. The running job is the head of its lane. `None` if the job has
    /// no lane.
    #[must_use]
    pub fn lane(&self) -> Option<&Name> {
        self.parts.claim.lane.as_ref()
    }

    /// Returns the stored priority of the job.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.parts.claim.priority
    }

    /// Returns when the job became due, by the database's clock.
    #[must_use]
    pub fn run_at(&self) -> Timestamp {
        self.parts.claim.run_at
    }

    /// Returns the slot for which a recurring definition made this job. `None` for every other job,
    /// including a job that was [triggered](crate::client::RecurringClient::trigger).
    ///
    /// Unlike [`run_at`](Self::run_at), the slot stays the same through all attempts.
    #[must_use]
    pub fn slot(&self) -> Option<Timestamp> {
        self.job_id().slot()
    }

    /// Returns the number of this attempt, 1 for the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.parts.claim.attempts + 1
    }

    /// Returns whether the retry policy allows no further attempt after this one.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.parts.claim.retry.is_exhausted(self.attempt())
    }

    /// Returns the trace in which the job was enqueued.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceContext> {
        self.parts.claim.trace.as_ref()
    }

    /// Returns the shared value of type `T` that was given to the node's builder.
    ///
    /// # Panics
    /// Panics in a body if its job does not declare the type in
    /// [`Job::requires`](super::Job::requires), whether or not the node has the value. So the first
    /// run of a body reveals a missing declaration. A node that lacks a declared type does not
    /// build. Panics anywhere if the node has no value of the type. A panic fails the attempt.
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
                "no state of type {} was given to the node",
                type_name::<T>()
            ),
        }
    }

    /// Enqueues another job. If the new job has no trace, it gets the trace of this job.
    ///
    /// # Errors
    /// As for [`Client::enqueue`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the job may or may not have been enqueued.
    pub async fn enqueue(&self, job: NewJob) -> Result<Enqueued> {
        #[cfg(not(feature = "otel"))]
        let trace = self.trace().cloned();
        // If this job has a trace, the span of its body belongs to that trace.
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

    /// Reports the progress of the body, 0 to 100, for display to operators. The latest report is
    /// sent within a second. A value over 100 counts as 100, and the message is cut to 1,024 bytes.
    pub fn progress(&self, percent: u8, message: impl Into<String>) {
        let mut message = message.into().replace('\0', "\u{fffd}");
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        let percent = percent.min(100);
        let progress = ReportKind::Progress { percent, message };
        self.parts.reports.queue(&self.parts.claim, progress);
    }

    /// Reports that the body is alive. A job with a stall timeout needs such reports.
    pub fn heartbeat(&self) {
        self.parts
            .reports
            .queue(&self.parts.claim, ReportKind::Alive);
    }

    /// Saves the state from which the next attempt should start. The checkpoint is durable when
    /// this method returns.
    ///
    /// # Errors
    /// If the value does not serialize or is larger than 64 KiB, or if the store fails. A lost
    /// claim is not an error here; [`cancelled`](Self::cancelled) reports it.
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

    /// Returns the last checkpoint that was saved before this body began.
    ///
    /// # Errors
    /// [`InvalidInput`] if the checkpoint does not decode into a `T`.
    pub fn checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, InvalidInput> {
        let decode = |json: &Json| {
            json.decode().map_err(|error| {
                InvalidInput::new("checkpoint", format!("does not decode: {}", misfit(&error)))
            })
        };
        self.parts.checkpoint.as_ref().map(decode).transpose()
    }

    /// Waits until the body should stop, and returns the reason; see [`CancelReason`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn cancelled(&self) -> CancelReason {
        self.parts.cancel.cancelled().await
    }

    /// Waits until there is a graver reason to stop than `reason`, and returns that graver reason.
    /// For bodies that continue after [`CancelReason::SoftTimeout`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn cancelled_beyond(&self, reason: CancelReason) -> CancelReason {
        self.parts.cancel.reached(|reached| reached > reason).await
    }

    /// Returns why the body should stop. `None` if it should not.
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

/// Why a body should stop, in order of gravity. A graver reason replaces a lesser one.
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
    /// 80 % of the job's timeout have passed. At 100 % the body is dropped.
    SoftTimeout = 1,
    /// A client cancelled the job. Whatever the body returns, the job ends cancelled.
    Requested = 2,
    /// The node shuts down. Bodies that do not end soon are dropped, and their jobs are handed
    /// back.
    Shutdown = 3,
    /// The node lost its claim of the job. Nothing that the body still reports takes effect.
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

/// Asks a body to stop. The [`Notify`] is created only when something waits for it.
#[derive(Clone, Default)]
pub(crate) struct CancelHandle(Arc<CancelState>);

#[derive(Default)]
struct CancelState {
    reason: AtomicU8,
    waiters: OnceLock<Notify>,
}

impl CancelHandle {
    /// Sets the reason. A later reason replaces an earlier one only if it is graver.
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

    /// Waits for any reason.
    pub(crate) async fn cancelled(&self) -> CancelReason {
        self.reached(|_| true).await
    }

    /// Waits for a reason that is at least as grave as `gravity`.
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

/// Returns the soft timeout, at which the body is warned: 80 % of `timeout`.
pub(crate) fn soft_timeout(timeout: Duration) -> Duration {
    timeout.mul_f64(0.8)
}
