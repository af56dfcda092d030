//! Indexes a folder: one durable job per file records its SHA-256, its size and its number of
//! lines.
//!
//! ```sh
//! cargo run --release -p index-files-example -- DIR [--db FILE] [--workers N]
//! ```
//!
//! You can kill the program at any point, even with `kill -9`, and run it again: it indexes the
//! remaining files. In the end, every file has exactly one recorded result.
#![expect(clippy::print_stdout, reason = "this is a command-line tool")]

mod files;
mod job;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use ratchet::{Client, Job, JobAction, JobFilter, JobState, Name, NewJob, Node, Ratchet};

use crate::files::Found;
use crate::job::IndexFile;

/// Number of jobs that one call enqueues.
const BATCH: usize = 500;

#[derive(Parser)]
#[command(about = "Index a folder with durable jobs")]
struct Cli {
    /// The folder to index
    dir: PathBuf,
    /// The SQLite database file; to continue an earlier run, give the same file again
    #[arg(long, default_value = "index_files.db")]
    db: PathBuf,
    /// The maximum number of files to read at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    match run(&Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("index_files: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Indexes the folder. Returns whether all files and folders could be read.
async fn run(cli: &Cli) -> Result<bool> {
    let dir = cli
        .dir
        .canonicalize()
        .with_context(|| format!("cannot open {}", cli.dir.display()))?;
    ensure!(dir.is_dir(), "{} is not a folder", cli.dir.display());
    let node = build(cli).await?;
    let client = node.client();
    let walked = enqueue(client, &dir, &cli.db).await?;
    if client.queues().await?.is_empty() {
        println!("No regular files under {}.", cli.dir.display());
        return Ok(walked);
    }
    retry_failed(client).await?;
    let bar = progress_bar()?;
    let work = follow(client, &bar);
    node.run_until(work).await?;
    bar.finish_and_clear();
    Ok(summary::print(client).await? && walked)
}

async fn build(cli: &Cli) -> Result<Node> {
    let db = cli
        .db
        .to_str()
        .context("the name of the database is not UTF-8")?;
    let store = ratchet::sqlite::SqliteStore::builder(db).connect().await?;
    // A node counts as dead after a second of silence, so that the claims of a killed run are
    // reclaimed soon.
    let node = Ratchet::builder(std::sync::Arc::new(store))
        .register::<IndexFile>()
        .concurrency(cli.workers.into())
        .heartbeat_interval(Duration::from_millis(300))
        .dead_after(Duration::from_secs(1))
        .reclaim_interval(Duration::from_millis(300))
        // If this process is killed, the files that it was reading are not the cause. So the limit
        // is too high for their jobs to reach it and fail.
        .max_crashes(1_000_000)
        .build()?;
    Ok(node)
}

/// Enqueues a job for each file that has never had a job. Returns whether all folders could be
/// read.
async fn enqueue(client: &Client, dir: &Path, db: &Path) -> Result<bool> {
    let mut batch: Vec<NewJob> = Vec::with_capacity(BATCH);
    let mut complete = true;
    for found in files::under(dir, db) {
        match found {
            Found::File(path) => batch.push(IndexFile::new(path).into_job()),
            Found::Problem(problem) => {
                complete = false;
                eprintln!("index_files: {problem}");
            }
        }
        if batch.len() == BATCH {
            client.enqueue_all(&batch).await?;
            batch.clear();
        }
    }
    client.enqueue_all(&batch).await?;
    Ok(complete)
}

/// Requeues the jobs of files that could not be read in an earlier run.
async fn retry_failed(client: &Client) -> Result<()> {
    let filter = JobFilter::all()
        .state(JobState::Failed)
        .kind(Name::new("kind", IndexFile::KIND)?);
    let mut retry = client.bulk(filter, JobAction::Requeue, u64::MAX);
    retry.run().await?;
    Ok(())
}

fn progress_bar() -> Result<ProgressBar> {
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template(
        "{bar:40} {pos}/{len} files {per_sec} {eta}",
    )?);
    Ok(bar)
}

/// Updates the progress bar until every job has ended.
async fn follow(client: &Client, bar: &ProgressBar) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let Ok(queues) = client.queues().await else {
            continue;
        };
        let counts = || queues.iter().flat_map(|queue| &queue.counts);
        let all: u64 = counts().map(|(_, count)| count).sum();
        let ended: u64 = counts()
            .filter(|(state, _)| state.is_terminal())
            .map(|(_, count)| count)
            .sum();
        bar.set_length(all);
        bar.set_position(ended);
        if ended == all {
            return;
        }
    }
}
