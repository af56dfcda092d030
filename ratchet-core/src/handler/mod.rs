//! Handlers: the application's code for each kind of job.

mod context;
mod error;
#[cfg(feature = "tower")]
mod layers;
mod parents;
mod registry;

use std::any::{TypeId, type_name};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use context::{CancelReason, JobContext};
pub use error::{BoxError, JobError, JobResult, Verdict};

#[cfg(feature = "tower")]
pub(crate) use layers::Layers;
#[cfg(feature = "tower")]
pub use layers::{JobLayer, JobRequest, JobResponse, JobService, ServiceError};
pub use parents::{ParentBatch, ParentJob};

pub(crate) use context::{CancelHandle, ContextParts, ReportSink, soft_timeout};
pub(crate) use registry::decode;
pub(crate) use registry::{Registry, StateMap};

use crate::model::NewJob;

/// A kind of job and the code that runs it. The fields of the type are the job's arguments. They
/// are stored as JSON.
///
/// ```
/// use ratchet::{Job, JobContext, JobResult};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Greet {
///     name: String,
/// }
///
/// impl Job for Greet {
///     const KIND: &'static str = "greet";
///     type Output = String;
///
///     async fn run(self, ctx: JobContext) -> JobResult<String> {
///         Ok(format!("Hello {}, attempt {}", self.name, ctx.attempt()))
///     }
/// }
///
/// let job = Greet { name: "Ada".into() }.into_job().queue("mail");
/// # assert!(job.validate().is_ok());
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The name under which jobs of this type are stored. If you change it, add the old name to the
    /// [`ALIASES`](Self::ALIASES).
    const KIND: &'static str;

    /// Earlier names of this job type. Jobs that are stored under an earlier name run too, and
    /// belong to the same [pools](crate::Pool) of a node as jobs of this kind. New jobs are stored
    /// under [`KIND`](Self::KIND).
    ///
    /// The builder rejects a node if two job types use the same name, or if one type uses a name
    /// twice. During a deploy, only nodes of the new release run jobs with the new name.
    ///
    /// ```
    /// # use ratchet::{Job, JobContext, JobResult};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct ResizeImage;
    /// impl Job for ResizeImage {
    ///     const KIND: &'static str = "resize_image";
    ///     const ALIASES: &'static [&'static str] = &["resize"];
    ///     # type Output = ();
    ///     # async fn run(self, _ctx: JobContext) -> JobResult<()> { Ok(()) }
    /// }
    /// ```
    const ALIASES: &'static [&'static str] = &[];

    /// The version of the payload's format, at least 1. It is stored with each job.
    ///
    /// Increase the version if you change the format in such a way that stored payloads no longer
    /// decode. If you change [`KIND`](Self::KIND), do not reset the version to 1.
    ///
    /// Before a job with an older payload runs, [`upcast`](Self::upcast) converts the payload. A
    /// job with a newer payload comes from a node of a later release, and only such a node can run
    /// it. Other nodes snooze the job: for one second at first, and later for up to one minute.
    /// Snoozing uses no attempt and never fails the job.
    const VERSION: u32 = 1;

    /// The type of the result of a successful body. A result may have up to 64 KiB of JSON. It is
    /// stored with the job, unless it serializes to `null`, as `()` does.
    type Output: Serialize + Send;

    /// Runs the job.
    ///
    /// The body may run more than once, because delivery is at least once. Make its effects safe to
    /// repeat. Progress and checkpoints that the body reports through `ctx` are written only while
    /// its claim is valid.
    ///
    /// If the body panics or returns an `Err`, the attempt failed, and the retry policy decides
    /// whether another attempt follows. Errors that [`JobError::snooze`], [`JobError::discard`] or
    /// [`JobError::cancel`] created have other effects.
    ///
    /// # Cancel safety
    /// The node drops the future when the timeout or the stall timeout of the job has passed, when
    /// the node loses the claim, or at the end of a drain.
    fn run(self, ctx: JobContext) -> impl Future<Output = JobResult<Self::Output>> + Send;

    /// Converts the payload of a stored job from an older `version` to [`VERSION`](Self::VERSION).
    ///
    /// The engine calls this function each time that a job with an older payload is about to run.
    /// The function must apply all changes of the format since `version`. The stored payload is not
    /// changed.
    ///
    /// ```
    /// # use ratchet::{BoxError, Job, JobContext, JobResult};
    /// use serde_json::{Value, json};
    /// # use serde::{Deserialize, Serialize};
    ///
    /// /// 1 was `{"path": …, "size": "640x480"}`, 2 had width and height, 3 names the file `source`.
    /// #[derive(Serialize, Deserialize)]
    /// struct Resize {
    ///     source: String,
    ///     width: u32,
    ///     height: u32,
    /// }
    ///
    /// impl Job for Resize {
    ///     const KIND: &'static str = "resize";
    ///     const VERSION: u32 = 3;
    ///     # type Output = ();
    ///
    ///     fn upcast(version: u32, mut payload: Value) -> Result<Value, BoxError> {
    ///         if version < 2 {
    ///             let size = payload["size"].as_str().ok_or("there is no size")?;
    ///             let (width, height) = size.split_once('x').ok_or("the size has no x")?;
    ///             let (width, height): (u32, u32) = (width.parse()?, height.parse()?);
    ///             payload["width"] = json!(width);
    ///             payload["height"] = json!(height);
    ///         }
    ///         if version < 3 {
    ///             payload["source"] = payload["path"].take();
    ///         }
    ///         Ok(payload)
    ///     }
    ///     # async fn run(self, _ctx: JobContext) -> JobResult<()> { Ok(()) }
    /// }
    ///
    /// let stored = json!({"path": "cat.png", "size": "640x480"});
    /// let now: Resize = serde_json::from_value(Resize::upcast(1, stored)?)?;
    /// assert_eq!((now.source.as_str(), now.width, now.height), ("cat.png", 640, 480));
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    /// If the function returns an error, the job becomes a dead letter at once, without using an
    /// attempt. This also happens to a job whose payload does not decode. Such a job can be
    /// requeued after `upcast` is fixed. The default implementation always returns an error.
    fn upcast(version: u32, payload: serde_json::Value) -> Result<serde_json::Value, BoxError> {
        let _ = payload;
        Err(format!(
            "{} has no upcast from payload version {version}",
            type_name::<Self>()
        )
        .into())
    }

    /// Returns the types of the shared state that the body reads with [`JobContext::state`]. The
    /// builder rejects a node that has no value for one of these types.
    #[must_use]
    fn requires() -> Requires {
        Requires::nothing()
    }

    /// Applies to `job` the settings that all jobs of this kind share, such as the queue, the retry
    /// policy and the timeouts.
    #[must_use]
    fn defaults(job: NewJob) -> NewJob {
        job
    }

    /// Adds the settings that depend on this job's arguments, such as its lane, keys, tags or
    /// priority. [`into_job`](Self::into_job) calls this method after [`defaults`](Self::defaults),
    /// so callers cannot forget these settings.
    ///
    /// ```
    /// # use ratchet::{Job, JobContext, JobResult, NewJob};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Charge {
    ///     order: u64,
    ///     customer: String,
    /// }
    ///
    /// impl Job for Charge {
    ///     const KIND: &'static str = "charge";
    ///     # type Output = ();
    ///
    ///     fn configure(&self, job: NewJob) -> NewJob {
    ///         // One at a time for each customer, in the order of the enqueues; each order once.
    ///         job.lane(&self.customer).idempotency_key(&format!("charge:{}", self.order))
    ///     }
    ///     # async fn run(self, _ctx: JobContext) -> JobResult<()> { Ok(()) }
    /// }
    ///
    /// let job = Charge { order: 7, customer: "ada".into() }.into_job();
    /// assert_eq!(job.spec().lane.as_ref().unwrap(), "ada");
    /// ```
    #[must_use]
    fn configure(&self, job: NewJob) -> NewJob {
        job
    }

    /// Converts the arguments into a job that can be enqueued, with the settings of
    /// [`defaults`](Self::defaults) and [`configure`](Self::configure).
    #[must_use]
    fn into_job(self) -> NewJob {
        let job = NewJob::new(Self::KIND, &self).payload_version(Self::VERSION);
        self.configure(Self::defaults(job))
    }
}

/// The types of shared state that the bodies of a job type read.
///
/// ```
/// # struct Pool; struct Mailer;
/// use ratchet::Requires;
///
/// let requires = Requires::nothing().state::<Pool>().state::<Mailer>();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Requires(Vec<(TypeId, &'static str)>);

impl Requires {
    /// Creates an empty list of required types.
    #[must_use]
    pub const fn nothing() -> Self {
        Self(Vec::new())
    }

    /// Adds the type `T` to the required types.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self) -> Self {
        self.0.push((TypeId::of::<T>(), type_name::<T>()));
        self
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = (TypeId, &'static str)> + '_ {
        self.0.iter().copied()
    }
}
