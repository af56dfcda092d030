use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::TestingError;
use crate::engine::{ManualRun, Node};
use crate::error::Result;
use crate::id::JobId;
use crate::memory::ManualClock;
use crate::model::{Attempt, AttemptOutcome, JobFilter, JobOrder, JobRecord, PageRequest};
use crate::name::Name;
use crate::state::JobState;
use crate::time::{self, Timestamp};

/// The default limit on the number of jobs that a drain runs.
const LIMIT: usize = 1_000;
/// The number of waiting jobs in each page that a drain reads to find the next due time.
const PAGE: usize = 500;

/// Runs all due jobs, one after another in claim order, until no job is due. This includes jobs
/// that these jobs enqueue, and retries without a delay.
///
/// The drain uses the node's own claims, layers, timeouts, retries and settlements, on the node's
/// store. All hooks have been called when the drain returns. The node must not be running. During
/// the drain, the node is a member of the cluster. The drain runs only jobs that the node may
/// claim. Jobs of other or paused kinds, in paused queues, or that require other capabilities do
/// not change. Jobs that a [rate limit](crate::NodeBuilder::rate_limit) or a
/// [circuit breaker](crate::NodeBuilder::circuit_breaker) delays do not run either. The next drain
/// tries these delayed jobs again.
///
/// First, the drain fires due slots of recurring definitions, including the definitions that the
/// node declares, and fails jobs whose signal was not delivered in time. The drain does nothing
/// else that a running node does: it reclaims nothing, deletes no old jobs, and runs no daemons. An
/// [active-passive](crate::NodeBuilder::active_passive) node runs the jobs without waiting for
/// leadership.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ratchet::testing::{drain, memory_store};
/// use ratchet::{Job, JobContext, JobResult, Ratchet, RetryPolicy};
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Flaky;
///
/// impl Job for Flaky {
///     const KIND: &'static str = "flaky";
///     type Output = ();
///     async fn run(self, ctx: JobContext) -> JobResult<()> {
///         match ctx.attempt() {
///             3 => Ok(()),
///             _ => Err("not yet".into()),
///         }
///     }
/// }
///
/// let (store, clock) = memory_store();
/// let node = Ratchet::builder(store).register::<Flaky>().build()?;
/// let retry = RetryPolicy::fixed(5, Duration::from_secs(60));
/// node.enqueue(Flaky.into_job().retry(retry)).await?;
///
/// let drained = drain(&node).await?;
/// assert_eq!((drained.retried, drained.total()), (1, 1));
///
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(drain(&node).await?.retried, 1);
///
/// // Or run all that becomes due within an hour, each at its time.
/// let drained = drain(&node).through(&clock, Duration::from_secs(3_600)).await?;
/// assert_eq!(drained.succeeded, 1);
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`TestingError::Limit`] if a job is still due after 1,000 jobs, or after the number set with
/// [`limit`](Drain::limit). [`TestingError::Store`] if a claim or a read fails. A settlement that
/// fails is retried, as on a running node. [`TestingError::Run`] if the node is already running or
/// cannot join.
///
/// # Cancel safety
/// If the future is dropped, the running job stays claimed until it is reclaimed, as after a crash.
pub const fn drain(node: &Node) -> Drain<'_> {
    Drain {
        node,
        queue: None,
        limit: LIMIT,
        through: None,
    }
}

/// A drain that begins when this value is awaited; see [`drain`].
///
/// ```
/// # async fn example(node: &ratchet::Node) -> Result<(), ratchet::BoxError> {
/// use ratchet::testing::drain;
///
/// drain(node).queue("mail").limit(10).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "no job runs until the value is awaited"]
pub struct Drain<'a> {
    node: &'a Node,
    queue: Option<&'a str>,
    limit: usize,
    through: Option<(&'a ManualClock, Duration)>,
}

impl<'a> Drain<'a> {
    /// Runs only the jobs of this queue.
    pub const fn queue(mut self, queue: &'a str) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Sets the maximum number of jobs that the drain runs, 1,000 by default. The limit ends a
    /// drain in which a job always enqueues itself again.
    pub const fn limit(mut self, jobs: usize) -> Self {
        self.limit = jobs;
        self
    }

    /// Also runs the jobs that become due within this span. `clock` must be the clock of the node's
    /// store. The drain sets the clock to the time of each due job, slot and signal deadline in
    /// turn, and finally to the end of the span.
    pub const fn through(mut self, clock: &'a ManualClock, span: Duration) -> Self {
        self.through = Some((clock, span));
        self
    }
}

impl<'a> IntoFuture for Drain<'a> {
    type Output = Result<Drained, TestingError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl Drain<'_> {
    async fn run(self) -> Result<Drained, TestingError> {
        let queue = self.queue.map(|queue| Name::new("queue", queue));
        let queue = queue.transpose().map_err(crate::StoreError::from)?;
        let run = ManualRun::begin(self.node).await?;
        let mut drained = Drained::default();
        let end = self
            .through
            .map(|(clock, span)| time::add(clock.now(), span));
        loop {
            let next_slot = run.look_after().await?;
            while let Some(taken) = run.next(queue.as_ref()).await? {
                if drained.total() == self.limit {
                    run.hand_back(taken).await;
                    run.end().await?;
                    return Err(TestingError::Limit { drained });
                }
                let token = taken.token();
                run.execute(taken).await;
                let history = self.node.client().history(token.job).await?;
                let ended = history.iter().find(|ended| ended.seq == token.seq);
                drained.count(ended.map_or(AttemptOutcome::Lost, |ended| ended.outcome));
            }
            let (Some((clock, _)), Some(end)) = (self.through, end) else {
                break;
            };
            match next_due(self.node, queue.as_ref(), clock.now(), next_slot).await? {
                // If the clock is running, it may already have passed `due`.
                Some(due) if due <= end => clock.set(due.max(clock.now())),
                _ => {
                    clock.set(end.max(clock.now()));
                    break;
                }
            }
        }
        run.end().await?;
        Ok(drained)
    }
}

/// Returns the earliest of these times: `next_slot`, the due times of pending jobs after `now`, the
/// signal deadlines of blocked jobs after `now`, and the expiries of waiting jobs after `now`.
async fn next_due(
    node: &Node,
    queue: Option<&Name>,
    now: Timestamp,
    next_slot: Option<Timestamp>,
) -> Result<Option<Timestamp>> {
    let mut filter = JobFilter::all()
        .state(JobState::Pending)
        .state(JobState::Blocked)
        .state(JobState::Paused);
    filter.queue = queue.cloned();
    let mut page = PageRequest::first(PAGE).order(JobOrder::OldestFirst);
    let mut next = next_slot;
    loop {
        let read = node.client().list(&filter, &page).await?;
        let due = read.jobs.iter().flat_map(|job| {
            let waits_for = match job.state {
                JobState::Pending => Some(job.run_at),
                JobState::Blocked => job.signal.as_ref().map(|signal| signal.deadline),
                _ => None,
            };
            waits_for.into_iter().chain(job.expires_at)
        });
        next = due.filter(|due| *due > now).chain(next).min();
        if read.next.is_none() {
            return Ok(next);
        }
        page = page.after(read.next);
    }
}

/// Advances the clock of the node's store to the next time at which something becomes due, and
/// returns that time.
///
/// The time is the next due time of a waiting job, the next slot of a recurring job, or the next
/// deadline of a signal, whichever comes first. `clock` must be the clock of the node's store. If
/// there is no such time, the function returns `None` and does not change the clock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::testing::{advance_to_next, drain, memory_store};
/// # use ratchet::{Job, JobContext, JobResult, Ratchet};
/// use ratchet::Recurring;
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Report;
/// # impl Job for Report {
/// #     const KIND: &'static str = "report";
/// #     type Output = ();
/// #     async fn run(self, _ctx: JobContext) -> JobResult<()> { Ok(()) }
/// # }
///
/// let (store, clock) = memory_store();
/// let hourly = Recurring::every(std::time::Duration::from_secs(3_600));
/// let node = Ratchet::builder(store)
///     .register::<Report>()
///     .recurring(hourly.job(Report.into_job()).named("hourly"))
///     .build()?;
/// for _ in 0..3 {
///     advance_to_next(&node, &clock).await?.expect("a slot comes");
///     assert_eq!(drain(&node).await?.succeeded, 1);
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// A failure of the store, or [`TestingError::Run`] if the node is running.
///
/// # Cancel safety
/// If the future is dropped, the clock has not moved.
pub async fn advance_to_next(
    node: &Node,
    clock: &ManualClock,
) -> Result<Option<Timestamp>, TestingError> {
    let run = ManualRun::begin(node).await?;
    let next_slot = run.look_after().await;
    run.end().await?;
    let next = next_due(node, None, clock.now(), next_slot?).await?;
    if let Some(next) = next {
        clock.set(next.max(clock.now()));
    }
    Ok(next)
}

/// Repeats [`drain`] and [`advance_to_next`] until `done` returns true. Use this function for tests
/// with several steps, such as tests of retries or of a workflow.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::testing::{drain_until, memory_store};
/// # use ratchet::{Job, JobContext, JobResult, JobState, Ratchet};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Flaky;
/// # impl Job for Flaky {
/// #     const KIND: &'static str = "flaky";
/// #     type Output = ();
/// #     async fn run(self, ctx: JobContext) -> JobResult<()> {
/// #         if ctx.attempt() < 4 { Err("not yet".into()) } else { Ok(()) }
/// #     }
/// # }
/// let (store, clock) = memory_store();
/// let node = Ratchet::builder(store).register::<Flaky>().build()?;
/// let id = node.enqueue(Flaky.into_job()).await?.id();
/// let job = async || node.client().job(id).await.ok().flatten();
/// let succeeded = async || job().await.is_some_and(|job| job.state == JobState::Succeeded);
/// let drained = drain_until(&node, &clock, succeeded).await?;
/// assert_eq!((drained.retried, drained.succeeded), (3, 1));
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`TestingError::NothingComes`] if no further job, slot or signal deadline comes, and `done`
/// still returns false. [`TestingError::Limit`] if a job is still due after 1,000 jobs. All other
/// errors of [`drain`].
///
/// # Cancel safety
/// The same as [`drain`].
pub async fn drain_until(
    node: &Node,
    clock: &ManualClock,
    done: impl AsyncFn() -> bool,
) -> Result<Drained, TestingError> {
    let mut all = Drained::default();
    loop {
        all.add(drain(node).limit(LIMIT - all.total().min(LIMIT)).await?);
        if done().await {
            return Ok(all);
        }
        if advance_to_next(node, clock).await?.is_none() {
            return Err(TestingError::NothingComes { drained: all });
        }
    }
}

/// The number of claims that a drain made, by outcome.
///
/// ```
/// # async fn example(node: &ratchet::Node) -> Result<(), ratchet::BoxError> {
/// let drained = ratchet::testing::drain(node).await?;
/// assert_eq!((drained.succeeded, drained.failed), (3, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// The number of jobs that succeeded.
    pub succeeded: usize,
    /// The number of attempts that failed and will be retried.
    pub retried: usize,
    /// The number of jobs that became dead letters.
    pub failed: usize,
    /// The number of jobs that will run again later, because the body asked for this or because
    /// only a newer node can read the payload.
    pub snoozed: usize,
    /// The number of jobs that were cancelled, or that were claimed after their expiry.
    pub cancelled: usize,
    /// The number of claims that the node released or lost.
    pub lost: usize,
}

impl Drained {
    /// Returns the total number of claims.
    #[must_use]
    pub const fn total(&self) -> usize {
        let ended = self.succeeded + self.failed + self.cancelled;
        ended + self.retried + self.snoozed + self.lost
    }

    const fn add(&mut self, more: Self) {
        self.succeeded += more.succeeded;
        self.retried += more.retried;
        self.failed += more.failed;
        self.snoozed += more.snoozed;
        self.cancelled += more.cancelled;
        self.lost += more.lost;
    }

    fn count(&mut self, outcome: AttemptOutcome) {
        *match outcome {
            AttemptOutcome::Succeeded => &mut self.succeeded,
            AttemptOutcome::Retried => &mut self.retried,
            AttemptOutcome::Failed => &mut self.failed,
            AttemptOutcome::Snoozed => &mut self.snoozed,
            AttemptOutcome::Cancelled | AttemptOutcome::Expired => &mut self.cancelled,
            AttemptOutcome::Released | AttemptOutcome::Undelivered | AttemptOutcome::Lost => {
                &mut self.lost
            }
        } += 1;
    }
}

/// Runs one stored job now, as a node does: with its claim, layers, timeout, body and settlement.
/// See [`drain`].
///
/// The job must be due. Other jobs of the same queue, kind and capability may come before it in the
/// claim order. The function claims and releases these jobs too, and their history contains these
/// claims. If the job needs a [permit](crate::NewJob::permit), the earlier jobs get the free
/// permits first. The job can then run only if one more permit is free.
///
/// # Errors
/// [`TestingError::NotFound`] if the job does not exist. [`TestingError::NotRunnable`] if the node
/// cannot claim the job. [`TestingError::Run`] if the node is already running or cannot join.
/// [`TestingError::Store`] if a call of the store fails.
///
/// # Cancel safety
/// The same as [`drain`].
pub async fn run_job(node: &Node, job: JobId) -> Result<Ran, TestingError> {
    let client = node.client();
    let read = async || client.job(job).await?.ok_or(TestingError::NotFound(job));
    let before = read().await?;
    let run = ManualRun::begin(node).await?;
    let Some(taken) = Box::pin(run.find(&before)).await? else {
        run.end().await?;
        let job = Box::new(read().await?);
        return Err(TestingError::NotRunnable { job });
    };
    let token = taken.token();
    Box::pin(run.execute(taken)).await;
    run.end().await?;
    let history = client.history(job).await?;
    Ok(Ran {
        job: read().await?,
        attempt: history.into_iter().find(|ended| ended.seq == token.seq),
    })
}

/// The result of [`run_job`].
///
/// ```
/// # async fn example(node: &ratchet::Node, id: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// use ratchet::JobState;
/// use ratchet::testing::run_job;
///
/// let ran = run_job(node, id).await?;
/// assert_eq!(ran.job.state, JobState::Succeeded);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ran {
    /// The stored job after the run.
    pub job: JobRecord,
    /// The ended claim of the run. `None` if the node lost the claim, and the claim has not ended
    /// yet.
    pub attempt: Option<Attempt>,
}
