//! A custom coordinator: wakeups over Redis, from one process to a node in another.
//!
//! ```sh
//! redis-server --port 6379 &
//! cargo run --release -p custom-coordinator-example [-- redis://127.0.0.1:6379/]
//! ```
//!
//! The jobs are in a SQLite file, which both processes open. The node polls every five seconds, and
//! a wakeup makes the node poll at once. If you stop Redis, jobs still run, but only after the next
//! regular poll.
//!
//! The coordinator is in `lib.rs`; `tests/conformance.rs` runs the conformance suite on it.
#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use custom_coordinator_example::RedisCoordinator;
use ratchet::{Client, Job, JobContext, JobResult, Ratchet};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// A job that prints the id of the process in which it runs.
#[derive(Serialize, Deserialize)]
struct Hello;

impl Job for Hello {
    const KIND: &'static str = "hello";
    type Output = ();

    async fn run(self, _ctx: JobContext) -> JobResult<()> {
        println!("    process {}: the job runs here", std::process::id());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("custom_coordinator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => show("redis://127.0.0.1:6379/").await,
        ["node", database, redis] => node(database, redis).await,
        [redis] => show(redis).await,
        _ => bail!("usage: custom_coordinator [REDIS_URL]"),
    }
}

/// Returns the name of the Redis channel for this database.
fn channel(database: &str) -> String {
    format!("ratchet:wakeups:{database}")
}

/// Runs a node until the standard input of this process ends. Only the second process calls this
/// function.
async fn node(database: &str, redis: &str) -> Result<()> {
    let poll = Duration::from_secs(5);
    let node = Ratchet::builder(ratchet::connect(database).await?)
        .register::<Hello>()
        .poll_interval(poll, poll)
        .coordinator(RedisCoordinator::connect(redis, &channel(database)).await?)
        .build()?;
    println!(
        "    process {}: started a node that polls every 5 s",
        std::process::id()
    );
    let input_ends = async {
        let _ = tokio::io::stdin().read(&mut [0]).await;
    };
    Ok(node.run_until(input_ends).await?)
}

/// Enqueues jobs, and prints how long the second process takes to run each of them. Only the first
/// process calls this function.
async fn show(redis: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let database = format!("sqlite://{}", folder.path().join("jobs.db").display());
    let coordinator = RedisCoordinator::connect(redis, &channel(&database)).await;
    let coordinator = coordinator.with_context(|| {
        format!(
            "cannot connect to Redis at {redis}: start a server with `redis-server`, or pass \
             another URL"
        )
    })?;
    let silent = Ratchet::client(ratchet::connect(&database).await?);
    let waking = silent.with_coordinator(coordinator);

    println!("Process {} starts another process:", std::process::id());
    let mut child = start_node(&database, redis).await?;
    println!("\nWithout a wakeup the node finds a job at its next poll:");
    enqueue_and_wait(&silent).await?;
    println!("\nWith a wakeup through Redis, the node finds a job at once:");
    for _ in 0..3 {
        enqueue_and_wait(&waking).await?;
    }
    drop(child.stdin.take());
    let ended = child.wait().await?;
    println!("\nThe other process drained and ended with {ended}.");
    Ok(())
}

/// Starts this program as a second process that runs a node. Waits until that process prints its
/// first line.
async fn start_node(database: &str, redis: &str) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["node", database, redis])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let said = child
        .stdout
        .take()
        .context("the output of the process should be piped")?;
    let mut lines = BufReader::new(said).lines();
    let first = lines
        .next_line()
        .await?
        .context("the other process ended")?;
    println!("{first}");
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            println!("{line}");
        }
    });
    Ok(child)
}

async fn enqueue_and_wait(client: &Client) -> Result<()> {
    // After this pause, the node's first poll is over, and the next one is seconds away.
    sleep(Duration::from_millis(500)).await;
    let id = client.enqueue(Hello.into_job()).await?.id();
    loop {
        let job = client.job(id).await?.context("the job should be stored")?;
        if let Some(finished) = job.finished_at {
            let took = (finished - job.created_at).num_milliseconds();
            println!("    {} {took} ms after its enqueue", job.state);
            return Ok(());
        }
        sleep(Duration::from_millis(5)).await;
    }
}
