//! Signals: something from outside that a job waits for.

use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::json::Json;
use crate::limits::MAX_RESULT_BYTES;
use crate::name::Name;
use crate::state::JobState;
use crate::time::Timestamp;

/// The signal that a job waits for, and for how long.
///
/// ```
/// use std::time::Duration;
/// use ratchet::NewJob;
///
/// let job = NewJob::new("ship", &7).wait_for("paid:7", Duration::from_secs(3_600));
/// if let Some(wait) = &job.spec().signal {
///     println!("waits for the signal {} for up to {:?}", wait.key, wait.timeout);
/// }
/// # assert!(job.spec().signal.is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SignalWait {
    /// Its name; several jobs may wait for the same.
    pub key: Name,
    /// How long after the enqueue, or the requeue, it may come.
    pub timeout: Duration,
}

impl SignalWait {
    /// Creates a wait for a signal that may come for this long.
    #[must_use]
    pub const fn new(key: Name, timeout: Duration) -> Self {
        Self { key, timeout }
    }

    /// The last error of a job whose signal did not come.
    #[must_use]
    pub fn missed(&self) -> String {
        format!(
            "the signal `{}` did not come within {:?}",
            self.key, self.timeout
        )
    }
}

/// How a job's waiting for its signal stands.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// if let Some(signal) = client.job(job).await?.and_then(|job| job.signal) {
///     println!("waits until {}", signal.deadline);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SignalRecord {
    /// The deadline, by the database's clock; at this time it is too late.
    pub deadline: Timestamp,
    /// The delivered signal, if it has come.
    pub delivered: Option<Delivery>,
}

impl SignalRecord {
    /// A signal that may come until then.
    #[must_use]
    pub const fn new(deadline: Timestamp) -> Self {
        Self {
            deadline,
            delivered: None,
        }
    }

    /// The same with what came.
    #[must_use]
    pub fn delivered(mut self, at: Timestamp, payload: Json) -> Self {
        self.delivered = Some(Delivery { at, payload });
        self
    }
}

/// A signal that came.
///
/// ```
/// # use ratchet::{BoxError, Client, JobId};
/// # async fn example(client: &Client, job: JobId) -> Result<(), BoxError> {
/// let signal = client.job(job).await?.and_then(|job| job.signal);
/// if let Some(delivery) = signal.and_then(|signal| signal.delivered) {
///     let approved: bool = delivery.payload.decode()?;
///     println!("approved: {approved}, at {}", delivery.at);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Its payload.
    pub payload: Json,
}

/// The target of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalTarget {
    /// Every job that waits for a signal of this name now.
    Key(Name),
    /// This job, whatever its signal is called.
    Job(JobId),
}

/// A signal to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signal {
    /// Its target.
    pub target: SignalTarget,
    /// The payload that the job can read when it runs: up to 64 KiB of JSON.
    pub payload: Json,
}

impl Signal {
    /// A signal with this payload.
    #[must_use]
    pub const fn new(target: SignalTarget, payload: Json) -> Self {
        Self { target, payload }
    }

    /// Refuses a payload that is too large.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`].
    pub fn validate(&self) -> Result<(), StoreError> {
        self.payload
            .check_size("payload", MAX_RESULT_BYTES)
            .map_err(|problem| {
                StoreError::new(StoreErrorKind::Invalid, "deliver").with_source(problem)
            })
    }
}

/// The outcome of sending a signal.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// use ratchet::Delivered;
///
/// match client.signal_job(job, &"approved").await? {
///     Delivered::NotWaiting(state) => println!("the job is {state}"),
///     other => println!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivered {
    /// It came to these jobs, in order of id, and to no other.
    To(Vec<JobId>),
    /// The job has received its signal already; or all jobs that waited for the name have. Nothing
    /// changed.
    Already,
    /// The job is in this state and waits for no signal: it never did, has ended, or it is too
    /// late.
    NotWaiting(JobState),
    /// There is no such job; or no job waits or has waited for the name.
    NotFound,
}
