//! Measures Ratchet through its public interface.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use ratchet::store_api::model::ClaimRequest;
use ratchet::{
    BatchCondition, BatchId, Client, Job, JobAction, JobFilter, NewJob, Node, NodeId,
    NoopCoordinator, Outcome as Ending, Priority, Ratchet, Settlement, SharedStore,
};
use ratchet_bench::figures::Outcome;
use ratchet_bench::load::{Clock, Enqueue, Ledger, Nothing, enqueue_at, wait_for};
use tokio::task::JoinSet;

use crate::Options;
use crate::contend;
use crate::dashboards::Dashboards;
use crate::measure::{Meter, progress};
use crate::recurring;

/// Number of jobs per call, when jobs are enqueued before the measurement.
const LOAD: usize = 500;
/// Maximum number of jobs that each measured claim returns.
const CLAIM: usize = 50;
/// Number of claims to measure.
const CLAIMS: usize = 200;
/// Name of the resource whose permits the jobs need.
const RESOURCE: &str = "bench";
/// Time without progress after which the benchmark fails.
const STUCK: Duration = Duration::from_secs(60);

pub(crate) async fn run(scenario: &'static str, options: &Options) -> Result<Outcome> {
    let stores = connect(options).await?;
    let store = Arc::clone(&stores[0]);
    let queues = store.queues().queues().await?;
    ensure!(
        queues.is_empty(),
        "the database already has jobs; use an empty database"
    );
    let mut outcome = match scenario {
        "enqueue" => enqueue(store, options).await?,
        "drain" => drain(&stores, options).await?,
        "latency" => latency(&stores, options).await?,
        "single" => single(store, options).await?,
        "contend" => contend(&stores, options).await?,
        "recurring" => recurring::run(store, options).await?,
        _ => claim(store, options).await?,
    };
    for store in &stores {
        store.close().await;
    }
    outcome.peer = "ratchet".to_owned();
    outcome.scenario = scenario.to_owned();
    Ok(outcome)
}

async fn enqueue(store: SharedStore, options: &Options) -> Result<Outcome> {
    let client = Ratchet::client(store);
    let meter = Meter::start(&options.url).await?;
    let how = Enqueue {
        jobs: options.jobs,
        batch: options.batch,
        producers: options.producers,
    };
    let keys = options.fair_keys;
    let job = move |n| with_fair_key(Nothing::number(n).into_job(), n, keys);
    enqueue_all(&client, "enqueue", how, job).await?;
    let mut outcome = Outcome::default();
    meter.stop(&mut outcome, options.jobs).await?;
    let stored: u64 = client
        .queues()
        .await?
        .iter()
        .flat_map(|queue| queue.counts.values())
        .sum();
    outcome.missing = options.jobs - usize::try_from(stored)?;
    Ok(outcome)
}

/// Opens one store per node, as nodes in separate processes would. With the in-memory backend, all
/// nodes share one store.
async fn connect(options: &Options) -> Result<Vec<SharedStore>> {
    let mut stores = vec![ratchet::connect(&options.url).await?];
    while stores.len() < options.nodes {
        stores.push(match options.url.as_str() {
            "memory:" => Arc::clone(&stores[0]),
            url => ratchet::connect(url).await?,
        });
    }
    Ok(stores)
}

/// The nodes of a run, which record their jobs in the same ledger.
struct Nodes {
    nodes: Vec<Node>,
    /// The dashboards that watch the first node. `None` if the run has no dashboards.
    dashboards: Option<Dashboards>,
    tasks: JoinSet<Result<(), ratchet::RunError>>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl Nodes {
    async fn build(
        stores: &[SharedStore],
        options: &Options,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let build = |store| {
            Ratchet::builder(store)
                .register::<Nothing>()
                .state(Arc::clone(ledger))
                .concurrency(options.concurrency)
                .build()
        };
        let nodes = stores
            .iter()
            .map(Arc::clone)
            .map(build)
            .collect::<Result<Vec<_>, _>>()?;
        let dashboards = match options.dashboards {
            0 => None,
            count => Some(Dashboards::open(&nodes[0], count).await?),
        };
        Ok(Self {
            nodes,
            dashboards,
            tasks: JoinSet::new(),
            stop: tokio::sync::watch::channel(false).0,
        })
    }

    fn start(&mut self) {
        for node in &self.nodes {
            let node = node.clone();
            let mut stopped = self.stop.subscribe();
            self.tasks.spawn(async move {
                node.run_until(async move { drop(stopped.wait_for(|stop| *stop).await) })
                    .await
            });
        }
    }

    fn finished(&self) -> usize {
        let finished: u64 = self.nodes.iter().map(|node| node.stats().finished).sum();
        usize::try_from(finished).unwrap_or(usize::MAX)
    }

    /// Waits until the nodes have finished `jobs` jobs in total. Fails if a node stops before that.
    async fn wait_for(&mut self, jobs: usize) -> Result<()> {
        let bar = progress("drain", jobs);
        wait_for(jobs, STUCK, || {
            let finished = self.finished();
            bar.set_position(finished as u64);
            if let Some(ended) = self.tasks.try_join_next() {
                ended??;
                bail!("a node stopped before all jobs had ended");
            }
            Ok(finished)
        })
        .await?;
        bar.finish_and_clear();
        Ok(())
    }

    async fn stop(mut self, outcome: &mut Outcome) -> Result<()> {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        outcome.claims = self.nodes.iter().map(|node| node.stats().claim_calls).sum();
        outcome.store_calls = self.nodes.iter().map(|node| node.stats().store_calls).sum();
        if let Some(dashboards) = self.dashboards {
            outcome.events_per_dashboard = Some(dashboards.close().await?);
        }
        Ok(())
    }
}

async fn drain(stores: &[SharedStore], options: &Options) -> Result<Outcome> {
    let client = Ratchet::client(Arc::clone(&stores[0]));
    let mut jobs = options.jobs;
    if options.permits > 0 {
        client.set_permits(RESOURCE, options.permits).await?;
    }
    let needs_permit = options.permits > 0;
    let refine = move |job: NewJob| match needs_permit {
        true => job.permit(RESOURCE),
        false => job,
    };
    if options.in_batch {
        let batch = BatchId::new();
        client.open_batch(batch).await?;
        load(&client, jobs, options, move |_, job| {
            refine(job).in_batch(batch)
        })
        .await?;
        client.close_batch(batch).await?;
        let callback = Nothing::number(jobs).into_job();
        let callback = callback.after_batch(batch, BatchCondition::Ended);
        client.enqueue(callback).await?;
        jobs += 1;
    } else {
        load(&client, jobs, options, move |_, job| refine(job)).await?;
    }
    let work = Duration::from_millis(options.work_ms);
    let ledger = Ledger::with_work(jobs, work);
    let mut nodes = Nodes::build(stores, options, &ledger).await?;
    let meter = Meter::start(&options.url).await?;
    nodes.start();
    nodes.wait_for(jobs).await?;
    let mut outcome = Outcome::default();
    meter.stop(&mut outcome, jobs).await?;
    nodes.stop(&mut outcome).await?;
    ledger.judge(&mut outcome);
    Ok(outcome)
}

async fn latency(stores: &[SharedStore], options: &Options) -> Result<Outcome> {
    let total = options.rate as usize * options.seconds as usize;
    let ledger = Ledger::new(total);
    let without_node = Arc::clone(&stores[0]);
    let mut nodes = Nodes::build(stores, options, &ledger).await?;
    nodes.start();
    let client = match (options.unheard, options.outside) {
        (true, _) => Ratchet::client(without_node).with_coordinator(NoopCoordinator),
        (_, true) => Ratchet::client(without_node),
        _ => nodes.nodes[0].client().clone(),
    };
    let bar = progress("latency", total);
    let meter = Meter::start(&options.url).await?;
    let pace = Duration::from_secs(1) / options.rate;
    let job = |n| Nothing::number(n).into_job();
    enqueue_at(pace, &client, &ledger, job, |jobs| bar.inc(jobs as u64)).await?;
    bar.finish_and_clear();
    nodes.wait_for(total).await?;
    let mut outcome = Outcome::default();
    meter.stop(&mut outcome, total).await?;
    nodes.stop(&mut outcome).await?;
    ledger.judge(&mut outcome);
    outcome.percentiles(ledger.latencies());
    Ok(outcome)
}

async fn contend(stores: &[SharedStore], options: &Options) -> Result<Outcome> {
    let client = Ratchet::client(Arc::clone(&stores[0]));
    load(&client, options.jobs, options, |_, job| job).await?;
    let meter = Meter::start(&options.url).await?;
    let mut outcome = contend::run(stores.to_vec(), options.jobs).await?;
    meter.stop(&mut outcome, options.jobs).await?;
    Ok(outcome)
}

async fn claim(store: SharedStore, options: &Options) -> Result<Outcome> {
    let client = Ratchet::client(Arc::clone(&store));
    let now = store.nodes().database_time().await?;
    // The jobs are up to four hours overdue, so that aging mixes the priorities.
    load(&client, options.backlog, options, move |n, job| {
        let late = Duration::from_secs((n as u64 * 7_919) % 14_400);
        job.priority(Priority::ALL[n % 5]).run_at(now - late)
    })
    .await?;
    let pending = match options.lanes {
        _ if options.idle => 0,
        0 => options.backlog,
        lanes => lanes.min(options.backlog),
    };
    if options.idle {
        let mut all = client.bulk(JobFilter::all(), JobAction::Cancel, u64::MAX);
        all.run().await?;
    }
    let request = ClaimRequest::new(NodeId::new(), CLAIM);
    let mut latencies = Vec::with_capacity(CLAIMS);
    for _ in 0..CLAIMS {
        let clock = Clock::start();
        let claimed = store.jobs().claim_next_batch(&request).await?;
        let elapsed = clock.elapsed();
        ensure!(
            claimed.len() == CLAIM.min(pending),
            "a claim returned fewer jobs than expected"
        );
        latencies.push(elapsed);
        // A released job with a fair key would get a new turn within the next claim.
        let end = |job: &ratchet::store_api::model::ClaimedJob| {
            let outcome = match options.fair_keys {
                0 => Ending::Released,
                _ => Ending::Succeeded { result: None },
            };
            Settlement::new(job.claim.token, outcome)
        };
        store
            .jobs()
            .settle(&claimed.iter().map(end).collect::<Vec<_>>())
            .await?;
    }
    let mut outcome = Outcome::default();
    outcome.timed(CLAIMS * CLAIM.min(pending), latencies.iter().sum());
    outcome.percentiles(latencies);
    outcome.claims = CLAIMS as u64;
    Ok(outcome)
}

/// Claims jobs until it finds the one that was enqueued last. This job has a fair key of its own if
/// the others have fair keys.
async fn single(store: SharedStore, options: &Options) -> Result<Outcome> {
    let client = Ratchet::client(Arc::clone(&store));
    load(&client, options.jobs, options, |_, job| job).await?;
    let mut last = Nothing::number(options.jobs).into_job();
    if options.fair_keys > 0 {
        last = last.fair_key("single");
    }
    client.enqueue(last.clone()).await?;
    let mut outcome = Outcome::default();
    let mut before = 0;
    while outcome.position.is_none() {
        let request = ClaimRequest::new(NodeId::new(), CLAIM);
        let claimed = store.jobs().claim_next_batch(&request).await?;
        ensure!(!claimed.is_empty(), "the single job was not claimed");
        let place = claimed
            .iter()
            .position(|job| job.claim.token.job == last.id());
        outcome.position = place.map(|place| before + place + 1);
        before += claimed.len();
        outcome.claims += 1;
    }
    Ok(outcome)
}

/// Gives a job one of the fair keys of the run, if it has any.
fn with_fair_key(job: NewJob, n: usize, keys: usize) -> NewJob {
    match keys {
        0 => job,
        keys => job.fair_key(&format!("key {}", n % keys)),
    }
}

/// Enqueues `count` jobs before the measurement. Distributes them over `lanes` lanes if `lanes` is
/// not 0.
async fn load(
    client: &Client,
    count: usize,
    options: &Options,
    refine: impl Fn(usize, NewJob) -> NewJob + Clone + Send + 'static,
) -> Result<()> {
    let how = Enqueue {
        jobs: count,
        batch: LOAD,
        producers: 1,
    };
    let (lanes, keys, queues) = (options.lanes, options.fair_keys, options.queues);
    let job = move |n| {
        let job = refine(n, Nothing::number(n).into_job());
        let job = with_fair_key(job, n, keys);
        let job = match queues {
            0 => job,
            queues => job.queue(&format!("queue {}", n % queues)),
        };
        match lanes {
            0 => job,
            lanes => job.lane(&format!("lane {}", n % lanes)),
        }
    };
    enqueue_all(client, "load", how, job).await
}

async fn enqueue_all(
    client: &Client,
    what: &'static str,
    how: Enqueue,
    job: impl Fn(usize) -> NewJob + Clone + Send + 'static,
) -> Result<()> {
    let bar = progress(what, how.jobs);
    let shown = bar.clone();
    let done = move |jobs| shown.inc(jobs as u64);
    how.run(client, job, done).await?;
    bar.finish_and_clear();
    Ok(())
}
