use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::Result;
use crate::handler::{
    CancelHandle, CancelReason, ContextParts, Job, JobContext, JobError, JobResult, ReportSink,
    StateMap, decode,
};
use crate::json::Json;
use crate::limits::MAX_RESULT_BYTES;
use crate::memory::MemoryStore;
use crate::model::{Claim, JobRecord, NewJob, Progress, Report, ReportKind, Reported};
use crate::time;

/// Creates [`JobContext`]s for a test of a body, and records the reports of the body.
///
/// The contexts belong to a job that is not stored. No timeout applies to the body. The reports of
/// the body are recorded in this value and not in a store. If the test sets no other client, the
/// body enqueues into an empty memory store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
/// use ratchet::testing::{TestContext, assert_enqueued};
/// use ratchet::{CancelReason, Job, JobContext, JobResult};
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Import {
///     rows: u32,
/// }
///
/// impl Job for Import {
///     const KIND: &'static str = "import";
///     type Output = u32;
///
///     async fn run(self, ctx: JobContext) -> JobResult<u32> {
///         let done: u32 = ctx.checkpoint()?.unwrap_or(0);
///         if ctx.cancel_reason().is_some() {
///             ctx.enqueue(Self { rows: self.rows - done }.into_job()).await?;
///             return Ok(done);
///         }
///         ctx.progress(100, "imported");
///         ctx.save_checkpoint(&self.rows).await?;
///         Ok(self.rows)
///     }
/// }
///
/// let test = TestContext::of::<Import>();
/// assert_eq!(Import { rows: 7 }.run(test.context()).await.unwrap(), 7);
/// assert_eq!(test.progress().unwrap().message, "imported");
/// assert_eq!(test.saved_checkpoint(), Some(7));
///
/// let test = TestContext::of::<Import>().checkpoint(&2);
/// test.cancel(CancelReason::Shutdown);
/// assert_eq!(Import { rows: 7 }.run(test.context()).await.unwrap(), 2);
/// assert_enqueued!(test, Import { rows: 5 });
/// # Ok(()) }
/// ```
pub struct TestContext {
    claim: Arc<Claim>,
    checkpoint: Option<Json>,
    state: Arc<StateMap>,
    client: Client,
    cancel: CancelHandle,
    said: Arc<Said>,
}

/// The reports of a body.
#[derive(Default)]
struct Said {
    words: Mutex<Words>,
    cancel: CancelHandle,
}

#[derive(Default)]
struct Words {
    progress: Option<Progress>,
    checkpoint: Option<Json>,
    heartbeats: usize,
}

impl TestContext {
    /// Creates a context for a job of the type `J` with its [defaults](Job::defaults), at its first
    /// attempt. To include the settings of [`Job::configure`], use [`of_job`](Self::of_job) with
    /// `job.into_job()`.
    #[must_use]
    pub fn of<J: Job>() -> Self {
        Self::of_job(&J::defaults(NewJob::new(J::KIND, &())))
    }

    /// Creates a context for `job`, at its first attempt.
    #[must_use]
    pub fn of_job(job: &NewJob) -> Self {
        let now = time::wall_clock();
        let due = time::from_millis(job.due().resolve(time::to_millis(now)));
        let mut record = JobRecord::new(job.id(), job.spec().clone(), due, now);
        record.claim_seq = 1;
        let cancel = CancelHandle::default();
        Self {
            claim: Arc::new(Claim::of(&record)),
            checkpoint: None,
            state: Arc::default(),
            client: Client::new(Arc::new(MemoryStore::new())),
            said: Arc::new(Said {
                words: Mutex::default(),
                cancel: cancel.clone(),
            }),
            cancel,
        }
    }

    /// Adds a value to the state that the body can read, as
    /// [`NodeBuilder::state`](crate::NodeBuilder::state) does.
    ///
    /// # Panics
    /// If [`context`](Self::context) was already called.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        match Arc::get_mut(&mut self.state) {
            Some(state) => state.insert(value),
            None => panic!("`state` must be called before the first context is created"),
        }
        self
    }

    /// Sets the number of the attempt. The first attempt has the number 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        let claim = Arc::make_mut(&mut self.claim);
        claim.attempts = attempt.saturating_sub(1);
        claim.token.seq = u64::from(attempt.max(1));
        self
    }

    /// Sets the checkpoint that the body reads, as if an earlier attempt had saved it.
    ///
    /// # Panics
    /// If the value does not serialize.
    #[must_use]
    pub fn checkpoint<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        match Json::encode("checkpoint", value) {
            Ok(json) => self.checkpoint = Some(json),
            Err(problem) => panic!("{problem}"),
        }
        self
    }

    /// Sets the client with which the body enqueues and reads jobs.
    #[must_use]
    pub fn with_client(mut self, client: &Client) -> Self {
        self.client = client.clone();
        self
    }

    /// Returns a context for a body. All contexts of one test belong to the same job.
    #[must_use]
    pub fn context(&self) -> JobContext {
        JobContext::new(ContextParts {
            claim: Arc::clone(&self.claim),
            checkpoint: self.checkpoint.clone(),
            state: Arc::clone(&self.state),
            cancel: self.cancel.clone(),
            client: self.client.clone(),
            reports: Arc::clone(&self.said) as Arc<dyn ReportSink>,
        })
    }

    /// Asks the body to stop for this reason, as the engine does.
    pub fn cancel(&self, reason: CancelReason) {
        self.cancel.cancel(reason);
    }

    /// Returns the progress that the body reported last. `None` if it reported no progress.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.said.words().progress.clone()
    }

    /// Returns the checkpoint that the body saved last. `None` if the body saved none, or if the
    /// checkpoint does not decode as a `T`.
    #[must_use]
    pub fn saved_checkpoint<T: DeserializeOwned>(&self) -> Option<T> {
        let json = self.said.words().checkpoint.clone();
        json.and_then(|json| json.decode().ok())
    }

    /// Returns the number of times that the body called [`JobContext::heartbeat`].
    #[must_use]
    pub fn heartbeats(&self) -> usize {
        self.said.words().heartbeats
    }

    /// Returns the client of the contexts. Use it to read the jobs that the body enqueued.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

impl fmt::Debug for TestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestContext")
            .field("claim", &self.claim)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Said {
    fn words(&self) -> MutexGuard<'_, Words> {
        self.words
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    fn keep(&self, kind: ReportKind) {
        let mut words = self.words();
        match kind {
            ReportKind::Alive => words.heartbeats += 1,
            ReportKind::Progress { percent, message } => {
                words.progress = Some(Progress { percent, message });
            }
            ReportKind::Checkpoint(checkpoint) => words.checkpoint = Some(checkpoint),
        }
    }
}

#[async_trait]
impl ReportSink for Said {
    fn queue(&self, _claim: &Claim, kind: ReportKind) {
        self.keep(kind);
    }

    async fn send(&self, claim: &Claim, kind: ReportKind) -> Result<Reported> {
        let report = [Report::new(claim.token, kind)];
        Report::validate_all(&report)?;
        let reason = self.cancel.reason();
        if reason == Some(CancelReason::ClaimLost) {
            return Ok(Reported::Stale);
        }
        let [report] = report;
        self.keep(report.kind);
        Ok(Reported::Applied {
            cancel_requested: reason == Some(CancelReason::Requested),
        })
    }
}

/// Runs the body of one job, without storing the job and without an engine, to test the body
/// itself.
///
/// The function first encodes and decodes the job, as if the job had been stored. It checks the
/// result of the body as the engine does. So a payload or a result that cannot be stored fails the
/// test. A panic of the body is a panic of the test. To test timeouts, retries, layers or hooks
/// too, use [`run_job`](super::run_job).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use ratchet::testing::perform;
/// use ratchet::{Job, JobContext, JobError, JobResult, Requires, Verdict};
/// # use serde::{Deserialize, Serialize};
///
/// struct Rate(u64);
///
/// #[derive(Serialize, Deserialize)]
/// struct Charge {
///     hours: u64,
/// }
///
/// impl Job for Charge {
///     const KIND: &'static str = "charge";
///     type Output = u64;
///
///     fn requires() -> Requires {
///         Requires::nothing().state::<Rate>()
///     }
///
///     async fn run(self, ctx: JobContext) -> JobResult<u64> {
///         match ctx.state::<Rate>().0 {
///             0 => Err(JobError::snooze(Duration::from_secs(60))),
///             rate => Ok(self.hours * rate),
///         }
///     }
/// }
///
/// let charged = perform(Charge { hours: 3 }).state(Rate(50)).await;
/// assert_eq!(charged.unwrap(), 150);
///
/// let put_off = perform(Charge { hours: 3 }).state(Rate(0)).await.unwrap_err();
/// assert_eq!(put_off.verdict(), Verdict::Snooze(Duration::from_secs(60)));
/// # }
/// ```
///
/// # Panics
/// If the job is invalid and could not be enqueued. Awaiting the returned value panics if state
/// that the job [requires](Job::requires) is missing.
#[track_caller]
pub fn perform<J: Job>(job: J) -> Perform<J> {
    let job = job.into_job();
    if let Err(problem) = job.validate() {
        panic!(
            "the job {} would be refused by an enqueue: {problem}",
            J::KIND
        );
    }
    Perform {
        test: TestContext::of_job(&job),
        job,
        of: PhantomData,
    }
}

/// A body that runs when this value is awaited; see [`perform`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use ratchet::testing::perform;
/// # use ratchet::{Job, JobContext, JobResult};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Greet { name: String }
/// # impl Job for Greet {
/// #     const KIND: &'static str = "greet";
/// #     type Output = String;
/// #     async fn run(self, ctx: JobContext) -> JobResult<String> {
/// #         Ok(format!("Hello {}, attempt {}", self.name, ctx.attempt()))
/// #     }
/// # }
///
/// let greeting = perform(Greet { name: "Ada".into() }).attempt(2).await;
/// assert_eq!(greeting.unwrap(), "Hello Ada, attempt 2");
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the job does not run until the value is awaited"]
pub struct Perform<J> {
    job: NewJob,
    test: TestContext,
    of: PhantomData<fn() -> J>,
}

impl<J: Job> Perform<J> {
    /// Adds a value to the state that the body can read.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.test = self.test.state(value);
        self
    }

    /// Sets the number of the attempt. The first attempt has the number 1.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.test = self.test.attempt(attempt);
        self
    }

    /// Sets the checkpoint that the body reads, as if an earlier attempt had saved it.
    pub fn checkpoint<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        self.test = self.test.checkpoint(value);
        self
    }

    /// Sets the client with which the body enqueues and reads jobs. The test can then read the jobs
    /// that the body enqueued from the client's store.
    pub fn with_client(mut self, client: &Client) -> Self {
        self.test = self.test.with_client(client);
        self
    }
}

impl<J: Job> IntoFuture for Perform<J> {
    type Output = JobResult<J::Output>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let lacks = self.test.state.lacks(&J::requires());
            assert!(
                lacks.is_empty(),
                "the job {} needs state of type {}",
                J::KIND,
                lacks.join(", ")
            );
            let spec = self.job.spec();
            let job: J = decode(&spec.payload, spec.payload_version).map_err(JobError::discard)?;
            let output = job.run(self.test.context().of::<J>()).await?;
            Json::encode("result", &output)
                .and_then(|json| json.check_size("result", MAX_RESULT_BYTES))
                .map_err(JobError::discard)?;
            Ok(output)
        })
    }
}
