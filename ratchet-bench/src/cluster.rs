//! Measures what a cluster costs its database: many nodes that are idle, or work at a fixed rate.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use ratchet::{Client, Job, Node, NodeStats, NodeStatus, Ratchet, RunError, SharedStore};
use ratchet_bench::figures::{Outcome, percentiles};
use ratchet_bench::load::{Clock, Ledger, Nothing, enqueue_at};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::gauges::{Gauges, Work};
use crate::server::on_database;

/// How long nodes may take to start, or to elect a leader.
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Args, Clone)]
pub(crate) struct Options {
    /// The URL of an empty database, or of a server with --fresh
    #[arg(long)]
    url: String,
    /// Number of nodes
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// Nodes that share a store, and so its connections
    #[arg(long, default_value_t = 10)]
    per_store: usize,
    /// Seconds from the election of a leader to the measurement
    #[arg(long, default_value_t = 20)]
    warmup: u32,
    /// Seconds of the measurement
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// The nodes' idle interval in seconds, for databases that suspend when they are idle
    #[arg(long)]
    idle_interval: Option<u32>,
    /// Jobs per second, enqueued by a client that belongs to no node; 0 means idle nodes
    #[arg(long, default_value_t = 0)]
    rate: u32,
    /// Create a database on the server for this run, and drop it at the end (PostgreSQL, SQL
    /// Server, MongoDB)
    #[arg(long)]
    fresh: bool,
    /// Count the statements; requires --fresh, and a server that has loaded pg_stat_statements
    #[arg(long, requires = "fresh")]
    count: bool,
    /// Also print this many of the most frequent statements, on stderr; requires --count
    #[arg(long, default_value_t = 0, requires = "count")]
    top: u32,
}

/// The result of a run.
#[derive(Debug, Serialize)]
struct Figures {
    nodes: usize,
    rate: u32,
    /// Seconds from the start of the first node until all nodes are registered.
    registered_s: f64,
    /// Seconds from the start of the first node until a node leads.
    elected_s: f64,
    /// Calls of the store, per node and minute.
    store_calls: f64,
    /// The work of the server, per node and minute.
    per_node_minute: Work,
    /// The work of the server, per job.
    per_job: Option<Work>,
    /// The claims, per job.
    claims_per_job: Option<f64>,
    /// The 50th, 95th and 99th percentile and the maximum of the start latencies, in milliseconds.
    /// A start latency is the time from the return of an enqueue to the start of the body.
    start_ms: Option<[f64; 4]>,
    /// Jobs that did not run.
    missing: usize,
    /// Jobs that ran more than once.
    duplicates: usize,
}

/// Runs the scenario, and prints its figures as one line of JSON.
pub(crate) async fn run(mut options: Options) -> Result<String> {
    ensure!(options.nodes > 0, "--nodes must be at least 1");
    ensure!(options.per_store > 0, "--per-store must be at least 1");
    ensure!(options.seconds > 0, "--seconds must be at least 1");
    let url = options.url.clone();
    let figures = on_database(&url, options.fresh, options.count, async |url| {
        url.clone_into(&mut options.url);
        measure(&options).await
    });
    Ok(serde_json::to_string(&figures.await?)?)
}

async fn measure(options: &Options) -> Result<Figures> {
    let mut stores: Vec<SharedStore> = Vec::new();
    for _ in 0..options.nodes.div_ceil(options.per_store) {
        stores.push(ratchet::connect(&options.url).await?);
    }
    let outside = Ratchet::client(ratchet::connect(&options.url).await?);
    let jobs = options.rate as usize * options.seconds as usize;
    let ledger = Ledger::new(jobs);
    let cluster = Cluster::build(&stores, options, &ledger)?;
    let mut gauges = Gauges::open(&options.url).await?;
    let clock = Clock::start();
    let (stop, mut tasks) = cluster.start();
    let elected_s = cluster.wait_until_led(&outside, clock).await?;
    let registered_s = cluster.wait_until_registered(&outside, clock).await?;
    tokio::time::sleep(Duration::from_secs(options.warmup.into())).await;
    let (before, calls) = (gauges.read().await?, cluster.stats());
    if options.rate == 0 {
        tokio::time::sleep(Duration::from_secs(options.seconds.into())).await;
    } else {
        let pace = Duration::from_secs(1) / options.rate;
        let job = |n| Nothing::number(n).into_job();
        enqueue_at(pace, &outside, &ledger, job, |_| {}).await?;
    }
    let (work, stats) = (gauges.read().await? - before, cluster.stats());
    for (calls, rows, text) in gauges.statements(options.top.into()).await? {
        eprintln!(
            "{calls:8} calls {rows:8} rows  {}",
            &text[..text.len().min(120)]
        );
    }
    let mut judged = Outcome::default();
    stop.send_replace(true);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    ledger.judge(&mut judged);
    for store in &stores {
        store.close().await;
    }
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let ratio = |count: u64, of: f64| (count as f64 / of * 1e3).round() / 1e3;
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (node_minutes, all_jobs) = (
        options.nodes as f64 * f64::from(options.seconds) / 60.0,
        jobs as f64,
    );
    Ok(Figures {
        nodes: options.nodes,
        rate: options.rate,
        registered_s,
        elected_s,
        store_calls: ratio(stats.store_calls - calls.store_calls, node_minutes),
        per_node_minute: work.per(node_minutes),
        per_job: (jobs > 0).then(|| work.per(all_jobs)),
        claims_per_job: (jobs > 0).then(|| ratio(stats.claim_calls - calls.claim_calls, all_jobs)),
        start_ms: percentiles(ledger.latencies()),
        missing: judged.missing,
        duplicates: judged.duplicates,
    })
}

/// The nodes of a run.
struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    fn build(stores: &[SharedStore], options: &Options, ledger: &Arc<Ledger>) -> Result<Self> {
        let build = |n: usize| {
            let builder = Ratchet::builder(Arc::clone(&stores[n / options.per_store]))
                .register::<Nothing>()
                .state(Arc::clone(ledger));
            let seconds = |seconds: u32| Duration::from_secs(seconds.into());
            match options.idle_interval.map(seconds) {
                Some(interval) => builder.idle_interval(interval),
                None => builder,
            }
            .build()
        };
        let nodes = (0..options.nodes).map(build).collect::<Result<_, _>>()?;
        Ok(Self { nodes })
    }

    /// Starts all nodes at once. The nodes run until the caller sends `true` with the returned
    /// sender.
    fn start(&self) -> (watch::Sender<bool>, JoinSet<Result<(), RunError>>) {
        let stop = watch::channel(false).0;
        let mut tasks = JoinSet::new();
        for node in &self.nodes {
            let (node, mut stopped) = (node.clone(), stop.subscribe());
            tasks.spawn(async move {
                let stopped = async move { drop(stopped.wait_for(|stop| *stop).await) };
                node.run_until(stopped).await
            });
        }
        (stop, tasks)
    }

    /// Waits until all nodes are registered, and returns the seconds that have passed since
    /// `start`.
    async fn wait_until_registered(&self, client: &Client, start: Clock) -> Result<f64> {
        loop {
            let nodes = client.nodes().await?;
            let active = nodes
                .iter()
                .filter(|node| node.status == NodeStatus::Active);
            let active = active.count();
            if active == self.nodes.len() {
                return Ok(start.elapsed().as_secs_f64());
            }
            ensure!(
                start.elapsed() < LONGEST,
                "expected all nodes to be registered, found only {active}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a node leads a role, and returns the seconds that have passed since `start`.
    async fn wait_until_led(&self, client: &Client, start: Clock) -> Result<f64> {
        while client.leaders(&client.nodes().await?).await?.is_empty() {
            ensure!(start.elapsed() < LONGEST, "no node leads");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Returns the sums of the nodes' counters.
    fn stats(&self) -> Calls {
        let sum =
            |read: fn(&NodeStats) -> u64| self.nodes.iter().map(|node| read(&node.stats())).sum();
        Calls {
            store_calls: sum(|stats| stats.store_calls),
            claim_calls: sum(|stats| stats.claim_calls),
        }
    }
}

/// The numbers of calls that all nodes together have made.
struct Calls {
    store_calls: u64,
    claim_calls: u64,
}
