//! Another process that uses the database of a case, until the case kills it.
//!
//! The process runs the same program as the case. The environment variable [`DATABASE`] tells
//! [`Suite::run`](crate::Suite::run) to work on that database instead of running cases. The process
//! writes a line before and after each call, so the case knows which answers it received.

use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ratchet_core::store::{Acquired, Checked, IfKnown, StoreFeature};
use ratchet_core::{BatchId, JobId, Name, Selection, SharedStore};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::build::{HOUR, job, jobs, minutely, names, result};
use crate::fixture::BoxError;
use crate::node::{TestNode, ok};

/// The environment variable with the address of the database on which the process works.
const DATABASE: &str = "RATCHET_CONFORMANCE_DATABASE";

/// A line that the process writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The process, whose label is the name of the lock, has acquired this lock for an hour,
    /// with this fence.
    Acquired(Name, u64),
    /// The process has stored this before it began to enqueue, claim and settle.
    Kept(Kept),
    /// The process calls the store to enqueue these jobs.
    Enqueues(Vec<JobId>),
    /// The jobs of the last `Enqueues` are stored.
    Enqueued,
    /// The process has claimed this job, and keeps it.
    Claimed(JobId),
    /// The process calls the store to settle this job.
    Settles(JobId),
    /// The job of the last `Settles` is settled.
    Settled,
}

/// What the process stores at its beginning, and leaves as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The name of a paused queue with the following jobs. It is also the name of their keys and of
    /// their lane, of a resource of which one job has the only permit, and of a definition.
    pub(crate) name: Name,
    /// The job with the unique key.
    pub(crate) unique: JobId,
    /// The job with the idempotency key, if the store supports idempotency keys.
    pub(crate) once: Option<JobId>,
    /// The jobs of the lane, if the store supports lanes.
    pub(crate) lane: Vec<JobId>,
    /// An open batch with one job, if the store supports batches.
    pub(crate) batch: Option<BatchId>,
}

impl Line {
    /// Returns the job that the process has claimed.
    pub(crate) fn taken(&self) -> Option<JobId> {
        match self {
            Self::Claimed(job) | Self::Settles(job) => Some(*job),
            _ => None,
        }
    }
}

/// The function that opens a database for another process.
#[derive(Clone)]
pub(crate) struct Attach(Arc<Open>);

type Open = dyn Fn(String) -> BoxFuture<'static, Result<SharedStore, BoxError>> + Send + Sync;

impl Attach {
    pub(crate) fn new<F, Opening>(open: F) -> Self
    where
        F: Fn(String) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = Result<SharedStore, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move |address| Box::pin(open(address))))
    }

    /// Works on the database at `address` until this process is killed. Returns only if the
    /// database cannot be opened.
    async fn work(&self, address: String) -> ExitCode {
        match (self.0)(address).await {
            Ok(store) => work(&TestNode::new(Checked::shared(store))).await,
            Err(error) => {
                eprintln!("the database cannot be opened: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

impl fmt::Debug for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attach")
    }
}

/// Works on a database if this process was started by [`run_and_kill`]. Otherwise, returns `None`.
pub(crate) async fn work_if_asked(attach: Option<&Attach>) -> Option<ExitCode> {
    let address = std::env::var(DATABASE).ok()?;
    let Some(attach) = attach else {
        eprintln!("the fixture has an address, so the suite also needs `Suite::attach`");
        return Some(ExitCode::FAILURE);
    };
    Some(attach.work(address).await)
}

/// Stores something of everything that the store supports.
async fn keep(node: &TestNode) -> Kept {
    let store = &node.store;
    let has = |feature| store.lacks(feature).is_none();
    let (name, text) = (node.label.clone(), node.label.as_str());
    node.pause_queue(text).await;
    let new = || job().queue(text);
    let unique = node.add(new().unique_key(text)).await;
    let mut kept = Kept {
        name: name.clone(),
        unique,
        once: None,
        lane: Vec::new(),
        batch: None,
    };
    if has(StoreFeature::IdempotencyKeys) {
        kept.once = Some(node.add(new().idempotency_key(text)).await);
    }
    if has(StoreFeature::Lanes) {
        let lane = [new().lane(text), new().lane(text)];
        kept.lane = node.add_all(&lane).await;
    }
    if store.workflows().is_some() {
        let batch = node.batch().await;
        node.add(new().in_batch(batch)).await;
        kept.batch = Some(batch);
    }
    if let Some(permits) = store.permits() {
        ok(permits.set_permits(&name, 1, IfKnown::Change).await);
        let queue = format!("permit {text}");
        node.add(job().queue(&queue).permit(text)).await;
        let only = Selection::Only(names([&queue]));
        let claimed = node.claim_with(&node.request(1).queues(only)).await;
        assert_eq!(claimed.len(), 1, "expected the job with the permit");
    }
    if store.recurring().is_some() {
        node.define(minutely().named(text)).await;
    }
    kept
}

/// Enqueues, claims and settles jobs without end. Of the three jobs of each round, one is settled,
/// one remains claimed, and one remains pending.
async fn work(node: &TestNode) -> ! {
    node.beat().await;
    let lock = node.label.clone();
    match node.acquire(lock.as_str(), HOUR).await {
        Acquired::Acquired { fence } => write(&Line::Acquired(lock, fence.0)),
        held @ Acquired::Held(_) => panic!("a new lock is held: {held:?}"),
    }
    write(&Line::Kept(keep(node).await));
    loop {
        let batch = jobs(3);
        write(&Line::Enqueues(batch.iter().map(|job| job.id()).collect()));
        node.add_all(&batch).await;
        write(&Line::Enqueued);
        write(&Line::Claimed(node.take().await.job));
        let token = node.take().await;
        write(&Line::Settles(token.job));
        node.settle(token, result("7")).await;
        write(&Line::Settled);
    }
}

/// Writes a line. Ends this process if the case no longer reads the lines.
fn write(line: &Line) {
    let written = serde_json::to_vec(line)
        .map_err(io::Error::from)
        .and_then(|mut text| {
            text.push(b'\n');
            let mut out = io::stdout().lock();
            out.write_all(&text).and_then(|()| out.flush())
        });
    if written.is_err() {
        std::process::exit(1);
    }
}

/// Starts a process that works on the database at `address`, kills it after `settlements`
/// settlements, and returns the lines that it has written.
///
/// # Panics
/// If the process ends earlier.
pub(crate) async fn run_and_kill(address: &str, settlements: usize) -> Vec<Line> {
    match try_run_and_kill(address, settlements).await {
        Ok(lines) => lines,
        Err(error) => panic!("the other process failed: {error}"),
    }
}

async fn try_run_and_kill(address: &str, settlements: usize) -> Result<Vec<Line>, BoxError> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(DATABASE, address)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (out, mut err) = out.zip(err).ok_or("the process has no output")?;
    // Reads all of it, because a process whose output is not read waits.
    let errors = tokio::spawn(async move {
        let mut text = String::new();
        err.read_to_string(&mut text).await.map(|_| text)
    });
    let mut out = BufReader::new(out).lines();
    let mut lines = Vec::new();
    let mut left = settlements;
    while left > 0 {
        let Some(line) = out.next_line().await? else {
            let text = errors.await??;
            return Err(format!("it ended before it was killed: {}", text.trim()).into());
        };
        let line = serde_json::from_str(&line)?;
        left -= usize::from(line == Line::Settled);
        lines.push(line);
    }
    child.kill().await?;
    // The last line may be incomplete.
    while let Some(line) = out.next_line().await? {
        lines.extend(serde_json::from_str::<Line>(&line));
    }
    Ok(lines)
}
