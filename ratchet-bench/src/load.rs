//! Jobs that do nothing, and the measurement of their times.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ratchet::store_api::time::monotonic;
use ratchet::{Client, Job, JobContext, JobResult, NewJob, Requires, StoreError};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::figures::Outcome;

/// The job that every benchmark runs. Its payload is a number and 64 bytes of text. Its body does
/// nothing, or sleeps if the [`Ledger`] was created with [`with_work`](Ledger::with_work).
#[derive(Debug, Serialize, Deserialize)]
pub struct Nothing {
    /// The number of the job in the [`Ledger`].
    pub n: usize,
    text: String,
}

impl Nothing {
    /// Creates the job with the number `n`.
    #[must_use]
    pub fn number(n: usize) -> Self {
        Self {
            n,
            text: "0123456789abcdef".repeat(4),
        }
    }
}

impl Job for Nothing {
    const KIND: &'static str = "ratchet-bench";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let ledger = ctx.state::<Arc<Ledger>>();
        ledger.began(self.n);
        if !ledger.work.is_zero() {
            tokio::time::sleep(ledger.work).await;
        }
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<Ledger>>()
    }
}

/// Records how often each job ran, when its enqueue returned, and when its body began. Ignores a
/// job whose number is too large for the ledger.
#[derive(Debug)]
pub struct Ledger {
    clock: Clock,
    jobs: Vec<Entry>,
    work: Duration,
}

/// Data about one job: how often it ran, and two times in nanoseconds since the ledger was created.
/// The time of an event is 0 until the event happens.
#[derive(Debug, Default)]
struct Entry {
    runs: AtomicU32,
    sent: AtomicU64,
    began: AtomicU64,
}

impl Ledger {
    /// Creates a ledger for the jobs with the numbers from 0 to `jobs - 1`.
    #[must_use]
    pub fn new(jobs: usize) -> Arc<Self> {
        Self::with_work(jobs, Duration::ZERO)
    }

    /// Creates a ledger in the same way as [`new`](Self::new). The body of each job sleeps for the
    /// time `work`.
    #[must_use]
    pub fn with_work(jobs: usize, work: Duration) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::start(),
            jobs: (0..jobs).map(|_| Entry::default()).collect(),
            work,
        })
    }

    /// Records that the enqueue of job `n` has returned.
    pub fn sent(&self, n: usize) {
        if let Some(job) = self.jobs.get(n) {
            job.sent.store(self.clock.nanos(), Ordering::Relaxed);
        }
    }

    /// Records that the body of job `n` has begun.
    pub fn began(&self, n: usize) {
        if let Some(job) = self.jobs.get(n) {
            job.began.store(self.clock.nanos(), Ordering::Relaxed);
            job.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the start latency of each job whose body has begun: the time from the return of its
    /// enqueue to the start of its body. The latency is 0 if the body began before the enqueue
    /// returned.
    #[must_use]
    pub fn latencies(&self) -> Vec<Duration> {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let began = self.jobs.iter().filter(|job| read(&job.began) > 0);
        let waits = began.map(|job| read(&job.began).saturating_sub(read(&job.sent)));
        waits.map(Duration::from_nanos).collect()
    }

    /// Counts the jobs that did not run, and the jobs that ran more than once. Stores both numbers
    /// in `outcome`.
    pub fn judge(&self, outcome: &mut Outcome) {
        let runs = || self.jobs.iter().map(|job| job.runs.load(Ordering::Relaxed));
        outcome.missing = runs().filter(|runs| *runs == 0).count();
        outcome.duplicates = runs().filter(|runs| *runs > 1).count();
    }
}

/// A stopwatch.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts a stopwatch.
    #[must_use]
    pub fn start() -> Self {
        Self(monotonic())
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        monotonic() - self.0
    }

    /// Returns the nanoseconds since the start. Returns at least 1, because a [`Ledger`] uses 0 for
    /// events that have not happened yet.
    fn nanos(self) -> u64 {
        let nanos = self.elapsed().as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX).max(1)
    }
}

/// The parameters for enqueueing a number of jobs.
#[derive(Clone, Copy, Debug)]
pub struct Enqueue {
    /// The total number of jobs.
    pub jobs: usize,
    /// The number of jobs that each call enqueues.
    pub batch: usize,
    /// The number of calls that run at the same time.
    pub producers: usize,
}

impl Enqueue {
    /// Enqueues the jobs with the numbers from 0 to `self.jobs - 1`. `job` creates each job from
    /// its number. When a call has stored its jobs durably, passes their number to `done`. Returns
    /// the time that each call took.
    ///
    /// # Errors
    /// The error of the first call that fails. The other calls are then dropped.
    ///
    /// # Panics
    /// If `job` or `done` panics.
    pub async fn run(
        self,
        client: &Client,
        job: impl Fn(usize) -> NewJob + Clone + Send + 'static,
        done: impl Fn(usize) + Clone + Send + 'static,
    ) -> Result<Vec<Duration>, StoreError> {
        let next = Arc::new(AtomicUsize::new(0));
        let mut producers = JoinSet::new();
        for _ in 0..self.producers {
            let (client, next) = (client.clone(), Arc::clone(&next));
            let (job, done) = (job.clone(), done.clone());
            producers.spawn(async move {
                let mut calls = Vec::new();
                loop {
                    let first = next.fetch_add(self.batch, Ordering::Relaxed);
                    if first >= self.jobs {
                        return Ok(calls);
                    }
                    let last = self.jobs.min(first + self.batch);
                    let jobs: Vec<NewJob> = (first..last).map(&job).collect();
                    let clock = Clock::start();
                    client.enqueue_all(&jobs).await?;
                    calls.push(clock.elapsed());
                    done(jobs.len());
                }
            });
        }
        let mut calls = Vec::new();
        while let Some(ended) = producers.join_next().await {
            let ended: Result<Vec<Duration>, StoreError> = joined(ended);
            calls.extend(ended?);
        }
        Ok(calls)
    }
}

/// Enqueues one job per interval `pace`, without waiting for earlier calls. Records in the ledger
/// when each call returns. `job` creates each job from its number. Calls `done(1)` after starting
/// each call.
///
/// # Errors
/// The error of a failed call. After the failure, the function starts no further calls, and waits
/// until the other calls have ended.
///
/// # Panics
/// If `job` or `done` panics.
pub async fn enqueue_at(
    pace: Duration,
    client: &Client,
    ledger: &Arc<Ledger>,
    job: impl Fn(usize) -> NewJob,
    done: impl Fn(usize),
) -> Result<(), StoreError> {
    let mut ticks = tokio::time::interval(pace);
    let mut calls = JoinSet::new();
    for n in 0..ledger.jobs.len() {
        ticks.tick().await;
        let (client, ledger, job) = (client.clone(), Arc::clone(ledger), job(n));
        calls.spawn(async move {
            client.enqueue(job).await?;
            ledger.sent(n);
            Ok(())
        });
        done(1);
        if let Some(Err(error)) = calls.try_join_next().map(joined) {
            all_ended(&mut calls).await;
            return Err(error);
        }
    }
    let mut ended = Ok(());
    while let Some(call) = calls.join_next().await {
        ended = ended.and(joined::<Result<(), StoreError>>(call));
    }
    ended
}

/// Waits until all calls have ended, and ignores their results. The calls are not dropped, because
/// a dropped call could still store its job later.
async fn all_ended(calls: &mut JoinSet<Result<(), StoreError>>) {
    while calls.join_next().await.is_some() {}
}

fn joined<T>(ended: Result<T, tokio::task::JoinError>) -> T {
    match ended {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => unreachable!("the task should never be cancelled: {error}"),
        },
    }
}

/// The error of [`wait_for`] if no further job ends in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The number of jobs that have ended.
    pub finished: usize,
    /// The number of jobs that were expected to end.
    pub jobs: usize,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no more jobs ended after {} of {} jobs",
            self.finished, self.jobs
        )
    }
}

impl std::error::Error for Stuck {}

/// Waits until `jobs` jobs have ended. Repeatedly calls `finished`, which returns the number of
/// jobs that have ended so far.
///
/// # Errors
/// The error of `finished`. [`Stuck`] if no further job ends within the time `longest`.
pub async fn wait_for<E: From<Stuck>>(
    jobs: usize,
    longest: Duration,
    mut finished: impl FnMut() -> Result<usize, E>,
) -> Result<(), E> {
    let (mut seen, mut since) = (0, Clock::start());
    loop {
        let finished = finished()?;
        if finished >= jobs {
            return Ok(());
        }
        if finished > seen {
            (seen, since) = (finished, Clock::start());
        }
        if since.elapsed() > longest {
            return Err(Stuck { finished, jobs }.into());
        }
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}
