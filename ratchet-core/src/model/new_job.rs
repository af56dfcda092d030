//! New jobs: how they are built and checked, and the outcome of their enqueue.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::due::RunAt;
use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::id::{BatchId, JobId};
use crate::json::Json;
use crate::limits::{self, MAX_DELAY, MAX_PARENTS, MAX_PAYLOAD_BYTES, MAX_TAGS};
use crate::links;
use crate::model::{
    After, BatchCondition, Condition, FairKey, JobSpec, OnConflict, SignalWait,
    check_payload_version,
};
use crate::name::Name;
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::route::Route;
use crate::time::{self, Timestamp};
use crate::trace::TraceContext;

/// A job that is to be enqueued. Create it with `into_job()` of a typed job or with
/// [`NewJob::new`], then set its properties with the builder methods.
///
/// The setters never fail. If a job is invalid, the enqueue reports the problem and stores nothing.
///
/// A `NewJob` gets its id when it is created. So if the outcome of an enqueue is unknown, the
/// caller can repeat the enqueue with the same `NewJob`, and the job is stored only once. A clone
/// is therefore the *same* job. [`another`](Self::another) creates a different job like it.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{NewJob, Priority};
///
/// let job = NewJob::new("resize", &("cat.png", 640))
///     .queue("images")
///     .priority(Priority::High)
///     .delay(Duration::from_secs(30));
/// assert!(job.validate().is_ok());
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewJob {
    id: JobId,
    spec: JobSpec,
    run_at: RunAt,
    #[serde(default, skip_serializing_if = "is_default")]
    all_or_nothing: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    on_conflict: OnConflict,
    #[serde(default, skip_serializing_if = "is_default")]
    unique_for: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    expiry: Option<RunAt>,
    #[serde(skip)]
    problem: Option<InvalidInput>,
}

impl NewJob {
    /// The queue of a job for which [`queue`](Self::queue) was not called.
    pub const DEFAULT_QUEUE: &'static str = "default";

    /// Creates a job of this kind with this payload, in the queue [`NewJob::DEFAULT_QUEUE`].
    #[must_use]
    pub fn new<T: Serialize + ?Sized>(kind: &str, payload: &T) -> Self {
        let mut problem = None;
        let payload = keep(&mut problem, Json::encode("payload", payload))
            .unwrap_or_else(|| Json::from_stored("null"));
        keep(
            &mut problem,
            payload.check_size("payload", MAX_PAYLOAD_BYTES),
        );
        let queue = keep(&mut problem, Name::new("queue", Self::DEFAULT_QUEUE));
        let kind = keep(&mut problem, Name::new("kind", kind)).or_else(|| queue.clone());
        let (Some(queue), Some(kind)) = (queue, kind) else {
            unreachable!("the default queue is a valid name");
        };
        let route = Route {
            queue,
            kind,
            capability: None,
            permit: None,
        };
        Self {
            id: JobId::new(),
            spec: JobSpec::new(route, payload),
            run_at: RunAt::Now,
            all_or_nothing: false,
            on_conflict: OnConflict::Keep,
            unique_for: None,
            expiry: None,
            problem,
        }
    }

    /// Creates a job from a spec that the core has already checked.
    pub(crate) const fn of_spec(id: JobId, spec: JobSpec, run_at: RunAt) -> Self {
        Self {
            id,
            spec,
            run_at,
            all_or_nothing: false,
            on_conflict: OnConflict::Keep,
            unique_for: None,
            expiry: None,
            problem: None,
        }
    }

    /// Creates another job with the same properties and a new id.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            id: JobId::new(),
            ..self.clone()
        }
    }

    /// Sets the queue of the job.
    #[must_use]
    pub fn queue(mut self, queue: &str) -> Self {
        if let Some(queue) = keep(&mut self.problem, Name::new("queue", queue)) {
            self.spec.route.queue = queue;
        }
        self
    }

    /// Restricts the job to nodes that advertise this capability.
    #[must_use]
    pub fn capability(mut self, capability: &str) -> Self {
        self.spec.route.capability = keep(&mut self.problem, Name::new("capability", capability));
        self
    }

    /// Sets the version of the payload; 1 by default. A later version of the program uses it to
    /// decide whether it must convert the payload. A typed job sets the version from
    /// [`Job::VERSION`](crate::Job::VERSION).
    #[must_use]
    pub fn payload_version(mut self, version: u32) -> Self {
        keep(&mut self.problem, check_payload_version(version));
        self.spec.payload_version = version;
        self
    }

    /// Sets the priority of the job.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.spec.priority = priority;
        self
    }

    /// Makes the job due this long after the enqueue.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.run_at = RunAt::In(delay);
        self
    }

    /// Makes the job due at this time.
    #[must_use]
    pub const fn run_at(mut self, at: Timestamp) -> Self {
        self.run_at = RunAt::At(at);
        self
    }

    /// Sets how often and after which delays a failed attempt is retried.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        keep(&mut self.problem, retry.validate());
        self.spec.retry = retry.rounded();
        self
    }

    /// Limits the run time of one body. After 80 % of `timeout`, the node cancels the body's
    /// cancellation token. After the whole timeout, the node drops the body, and the attempt fails.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        keep(&mut self.problem, positive("timeout", timeout));
        self.spec.timeout = Some(time::whole_millis(timeout));
        self
    }

    /// Limits how long a body may run without a sign of life (a report of progress, a checkpoint or
    /// `ctx.heartbeat()`). After this time, the node drops the body, and the cluster reclaims the
    /// job.
    #[must_use]
    pub fn stall_timeout(mut self, timeout: Duration) -> Self {
        keep(&mut self.problem, positive("stall_timeout", timeout));
        self.spec.stall_timeout = Some(time::whole_millis(timeout));
        self
    }

    /// Puts the job into this lane of its queue. The jobs of a lane run one at a time, in the order
    /// in which the database stored them.
    ///
    /// The first unfinished job of a lane is its head. The other unfinished jobs are `Blocked`.
    /// When the head ends, with or without success, the next job becomes the head. A head that is
    /// delayed, paused, waits for a retry or waits for a suitable node holds up its lane, and only
    /// its lane. Priorities order the heads of different lanes, never the jobs of one lane. The
    /// same name in another queue is another lane.
    ///
    /// The enqueue refuses a job in a lane that also waits for a parent ([`after`](Self::after),
    /// [`after_batch`](Self::after_batch)) or a signal ([`wait_for`](Self::wait_for)). Instead,
    /// let the job that must run first enqueue this job as its last step.
    ///
    /// ```
    /// use ratchet::NewJob;
    ///
    /// let jobs = ["open", "deposit", "close"]
    ///     .map(|step| NewJob::new("account", step).lane("customer-42"));
    /// assert!(NewJob::validate_all(&jobs).is_ok());
    /// ```
    #[must_use]
    pub fn lane(mut self, lane: &str) -> Self {
        self.spec.lane = keep(&mut self.problem, Name::new("lane", lane));
        self
    }

    /// Lets the keys of a queue take turns: however many jobs of one key wait, a job of another key
    /// is soon the next. Use the customer or the tenant as the key.
    ///
    /// The jobs of one route (queue, kind, capability and permit) and priority take turns: of `k`
    /// keys with due jobs, the first job of each waits for at most `k` jobs of the others, besides
    /// those of claims in progress. A key saves up no turns while it has no due job. Jobs of one
    /// key run in the order in which they became due. Between routes and priorities, and for jobs
    /// without a key, claims keep the order of [priority and due time](crate::priority). The next
    /// job in turn stands for its route and priority there.
    ///
    /// The number of keys is not limited, and a key that no job has any more costs nothing. A job
    /// that was enqueued in a transaction of the application, is delayed or waits for a retry gets
    /// its turn by the first claim after it is due; one claim does this for at most 1,000 jobs.
    ///
    /// ```
    /// use ratchet::NewJob;
    ///
    /// let job = NewJob::new("render", &1).fair_key("tenant:7");
    /// assert!(job.validate().is_ok());
    /// ```
    #[must_use]
    pub fn fair_key(self, key: &str) -> Self {
        self.weighted_fair_key(key, 1.0)
    }

    /// Does the same as [`fair_key`](Self::fair_key), with a weight from 0.1 to 100. While two keys
    /// always have due jobs, one with the weight 2 has twice as many turns as one with the weight
    /// 1. The enqueue refuses other weights.
    #[must_use]
    pub fn weighted_fair_key(mut self, key: &str, weight: f64) -> Self {
        self.spec.fair_key = keep(&mut self.problem, FairKey::new(key, weight));
        self
    }

    /// Adds a tag by which the job can be found. A job may have up to [`MAX_TAGS`] tags.
    ///
    /// Adding a tag twice has no effect. Tags are compared exactly, like every [`Name`]: `tenant:a`
    /// and `tenant:A` are two tags. The tags of a stored job never change. They do not affect when
    /// or where the job runs.
    ///
    /// ```
    /// use ratchet::NewJob;
    ///
    /// let job = NewJob::new("mail", "hello").tag("tenant:7").tag("import:2026-10");
    /// assert_eq!(job.spec().tags.len(), 2);
    /// ```
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        self.spec
            .tags
            .extend(keep(&mut self.problem, Name::new("tag", tag)));
        self
    }

    /// Lets the job run only while it holds a permit of this resource.
    /// [`Client::set_permits`](crate::Client::set_permits) sets how many permits the resource has
    /// in the whole cluster. While no permit is free, nodes still claim other jobs, even from the
    /// same queue. A job can require a permit of only one resource.
    ///
    /// A claim takes the permit, and the end of the claim frees it, however the claim ends. The
    /// enqueue fails if the number of permits of the resource was never set. A few hundred
    /// resources are fine. To run one job at a time for each of many customers, use
    /// [lanes](Self::lane).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
    /// # use std::sync::Arc;
    /// use ratchet::{MemoryStore, NewJob, Ratchet};
    ///
    /// let client = Ratchet::client(Arc::new(MemoryStore::new()));
    /// client.set_permits("billing-api", 4).await?;
    /// let job = NewJob::new("charge", "customer-42").permit("billing-api");
    /// client.enqueue(job).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn permit(mut self, resource: &str) -> Self {
        self.spec.route.permit = keep(&mut self.problem, Name::new("permit", resource));
        self
    }

    /// Lets the job run only after this parent has ended as the condition requires. A job with
    /// several parents waits for all of them.
    ///
    /// The parent must be in the same enqueue or already stored. If it has already ended, the
    /// enqueue decides the link. The job is `Blocked` until all its links are met. If one of its
    /// links can no longer be met, the job becomes `Cancelled`. Jobs that wait for this job then
    /// see it as a parent that has ended.
    ///
    /// ```
    /// use ratchet::{Condition, NewJob};
    ///
    /// let build = NewJob::new("build", &());
    /// let deploy = NewJob::new("deploy", &()).after(build.id(), Condition::Succeeded);
    /// let report = NewJob::new("report", &()).after(deploy.id(), Condition::Ended);
    /// assert!(NewJob::validate_all(&[build, deploy, report]).is_ok());
    /// ```
    #[must_use]
    pub fn after(self, parent: JobId, condition: Condition) -> Self {
        self.waiting_for(After::Job { parent, condition })
    }

    /// Makes the job a callback of this batch: it runs only after the batch meets the condition. A
    /// batch may have any number of callbacks. A callback can be enqueued as long as the batch is
    /// stored, even after the batch has ended.
    #[must_use]
    pub fn after_batch(self, batch: BatchId, condition: BatchCondition) -> Self {
        self.waiting_for(After::Batch { batch, condition })
    }

    fn waiting_for(mut self, after: After) -> Self {
        keep(&mut self.problem, after.validate());
        self.spec.after.push(after);
        self
    }

    /// Makes the job a child of this batch. The enqueue fails if the batch is closed or not stored.
    #[must_use]
    pub const fn in_batch(mut self, batch: BatchId) -> Self {
        self.spec.batch = Some(batch);
        self
    }

    /// Lets the job run only after a signal of this name was delivered to it. If no such signal is
    /// delivered within `timeout` after the enqueue, the job fails, even if it still waits for
    /// other jobs.
    ///
    /// A signal that was sent before the enqueue does not count, because signals are not kept for
    /// later jobs.
    #[must_use]
    pub fn wait_for(mut self, key: &str, timeout: Duration) -> Self {
        keep(&mut self.problem, positive("timeout", timeout));
        if timeout > MAX_DELAY {
            let problem = InvalidInput::new("timeout", "is longer than 1,000 years");
            self.problem.get_or_insert(problem);
        }
        if let Some(key) = keep(&mut self.problem, Name::new("signal", key)) {
            self.spec.signal = Some(SignalWait::new(key, time::whole_millis(timeout)));
        }
        self
    }

    /// Sets the trace context that is passed to the handler.
    #[must_use]
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.spec.trace = Some(trace);
        self
    }

    /// Returns the id that the job will have.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// Returns the specification of the job.
    #[must_use]
    pub const fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// Returns when the job will be due.
    #[must_use]
    pub const fn due(&self) -> RunAt {
        self.run_at
    }

    /// Returns whether a store that keeps a job in several tables needs a transaction to enqueue
    /// this job: it may change another job, it may expire, or
    /// [its spec](JobSpec::needs_transaction) needs one.
    #[must_use]
    pub const fn needs_transaction(&self) -> bool {
        self.changes_holder() || self.expiry.is_some() || self.spec.needs_transaction()
    }

    /// Returns whether the job is due as soon as it is enqueued, and waits for no signal. Ignores
    /// parents, because they may have ended by the time of the enqueue. Ignores the lane, because
    /// the job may become its head.
    #[must_use]
    pub const fn is_due_at_once(&self) -> bool {
        matches!(self.run_at, RunAt::Now | RunAt::In(Duration::ZERO)) && self.spec.signal.is_none()
    }

    /// Checks that the job can be enqueued: every value that was set, the number of tags and
    /// parents, and that a job in a lane waits for no parent and no signal.
    ///
    /// # Errors
    /// Returns the first problem, as an [`InvalidInput`] that names the field.
    pub fn validate(&self) -> Result<(), InvalidInput> {
        match &self.problem {
            Some(problem) => Err(problem.clone()),
            None if self.spec.tags.len() > MAX_TAGS => {
                let tags = self.spec.tags.len();
                let problem = format!("count is {tags}; at most {MAX_TAGS} are allowed");
                Err(InvalidInput::new("tag", problem))
            }
            None if self.unique_for.is_some() && self.spec.idempotency_key.is_none() => {
                Err(InvalidInput::new("unique_for", "needs an idempotency key"))
            }
            None => (self.check_waits())
                .and_then(|()| self.run_at.validate())
                .and_then(|()| self.check_expiry())
                .and_then(|()| self.check_conflict()),
        }
    }

    /// Refuses a job that may change the holder of its unique key and has no such key, or that
    /// cannot wait for the holder. Also refuses bad delays of a debounce.
    fn check_conflict(&self) -> Result<(), InvalidInput> {
        let refuse = |problem: &str| Err(InvalidInput::new("on_conflict", problem));
        match self.run_at {
            _ if !self.changes_holder() => Ok(()),
            _ if self.spec.unique_key.is_none() => refuse("needs a unique key"),
            _ if self.spec.lane.is_some() => refuse("cannot be combined with a lane"),
            _ if self.spec.after.len() >= MAX_PARENTS => {
                let problem = format!("allows at most {} parents", MAX_PARENTS - 1);
                refuse(&problem)
            }
            RunAt::In(delay) => self.on_conflict.check_delays(delay),
            RunAt::Now => self.on_conflict.check_delays(Duration::ZERO),
            RunAt::At(_) if matches!(self.on_conflict, OnConflict::Debounce { .. }) => {
                refuse("is a debounce, which needs a delay instead of a time")
            }
            RunAt::At(_) => Ok(()),
        }
    }

    /// Refuses a job with more than [`MAX_PARENTS`] parents, and a job in a lane that also waits
    /// for a parent or a signal.
    fn check_waits(&self) -> Result<(), InvalidInput> {
        let spec = &self.spec;
        if spec.after.len() > MAX_PARENTS {
            let problem = format!(
                "count is {}; at most {MAX_PARENTS} are allowed",
                spec.after.len()
            );
            return Err(InvalidInput::new("parent", problem));
        }
        if spec.lane.is_some() && spec.waits() {
            let problem = "cannot be combined with a parent or a signal";
            return Err(InvalidInput::new("lane", problem));
        }
        Ok(())
    }

    /// Checks all jobs of an enqueue: their number, and each job. Also checks that no job occurs
    /// twice, and that the links form no cycle and no chain that is too long.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] with the first problem found.
    pub fn validate_all(jobs: &[Self]) -> Result<(), StoreError> {
        limits::check_batch("jobs", jobs.len())
            .and_then(|()| jobs.iter().try_for_each(Self::validate))
            .and_then(|()| refuse_repeated(jobs))
            .and_then(|()| refuse_shared_keys(jobs))
            .and_then(|()| links::refuse_cycles(jobs))
            .map_err(|problem| {
                StoreError::new(StoreErrorKind::Invalid, "enqueue").with_source(problem)
            })
    }
}

/// Refuses a call that contains a job twice, because the caller probably meant [`NewJob::another`]
/// instead of a clone.
fn refuse_repeated(jobs: &[NewJob]) -> Result<(), InvalidInput> {
    // Callers mostly pass jobs in the order of their creation. Their ids are then in ascending
    // order, so the check needs no set.
    if jobs.is_sorted_by(|earlier, later| earlier.id < later.id) {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    match jobs.iter().find(|job| !seen.insert(job.id)) {
        None => Ok(()),
        Some(job) => Err(InvalidInput::new(
            "jobs",
            format!("contain the job {} twice", job.id),
        )),
    }
}

/// Refuses two jobs with the same unique key if one of them may change the holder of the key.
fn refuse_shared_keys(jobs: &[NewJob]) -> Result<(), InvalidInput> {
    if !jobs.iter().any(NewJob::changes_holder) {
        return Ok(());
    }
    let mut seen: HashMap<&Name, bool> = HashMap::new();
    for job in jobs {
        let changes = job.changes_holder();
        let Some(key) = &job.spec.unique_key else {
            continue;
        };
        if seen
            .insert(key, changes)
            .is_some_and(|other| other || changes)
        {
            let problem = format!("`{key}` occurs twice, which `on_conflict` does not allow");
            return Err(InvalidInput::new("unique_key", problem));
        }
    }
    Ok(())
}

/// Refuses a duration of zero.
pub(crate) fn positive(field: &'static str, duration: Duration) -> Result<(), InvalidInput> {
    if duration.is_zero() {
        return Err(InvalidInput::new(field, "is zero"));
    }
    Ok(())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn keep<T>(problem: &mut Option<InvalidInput>, checked: Result<T, InvalidInput>) -> Option<T> {
    checked
        .map_err(|error| {
            problem.get_or_insert(error);
        })
        .ok()
}

/// The outcome of an enqueue for one job.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{Enqueued, NewJob, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let job = || NewJob::new("invoice", &7).unique_key("invoice/7");
/// let first = client.enqueue(job()).await?;
/// assert!(matches!(first, Enqueued::Created(_)));
/// assert_eq!(client.enqueue(job()).await?, Enqueued::Duplicate(first.id()));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enqueued {
    /// The job is stored under this id. Another enqueue of the same [`NewJob`] also returns this
    /// outcome as long as the job is stored.
    Created(JobId),
    /// The job was not stored, because this earlier job has the unique key or the idempotency key.
    Duplicate(JobId),
    /// The job was not stored, because this earlier job has the unique key. The earlier job waits,
    /// and got the payload of the new job ([`OnConflict`]).
    Replaced(JobId),
    /// The job with this id was not stored, because another job of the enqueue is a duplicate and
    /// asks for [all or nothing](NewJob::all_or_nothing).
    Withheld(JobId),
}

impl Enqueued {
    /// Returns the id of the new job, or of the earlier job with its key. A job that was
    /// [withheld](Self::Withheld) is not stored under its id.
    #[must_use]
    pub const fn id(self) -> JobId {
        match self {
            Self::Created(id) | Self::Duplicate(id) | Self::Replaced(id) | Self::Withheld(id) => id,
        }
    }
}

mod expiry;
mod keys;
#[cfg(test)]
mod tests;
