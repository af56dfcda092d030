//! `ratchet bench`: what this database does, measured in a queue of its own.
//!
//! `ratchet-bench` compares databases and peers on empty ones; this looks at one in use, so it is
//! small, asks first, and leaves no job behind.

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
    // The data belongs to the holder of the lock.
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
    // The jobs whose start is measured are enqueued last, and have the first numbers.
    let load = |jobs, batch| Enqueue {
        jobs,
        batch,
        producers: 1,
    };
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
    // By another client than the node's.
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
            "{finished} of {jobs} jobs ended, and then none for {} s",
            STUCK.as_secs()
        ))
        .remedy("Is the queue `ratchet-bench` paused? -v shows what the node says.")
    }
}

/// The node, which runs until it is stopped.
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

fn new_job(n: usize) -> NewJob {
    Nothing::number(n).into_job().queue(QUEUE)
}

/// Cancels what is left, and deletes every job of the queue.
async fn clean_up(client: &Client) -> Result<(), Failure> {
    let filter = JobFilter::all().queue(Name::new("queue", QUEUE)?);
    for action in [JobAction::Cancel, JobAction::Delete] {
        client.bulk(filter.clone(), action, u64::MAX).run().await?;
    }
    Ok(())
}
