//! `ratchet bench`: what this database does, measured in a queue of its own.
//!
//! `ratchet-bench` compares databases and peers on empty ones; this looks at one in use, so it is
//! small, asks first, and leaves no job behind.

mod figures;
mod job;
mod lock;

use std::sync::Arc;
use std::time::Duration;

use ratchet::store_api::time::monotonic;
use ratchet::{Client, Job, JobAction, JobFilter, Name, NewJob, Node, NodeId, Ratchet, RunError};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::figures::Figures;
use self::job::{Nothing, Seen};
use self::lock::Lock;
use crate::app::App;
use crate::args::Bench;
use crate::confirm::confirm;
use crate::exit::{Failure, Verdict};
use crate::output::{DIM, Table, clean, number, paint};

/// The queue of the jobs, and the lock that keeps measurements apart.
const QUEUE: &str = "ratchet-bench";
/// How many jobs an enqueue takes.
const HUNDRED: usize = 100;
/// How long a measurement may take.
const LONGEST: Duration = Duration::from_secs(600);
/// How long nothing may end before the measurement is given up.
const STUCK: Duration = Duration::from_secs(30);
/// Between two jobs whose start is measured.
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
        "enqueue and run {} empty jobs on {} {}, and delete them; whatever else uses the database \
         is slower meanwhile",
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
                Err(Failure::failed("it takes longer than 10 minutes")
                    .remedy("Measure with fewer --jobs."))
            }
        }
    };
    let measured = lock.hold(&client, measured).await;
    // Either of these may take a while, too.
    let stopped = match runner {
        Some(runner) => lock.keep_during(&client, runner.stop()).await,
        None => Ok(()),
    };
    // What is there belongs to somebody else if the lock does.
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
    phases.push(enqueue(client, "enqueue_one_by_one", singles, 1).await?);
    phases.push(enqueue(client, "enqueue_in_hundreds", jobs, HUNDRED).await?);
    let seen = Arc::new(Seen::new(latency));
    let began = monotonic();
    let node = &runner.insert(Runner::start(client, what, &seen)?).node;
    wait_for(node, singles + jobs).await?;
    phases.push(Figures::rate_of(
        "drain",
        singles + jobs,
        monotonic() - began,
    ));
    phases.push(start_latency(client, node, &seen, singles + jobs, latency).await?);
    Ok(())
}

/// The node, which runs until it is stopped.
struct Runner {
    node: Node,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), RunError>>,
}

impl Runner {
    fn start(client: &Client, what: &Bench, seen: &Arc<Seen>) -> Result<Self, Failure> {
        let node = Ratchet::builder(Arc::clone(client.store()))
            .register::<Nothing>()
            .state(Arc::clone(seen))
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

    /// Lets it hand back what it has, and leave.
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

fn new_job(number: Option<usize>) -> NewJob {
    Nothing { number }.into_job().queue(QUEUE)
}

async fn enqueue(
    client: &Client,
    phase: &'static str,
    jobs: usize,
    batch: usize,
) -> Result<Figures, Failure> {
    let began = monotonic();
    let mut calls = Vec::new();
    for first in (0..jobs).step_by(batch) {
        let batch: Vec<NewJob> = (first..jobs.min(first + batch))
            .map(|_| new_job(None))
            .collect();
        let call = monotonic();
        client.enqueue_all(&batch).await?;
        calls.push(monotonic() - call);
    }
    Ok(Figures::new(phase, jobs, monotonic() - began, calls))
}

/// Waits until so many jobs have ended.
async fn wait_for(node: &Node, jobs: usize) -> Result<(), Failure> {
    let (mut last, mut since) = (0, monotonic());
    loop {
        let finished = usize::try_from(node.stats().finished).unwrap_or(usize::MAX);
        if finished >= jobs {
            return Ok(());
        }
        if finished > last {
            (last, since) = (finished, monotonic());
        }
        if monotonic() - since > STUCK {
            let message = format!("{finished} of {jobs} jobs ended, and then none for 30 s");
            return Err(Failure::failed(message)
                .remedy("Is the queue `ratchet-bench` paused? -v shows what the node says."));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// From the return of an enqueue by another client than the node's to the start of the body.
async fn start_latency(
    client: &Client,
    node: &Node,
    seen: &Seen,
    before: usize,
    jobs: usize,
) -> Result<Figures, Failure> {
    let began = monotonic();
    let mut pace = tokio::time::interval(PACE);
    for number in 0..jobs {
        pace.tick().await;
        client.enqueue(new_job(Some(number))).await?;
        seen.sent(number);
    }
    wait_for(node, before + jobs).await?;
    let took = monotonic() - began;
    Ok(Figures::new("start_latency", jobs, took, seen.latencies()))
}

/// Cancels what is left, and deletes every job of the queue.
async fn clean_up(client: &Client) -> Result<(), Failure> {
    let filter = JobFilter::all().queue(Name::new("queue", QUEUE)?);
    for action in [JobAction::Cancel, JobAction::Delete] {
        client.bulk(filter.clone(), action, u64::MAX).run().await?;
    }
    Ok(())
}
