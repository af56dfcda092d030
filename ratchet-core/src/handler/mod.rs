//! Handlers: the user's code for a kind of job.

mod context;
mod error;
mod parents;
mod registry;

use std::any::{TypeId, type_name};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use context::{CancelReason, JobContext};
pub use error::{JobError, JobResult};
pub use parents::ParentJob;

pub(crate) use context::{CancelHandle, ContextParts, ReportSink, soft_timeout};
pub(crate) use error::Verdict;
pub(crate) use registry::{Registry, StateMap};

use crate::model::NewJob;

/// A kind of job and the code that runs it: the fields are the arguments, stored as JSON.
///
/// ```
/// use ratchet_core::{Job, JobContext, JobResult};
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
    /// The name under which jobs of this type are stored. Changing it orphans stored jobs.
    const KIND: &'static str;

    /// What a successful body returns; kept as the job's result unless it serializes to `null`, as
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

    /// The shared state the body takes from its context; a node that lacks some of it does not
    /// build.
    #[must_use]
    fn requires() -> Requires {
        Requires::nothing()
    }

    /// What all jobs of this kind have in common: queue, retries, timeouts.
    #[must_use]
    fn defaults(job: NewJob) -> NewJob {
        job
    }

    /// The job to enqueue.
    #[must_use]
    fn into_job(self) -> NewJob {
        Self::defaults(NewJob::new(Self::KIND, &self))
    }
}

/// The types of shared state that a job needs.
///
/// ```
/// # struct Pool; struct Mailer;
/// use ratchet_core::Requires;
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
