//! Measures Ratchet, and for comparison a hand-written loop without a library (the *floor*).
//!
//! Prints one line of JSON to stdout. Handlers do nothing, so the figures show the cost of the
//! queue.
#![expect(clippy::print_stdout, reason = "a command line tool")]

mod cluster;
mod contend;
mod dashboards;
mod floor;
mod gauges;
mod measure;
mod ours;
mod recurring;
mod server;

use self::server::Fresh;
use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ratchet_bench::figures::Outcome;

#[derive(Parser)]
#[command(version, about = "Load generator and benchmark of Ratchet")]
struct Cli {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// Enqueue jobs from several producers, until all are durable
    Enqueue(Options),
    /// Run preloaded no-op jobs, until every completion is durable
    Drain(Options),
    /// Enqueue at a fixed rate, and measure the time from the return of the enqueue to the
    /// handler's start
    Latency(Options),
    /// Measure claims of 50 jobs with a backlog of mixed priorities, with aging on
    Claim(Options),
    /// Repeatedly claim and settle 50 jobs, by this many claimers (--nodes) at once
    Contend(Options),
    /// Run one node on which this many definitions (--jobs) fire every second, and measure the time
    /// from each slot to the handler's start
    Recurring(Options),
    /// Run many nodes, idle or at a fixed rate of jobs, and count what they cost the server
    Cluster(cluster::Options),
    /// Open the dashboards of a run; the run starts this command as a separate process
    #[command(hide = true)]
    Watch(dashboards::Watch),
}

#[derive(Args, Clone)]
struct Options {
    /// The program to measure
    #[arg(long, value_enum, default_value = "ratchet")]
    peer: Peer,
    /// The URL of an empty database, or of a server with --fresh: memory:, sqlite://FILE,
    /// postgres://…, sqlserver://… or mongodb://…
    #[arg(long)]
    url: String,
    /// Jobs to enqueue or to drain
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Concurrent producers
    #[arg(long, default_value_t = 8)]
    producers: usize,
    /// Jobs per enqueue call
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Concurrent bodies per node
    #[arg(long, default_value_t = 32)]
    concurrency: usize,
    /// Number of nodes
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Jobs per second
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Seconds of load
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Enqueue without waking any node, so that only polling finds the jobs (latency)
    #[arg(long)]
    unheard: bool,
    /// Enqueue from a client that belongs to no node (latency)
    #[arg(long)]
    outside: bool,
    /// Pending jobs before claims are measured
    #[arg(long, default_value_t = 1_000)]
    backlog: usize,
    /// Distribute the jobs over this many lanes (claim, drain); only the head of each lane is
    /// pending
    #[arg(long, default_value_t = 0)]
    lanes: usize,
    /// Put the jobs into one batch, and run one more job after it (drain)
    #[arg(long)]
    in_batch: bool,
    /// Let each job need a permit of a resource that has this many; 0 means none (drain)
    #[arg(long, default_value_t = 0)]
    permits: u32,
    /// Milliseconds that each body sleeps (drain)
    #[arg(long, default_value_t = 0)]
    work_ms: u64,
    /// Create a database on the server for this run, and drop it at the end (PostgreSQL, SQL
    /// Server, MongoDB)
    #[arg(long)]
    fresh: bool,
    /// Count the statements; requires --fresh, and a server that has loaded pg_stat_statements
    #[arg(long, requires = "fresh")]
    count: bool,
    /// Open this many dashboards on the first node, in a separate process (drain, latency)
    #[arg(long, default_value_t = 0)]
    dashboards: usize,
    /// Keep a REPEATABLE READ transaction open during the run (PostgreSQL)
    #[arg(long)]
    held_snapshot: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// This library, with its defaults
    Ratchet,
    /// A loop written by hand with the driver alone
    Floor,
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let (name, mut options) = match Cli::parse().scenario {
        Scenario::Enqueue(options) => ("enqueue", options),
        Scenario::Drain(options) => ("drain", options),
        Scenario::Latency(options) => ("latency", options),
        Scenario::Claim(options) => ("claim", options),
        Scenario::Contend(options) => ("contend", options),
        Scenario::Recurring(options) => ("recurring", options),
        Scenario::Cluster(options) => {
            println!("{}", cluster::run(options).await?);
            return Ok(());
        }
        Scenario::Watch(watch) => return dashboards::watch(&watch).await,
    };
    for (flag, value) in [
        ("--jobs", options.jobs),
        ("--producers", options.producers),
        ("--batch", options.batch),
        ("--concurrency", options.concurrency),
        ("--nodes", options.nodes),
        ("--backlog", options.backlog),
    ] {
        ensure!(value > 0, "{flag} must be at least 1");
    }
    ensure!(
        options.rate > 0 && options.seconds > 0,
        "--rate and --seconds must be at least 1"
    );
    ensure!(
        !options.in_batch || name == "drain",
        "--in-batch is for `drain` only"
    );
    let fresh = match options.fresh {
        true => Some(Fresh::create(&options.url, options.count).await?),
        false => None,
    };
    if let Some(fresh) = &fresh {
        options.url.clone_from(&fresh.url);
    }
    let outcome = run(name, &options).await;
    if let Some(fresh) = fresh {
        fresh.remove().await?;
    }
    println!("{}", serde_json::to_string(&outcome?)?);
    Ok(())
}

async fn run(scenario: &'static str, options: &Options) -> Result<Outcome> {
    let _held = match options.held_snapshot {
        true => Some(server::hold_snapshot(&options.url).await?),
        false => None,
    };
    let mut outcome = match options.peer {
        Peer::Ratchet => ours::run(scenario, options).await?,
        Peer::Floor => floor::run(scenario, options).await?,
    };
    outcome.backend = options.url.split(':').next().unwrap_or_default().to_owned();
    Ok(outcome)
}
