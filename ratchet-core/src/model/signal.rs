//! Signals: external events that a job waits for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SignalWait {
    /// The name of the signal. Several jobs may wait for a signal with the same name.
    pub key: Name,
    /// The maximum time from the enqueue or requeue of the job to the delivery of the signal.
    pub timeout: Duration,
}

impl SignalWait {
    /// Creates a wait for the signal `key` with this timeout.
    #[must_use]
    pub const fn new(key: Name, timeout: Duration) -> Self {
        Self { key, timeout }
    }

    /// Returns the text that becomes the last error of a job whose signal did not arrive in time.
    #[must_use]
    pub fn missed(&self) -> String {
        format!(
            "the signal `{}` did not arrive within {:?}",
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SignalRecord {
    /// The deadline of the wait, by the database's clock. A signal that arrives at exactly this
    /// time is too late.
    pub deadline: Timestamp,
    /// The delivered signal; `None` if no signal was delivered yet.
    pub delivered: Option<Delivery>,
}

impl SignalRecord {
    /// Creates the record of a wait with this deadline. The signal is not delivered yet.
    #[must_use]
    pub const fn new(deadline: Timestamp) -> Self {
        Self {
            deadline,
            delivered: None,
        }
    }

    /// Adds the signal that was delivered at the time `at` with this payload.
    #[must_use]
    pub fn delivered(mut self, at: Timestamp, payload: Json) -> Self {
        self.delivered = Some(Delivery { at, payload });
        self
    }
}

/// A signal that was delivered to a job.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Delivery {
    /// When the signal was delivered, by the database's clock.
    pub at: Timestamp,
    /// The payload of the signal.
    #[serde(with = "crate::json::text")]
    pub payload: Json,
}

/// The jobs to which a signal is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum SignalTarget {
    /// Every job that currently waits for a signal of this name.
    Key(Name),
    /// This job, if it currently waits for a signal of any name.
    Job(JobId),
}

/// A signal to deliver to waiting jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Signal {
    /// The jobs to which the signal is sent.
    pub target: SignalTarget,
    /// The payload, which the job can read when it runs. At most 64 KiB of JSON.
    #[serde(with = "crate::json::text")]
    pub payload: Json,
}

impl Signal {
    /// Creates a signal with this payload.
    #[must_use]
    pub const fn new(target: SignalTarget, payload: Json) -> Self {
        Self { target, payload }
    }

    /// Checks that the payload is not larger than [`MAX_RESULT_BYTES`].
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] if the payload is too large.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Delivered {
    /// The signal was delivered to exactly these jobs, in order of their ids.
    To(Vec<JobId>),
    /// The signal was delivered earlier; nothing changed now.
    ///
    /// If the target is a job, that job already has its signal. If the target is a name, no job
    /// waits for this name any more, and at least one stored job has received a signal with this
    /// name.
    Already,
    /// The target job is in this state and waits for no signal. Either the job never waited, or it
    /// has ended, or the deadline of its wait has passed.
    NotWaiting(JobState),
    /// The signal has no recipient.
    ///
    /// If the target is a job, that job does not exist. If the target is a name, no job waits for
    /// this name, and no stored job has received a signal with this name.
    NotFound,
}
