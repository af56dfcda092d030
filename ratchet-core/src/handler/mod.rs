//! Handlers: the user's code for a kind of job.

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

/// A kind of job and the code that runs it: the fields are the arguments, stored as JSON.
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
    /// The name under which jobs of this type are stored. If you change it, keep the old one
    /// among the [`ALIASES`](Self::ALIASES).
    const KIND: &'static str;

    /// Names that jobs of this type were stored under before: those jobs run too, and count as this
    /// kind for the [pools](crate::Pool) of a node. New jobs are stored under [`KIND`](Self::KIND).
    ///
    /// A node whose types claim one name twice does not build. While a deploy goes on, nodes that
    /// do not know the new name yet leave its jobs to those that do.
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

    /// Which form the payload has, at least 1: stored with each job, and raised when the form
    /// changes so that what is stored does not decode any more. A new name does not begin a new
    /// count.
    ///
    /// An older payload goes through [`upcast`](Self::upcast) first. A newer one, which a node of
    /// the next release has enqueued, is left to such a node: it is put off, at first for a second
    /// and by and by for up to a minute, at no attempt, and never failed.
    const VERSION: u32 = 1;

    /// The result of a successful body. It is stored with the job unless it serializes to `null`, as
    /// `()` does. At most 64 KiB of JSON.
    type Output: Serialize + Send;

    /// The body. It may run more than once (delivery is at least once), so its effects should bear
    /// repetition; what it writes through the context is fenced.
    ///
    /// An `Err` is a failed attempt, unless it was made by [`JobError::snooze`],
    /// [`JobError::discard`] or [`JobError::cancel`]. A panic is a failed attempt too.
    ///
    /// # Cancel safety
    /// The future is dropped at its hard timeout, when its claim is lost, and at the end of a
    /// drain.
    fn run(self, ctx: JobContext) -> impl Future<Output = JobResult<Self::Output>> + Send;

    /// Brings the payload of a stored job from an older `version` up to [`VERSION`](Self::VERSION).
    /// It is called once for each time that such a job is about to run, with the version that is
    /// stored, so it goes through all the changes since; what is stored stays as it is.
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
    /// The job then fails as one whose payload does not decode: it is a dead letter at once, at no
    /// attempt, and can be requeued when the upcast has been mended. So it is when nothing
    /// overrides this function, which knows no older version.
    fn upcast(version: u32, payload: serde_json::Value) -> Result<serde_json::Value, BoxError> {
        let _ = payload;
        Err(format!(
            "{} has no upcast from version {version}",
            type_name::<Self>()
        )
        .into())
    }

    /// The shared state the body takes from its context; a node that lacks some of it does not
    /// build.
    #[must_use]
    fn requires() -> Requires {
        Requires::nothing()
    }

    /// Returns the settings of all jobs of this kind: queue, retries, timeouts.
    #[must_use]
    fn defaults(job: NewJob) -> NewJob {
        job
    }

    /// Adds the settings that depend on this job's arguments: its lane, keys, tags, priority. It
    /// is applied to the [`defaults`](Self::defaults), so no caller can forget it.
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

    /// The job to enqueue.
    #[must_use]
    fn into_job(self) -> NewJob {
        let job = NewJob::new(Self::KIND, &self).payload_version(Self::VERSION);
        self.configure(Self::defaults(job))
    }
}

/// The types of shared state that a job needs.
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
    /// No state.
    #[must_use]
    pub const fn nothing() -> Self {
        Self(Vec::new())
    }

    /// A value of type `T` too.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self) -> Self {
        self.0.push((TypeId::of::<T>(), type_name::<T>()));
        self
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = (TypeId, &'static str)> + '_ {
        self.0.iter().copied()
    }
}
