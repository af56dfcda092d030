//! Measures Ratchet, and for comparison a hand-written loop without a library (the *floor*).
//!
//! Prints one line of JSON to stdout. Handlers do nothing, so the figures show the cost of the
//! queue.
#![expect(clippy::print_stdout, reason = "this is a command-line tool")]

mod cluster;
mod contend;
mod dashboards;
mod floor;
mod gauges;
mod measure;
mod ours;
mod recurring;
mod server;
mod sizes;
mod soak;

use self::server::on_database;
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
    /// Enqueue jobs from several producers, until all jobs are durable
    Enqueue(Options),
    /// Run jobs that were stored before the measurement and do nothing, until every completion is
    /// durable
    Drain(Options),
    /// Enqueue at a fixed rate, and measure the time from the return of the enqueue to the
    /// handler's start
    Latency(Options),
    /// Measure how long a claim of 50 jobs takes, with aging and a backlog of mixed priorities
    Claim(Options),
    /// Enqueue jobs, and then a single job of another fair key, and print at which position it is
    /// claimed
    Single(Options),
    /// Claim and settle jobs, 50 at a time, from several concurrent claimers (their number is
    /// --nodes)
    Contend(Options),
    /// Run one node with recurring definitions that fire every second (their number is --jobs), and
    /// measure the time from each slot to the handler's start
    Recurring(Options),
    /// Run many nodes, idle or with jobs at a fixed rate, and measure the load on the database
    /// server
    Cluster(cluster::Options),
    /// Run millions of jobs through one database that deletes them again, and compare the tenths of
    /// the run: rate, latency, sizes and memory
    Soak(soak::Options),
    /// Simulate dashboards that watch a node; a benchmark run starts this command as a separate
    /// process
    #[command(hide = true)]
    Watch(dashboards::Watch),
}

#[derive(Args, Clone)]
struct Options {
    /// The program to measure
    #[arg(long, value_enum, default_value = "ratchet")]
    peer: Peer,
    /// The URL of an empty database, or with --fresh the URL of a database server: memory:,
    /// sqlite://FILE, postgres://…, mysql://…, sqlserver://… or mongodb://…
    #[arg(long)]
    url: String,
    /// Number of jobs to enqueue, drain or contend for; number of definitions (recurring)
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Number of concurrent producers
    #[arg(long, default_value_t = 8)]
    producers: usize,
    /// Number of jobs per enqueue call
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Maximum number of bodies that run at once on each node
    #[arg(long, default_value_t = 32)]
    concurrency: usize,
    /// Number of nodes
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Number of jobs to enqueue per second (latency)
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Duration of the load, in seconds (latency, recurring)
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Enqueue without sending wakeups, so that nodes find jobs only by polling (latency)
    #[arg(long)]
    unheard: bool,
    /// Enqueue with a client that does not belong to a node (latency)
    #[arg(long)]
    outside: bool,
    /// Number of jobs to enqueue before claims are measured (claim)
    #[arg(long, default_value_t = 1_000)]
    backlog: usize,
    /// Number of lanes over which to distribute the jobs, or 0 for no lanes; only the first job of
    /// each lane is pending (claim, drain, contend)
    #[arg(long, default_value_t = 0)]
    lanes: usize,
    /// Number of fair keys over which to distribute the jobs, or 0 for no fair keys (enqueue,
    /// claim, drain, single)
    #[arg(long, default_value_t = 0)]
    fair_keys: usize,
    /// Number of queues over which to distribute the jobs, or 0 for the default queue (claim,
    /// drain)
    #[arg(long, default_value_t = 0)]
    queues: usize,
    /// Cancel the jobs before claims are measured, so that they find none (claim)
    #[arg(long)]
    idle: bool,
    /// Put the jobs into one batch, and run one more job after the batch has ended (drain)
    #[arg(long)]
    in_batch: bool,
    /// Number of permits of a resource that each job needs to run, or 0 for no permits (drain)
    #[arg(long, default_value_t = 0)]
    permits: u32,
    /// Time that each body sleeps, in milliseconds (drain)
    #[arg(long, default_value_t = 0)]
    work_ms: u64,
    /// Create a database on the server for this run, and drop it at the end (PostgreSQL, MySQL,
    /// SQL Server, MongoDB)
    #[arg(long)]
    fresh: bool,
    /// Count the SQL statements; requires --fresh, and a PostgreSQL server that has loaded
    /// pg_stat_statements
    #[arg(long, requires = "fresh")]
    count: bool,
    /// Number of dashboards to open on the first node, in a separate process (drain, latency)
    #[arg(long, default_value_t = 0)]
    dashboards: usize,
    /// Keep a REPEATABLE READ transaction open during the run (PostgreSQL)
    #[arg(long)]
    held_snapshot: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// This library, with its default settings
    Ratchet,
    /// A hand-written loop that uses only the database driver
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
        Scenario::Single(options) => ("single", options),
        Scenario::Contend(options) => ("contend", options),
        Scenario::Recurring(options) => ("recurring", options),
        Scenario::Cluster(options) => {
            println!("{}", cluster::run(options).await?);
            return Ok(());
        }
        Scenario::Soak(options) => {
            println!("{}", soak::run(options).await?);
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
        "--in-batch can be used only with `drain`"
    );
    let url = options.url.clone();
    let outcome = on_database(&url, options.fresh, options.count, async |url| {
        url.clone_into(&mut options.url);
        run(name, &options).await
    });
    println!("{}", serde_json::to_string(&outcome.await?)?);
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
