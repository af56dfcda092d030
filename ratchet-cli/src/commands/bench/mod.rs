//! `ratchet bench`: measures the configured database, with jobs in a separate queue.
//!
//! The program `ratchet-bench` compares backends and other job systems on empty databases. This
//! command measures a database in use, so it enqueues few jobs, asks first, and deletes its jobs
//! afterwards.

mod figures;
mod lock;

use std::sync::Arc;
use std::time::Duration;

use ratchet::{Client, Job, JobAction, JobFilter, Name, NewJob, Node, NodeId, Ratchet, RunError};
use ratchet_bench::load::{Clock, Enqueue, Ledger, Nothing, Stuck, enqueue_at, wait_for};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::figures::Figures;
use self::lock::Lock;
use crate::app::App;
use crate::args::Bench;
use crate::confirm::confirm;
use crate::exit::{Failure, Verdict};
use crate::output::{DIM, Table, clean, number, paint};

/// Name of the queue for the jobs of a measurement. Also the name of the lock that prevents
/// concurrent measurements.
const QUEUE: &str = "ratchet-bench";
/// Number of jobs that one call enqueues in the phase `enqueue_in_hundreds`.
const HUNDRED: usize = 100;
/// Maximum duration of a measurement.
const LONGEST: Duration = Duration::from_secs(600);
/// The measurement fails if no job ends for this time.
const STUCK: Duration = Duration::from_secs(30);
/// Interval between two jobs whose start latency is measured.
const PACE: Duration = Duration::from_millis(20);

#[derive(Serialize)]
struct Report {
    backend: &'static str,
    version: String,
    phases: Vec<Figures>,
}

pub(super) async fn run(app: &mut App, what: Bench) -> Result<(), Failure> {
    let client = app.client().await?;
    let info = client.store().info();
    let jobs = u64::from(what.jobs) + u64::from(what.singles) + u64::from(what.latency);
    let question = format!(
        "enqueue and run {} empty jobs on {} {}, and delete them; this slows down other users of \
         the database",
        number(jobs),
        info.backend,
        info.version,
    );
    confirm(&question, what.yes).await?;
    let mut lock = Lock::take(&client).await?;
    let (mut phases, mut runner) = (Vec::new(), None);
    let measured = async {
        tokio::select! {
            measured = measure(&client, &what, &mut phases, &mut runner) => measured,
            _ = tokio::signal::ctrl_c() => Err(Failure::interrupted("interrupted")),
            () = tokio::time::sleep(LONGEST) => {
                Err(Failure::failed("the measurement did not end within 10 minutes")
                    .remedy("Measure with fewer --jobs."))
            }
        }
    };
    let measured = lock.hold(&client, measured).await;
    // Stopping the node and deleting the jobs may also take a while, so the lock is still renewed.
    let stopped = match runner {
        Some(runner) => lock.keep_during(&client, runner.stop()).await,
        None => Ok(()),
    };
    // Only the holder of the lock may delete the jobs.
    let cleaned = lock.hold(&client, clean_up(&client)).await;
    let released = lock.release(&client).await;
    let report = Report {
        backend: info.backend,
        version: info.version,
        phases,
    };
    let ended = measured.and(stopped).and(cleaned).and(released);
    ended.told(show(app, &report))
}

fn show(app: &mut App, report: &Report) -> Result<(), Failure> {
    if app.out.is_json() {
        return app.out.document(report);
    }
    let name = format!("{} {}", report.backend, report.version);
    app.out.line(paint(DIM, clean(&name)))?;
    let mut table = Table::new([
        "MEASURED", ">JOBS", ">JOBS/S", ">P50 MS", ">P95 MS", ">P99 MS", ">MAX MS",
    ]);
    for phase in &report.phases {
        let [p50, p95, p99, max] = phase.in_words();
        table.row([
            phase.phase.replace('_', " ").into(),
            phase.jobs.into(),
            phase.rate().into(),
            p50.into(),
            p95.into(),
            p99.into(),
            max.into(),
        ]);
    }
    app.out.table(&table, "nothing was measured")
}

async fn measure(
    client: &Client,
    what: &Bench,
    phases: &mut Vec<Figures>,
    runner: &mut Option<Runner>,
) -> Result<(), Failure> {
    let [singles, jobs, latency] = [what.singles, what.jobs, what.latency].map(count);
    let load = |jobs, batch| Enqueue {
        jobs,
        batch,
        producers: 1,
    };
    // These jobs have the numbers from `latency` on. The jobs that measure the start latency are
    // enqueued later, but have the numbers below `latency`.
    let job = move |n| new_job(latency + n);
    for (phase, how) in [
        ("enqueue_one_by_one", load(singles, 1)),
        ("enqueue_in_hundreds", load(jobs, HUNDRED)),
    ] {
        let clock = Clock::start();
        let calls = how.run(client, job, |_| {}).await?;
        phases.push(Figures::new(phase, how.jobs, clock.elapsed(), calls));
    }
    let (loaded, ledger) = (singles + jobs, Ledger::new(latency));
    let clock = Clock::start();
    let node = &runner.insert(Runner::start(client, what, &ledger)?).node;
    let finished = || Ok(usize::try_from(node.stats().finished).unwrap_or(usize::MAX));
    wait_for::<Failure>(loaded, STUCK, finished).await?;
    phases.push(Figures::new("drain", loaded, clock.elapsed(), Vec::new()));
    // Enqueues the jobs that measure the start latency. They are enqueued through `client`, not
    // through the node's own client.
    let clock = Clock::start();
    enqueue_at(PACE, client, &ledger, new_job, |_| {}).await?;
    wait_for::<Failure>(loaded + latency, STUCK, finished).await?;
    let waits = ledger.latencies();
    phases.push(Figures::new(
        "start_latency",
        latency,
        clock.elapsed(),
        waits,
    ));
    Ok(())
}

impl From<Stuck> for Failure {
    fn from(Stuck { finished, jobs }: Stuck) -> Self {
        Self::failed(format!(
            "only {finished} of {jobs} jobs have ended, and no other job ended within {} s",
            STUCK.as_secs()
        ))
        .remedy("Check whether the queue `ratchet-bench` is paused. -v shows the logs of the node.")
    }
}

/// The node that runs the jobs of a measurement.
struct Runner {
    node: Node,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), RunError>>,
}

impl Runner {
    fn start(client: &Client, what: &Bench, ledger: &Arc<Ledger>) -> Result<Self, Failure> {
        let node = Ratchet::builder(Arc::clone(client.store()))
            .register::<Nothing>()
            .state(Arc::clone(ledger))
            .queues([QUEUE])
            .system_concurrency(0)
            .concurrency(count(what.handlers))
            .roles(["worker"])
            .label(&format!("{QUEUE} {}", NodeId::new()))
            .build()
            .map_err(|error| Failure::failed(error.to_string()))?;
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn({
            let node = node.clone();
            async move { node.run_until(stopped).await }
        });
        Ok(Self {
            node,
            stop,
            running,
        })
    }

    /// Stops the node. Waits until the node has released its claims and left the cluster.
    async fn stop(self) -> Result<(), Failure> {
        drop(self.stop);
        match self.running.await {
            Ok(ended) => ended.map_err(|error| Failure::failed(error.to_string())),
            Err(error) => Err(Failure::failed(error.to_string())),
        }
    }
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn new_job(n: usize) -> NewJob {
    Nothing::number(n).into_job().queue(QUEUE)
}

/// Cancels the unfinished jobs of the queue [`QUEUE`], and then deletes all jobs of that queue.
async fn clean_up(client: &Client) -> Result<(), Failure> {
    let filter = JobFilter::all().queue(Name::new("queue", QUEUE)?);
    for action in [JobAction::Cancel, JobAction::Delete] {
        client.bulk(filter.clone(), action, u64::MAX).run().await?;
    }
    Ok(())
}
