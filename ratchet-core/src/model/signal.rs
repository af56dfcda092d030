//! Signals: external events that a job waits for.

use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::json::Json;
use crate::limits::MAX_RESULT_BYTES;
use crate::name::Name;
use crate::state::JobState;
use crate::time::Timestamp;

/// The signal that a job waits for, and the timeout of the wait.
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
    /// The name of the signal. Several jobs may wait for the same name.
    pub key: Name,
    /// How long after the enqueue or requeue the signal may be delivered.
    pub timeout: Duration,
}

impl SignalWait {
    /// Creates a wait for the signal `key` with this timeout.
    #[must_use]
    pub const fn new(key: Name, timeout: Duration) -> Self {
        Self { key, timeout }
    }

    /// Returns the last error of a job whose signal did not come in time.
    #[must_use]
    pub fn missed(&self) -> String {
        format!(
            "the signal `{}` did not come within {:?}",
            self.key, self.timeout
        )
    }
}

/// The state of a job's wait for its signal.
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
    /// The deadline, by the database's clock. A signal at exactly this time is too late.
    pub deadline: Timestamp,
    /// The delivered signal; `None` if none was delivered yet.
    pub delivered: Option<Delivery>,
}

impl SignalRecord {
    /// Creates the record of a wait with this deadline, for a signal that was not delivered yet.
    #[must_use]
    pub const fn new(deadline: Timestamp) -> Self {
        Self {
            deadline,
            delivered: None,
        }
    }

    /// Adds the delivered signal.
    #[must_use]
    pub fn delivered(mut self, at: Timestamp, payload: Json) -> Self {
        self.delivered = Some(Delivery { at, payload });
        self
    }
}

/// A delivered signal.
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
    /// When the signal was delivered, by the database's clock.
    pub at: Timestamp,
    /// The payload of the signal.
    pub payload: Json,
}

/// The jobs that a signal is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalTarget {
    /// Every job that currently waits for a signal of this name.
    Key(Name),
    /// This job, whatever the name of its signal.
    Job(JobId),
}

/// A signal to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signal {
    /// The jobs that the signal is sent to.
    pub target: SignalTarget,
    /// The payload, which the job can read when it runs. Up to 64 KiB of JSON.
    pub payload: Json,
}

impl Signal {
    /// Creates a signal with this payload.
    #[must_use]
    pub const fn new(target: SignalTarget, payload: Json) -> Self {
        Self { target, payload }
    }

    /// Refuses a payload of more than [`MAX_RESULT_BYTES`].
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
    /// The signal was delivered to these jobs, in order of id, and to no others.
    To(Vec<JobId>),
    /// The job already received its signal; or no job waits for the name any more, and at least one
    /// stored job received a signal of this name. Nothing changed.
    Already,
    /// The job is in this state and waits for no signal: it never did, it has ended, or the
    /// deadline has passed.
    NotWaiting(JobState),
    /// There is no such job; or no job waits for the name, and no stored job received a signal of
    /// this name.
    NotFound,
}
