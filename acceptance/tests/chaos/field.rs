//! The environment of a case: a schema, its worker processes, and a producer that enqueues until
//! the end.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratchet::{
    Client, Job, JobFilter, JobId, JobOrder, JobRecord, NewJob, NodeRecord, NodeStatus,
    PageRequest, Ratchet,
};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::cases::Case;
use crate::clock;
use crate::mongodb;
use crate::mysql;
use crate::sqlserver;
use crate::worker::{Backend, Nap, Order};

/// How long the cluster may take to end all jobs after the last disturbance.
const PATIENCE: Duration = Duration::from_secs(120);

/// The running environment of one case.
pub(crate) struct Field {
    pub(crate) order: Order,
    pub(crate) client: Client,
    pub(crate) workers: Vec<Child>,
    producer: JoinHandle<Vec<JobId>>,
    produced: Arc<Produced>,
    _folder: TempDir,
}

/// The state of the producer.
#[derive(Default)]
struct Produced {
    stop: AtomicBool,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

impl Field {
    /// Starts the workers and the producer.
    pub(crate) async fn new(url: &str, case: &Case, workers: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let order = Order {
            backend: case.backend,
            url: url.to_owned(),
            schema: format!("chaos_{}_{}", case.short, std::process::id()),
            connections: case.connections,
            steps_clock: case.steps_clock(),
            dead_after: case.dead_after(),
            store_deadline: Duration::from_secs(5),
            label: None,
            notes: folder.path().join("notes"),
        };
        if order.backend == Backend::MySql {
            mysql::create_database(&order).await;
        }
        if order.steps_clock {
            clock::create(&order).await;
        }
        let client = Ratchet::client(order.open().await.unwrap());
        let produced = Arc::new(Produced::default());
        let producer = tokio::spawn(produce(client.clone(), Arc::clone(&produced)));
        let mut field = Self {
            order,
            client,
            workers: Vec::new(),
            producer,
            produced,
            _folder: folder,
        };
        for _ in 0..workers {
            field.spawn();
        }
        field.wait_for_nodes(workers).await;
        field
    }

    pub(crate) fn notes(&self) -> PathBuf {
        self.order.notes.clone()
    }

    pub(crate) fn spawn(&mut self) {
        self.workers.push(spawn(&self.order));
    }

    /// Kills the oldest worker with SIGKILL, and starts another worker.
    pub(crate) fn kill_and_spawn(&mut self) {
        self.check_workers();
        let mut oldest = self.workers.remove(0);
        oldest.kill().unwrap();
        oldest.wait().unwrap();
        self.spawn();
    }

    /// Checks that no worker has exited by itself.
    pub(crate) fn check_workers(&mut self) {
        for worker in &mut self.workers {
            let ended = worker.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "expected the worker to run until it is asked to stop, found it ended: {ended:?}"
            );
        }
    }

    async fn wait_for_nodes(&mut self, count: usize) {
        let waited = timeout(PATIENCE, async {
            let active = |node: &NodeRecord| node.status == NodeStatus::Active;
            while self
                .client
                .nodes()
                .await
                .unwrap()
                .iter()
                .filter(|node| active(node))
                .count()
                < count
            {
                self.check_workers();
                sleep(Duration::from_millis(20)).await;
            }
        });
        waited.await.expect("the workers join");
    }

    /// Waits until the producer receives its next acknowledgement of an enqueue.
    pub(crate) async fn first_enqueue(&self) {
        let acknowledged = || self.produced.acknowledged.load(Ordering::Relaxed);
        let before = acknowledged();
        let waited = timeout(PATIENCE, async {
            while acknowledged() == before {
                sleep(Duration::from_millis(1)).await;
            }
        });
        waited.await.expect("enqueues succeed again");
    }

    /// Stops the producer and waits until no job waits or runs. Returns the acknowledged jobs.
    pub(crate) async fn settle(&mut self) -> Vec<JobId> {
        self.produced.stop.store(true, Ordering::Relaxed);
        let acknowledged = timeout(PATIENCE, &mut self.producer).await;
        let acknowledged = acknowledged.expect("the producer ends").unwrap();
        let mut last = String::new();
        let ended = timeout(PATIENCE, async {
            loop {
                match self.unfinished().await {
                    Ok(0) => return,
                    Ok(unfinished) => last = format!("{unfinished} jobs still wait or run"),
                    Err(error) => last = format!("{error:#}"),
                }
                self.check_workers();
                sleep(Duration::from_millis(20)).await;
            }
        });
        if ended.await.is_err() {
            panic!("expected all jobs to end within {PATIENCE:?}, found: {last}");
        }
        let refused = self.produced.refused.load(Ordering::Relaxed);
        println!(
            "    {} enqueues acknowledged, {refused} calls refused",
            acknowledged.len()
        );
        acknowledged
    }

    async fn unfinished(&self) -> ratchet::Result<u64> {
        let queues = self.client.queues().await?;
        let counts = queues.iter().flat_map(|queue| &queue.counts);
        Ok(counts
            .filter(|(state, _)| !state.is_terminal())
            .map(|(_, count)| *count)
            .sum())
    }

    /// Drains the workers, each of which must exit successfully. Then removes the environment.
    pub(crate) async fn clear(mut self) {
        self.check_workers();
        for worker in &mut self.workers {
            drop(worker.stdin.take());
        }
        for worker in &mut self.workers {
            let ended = worker.wait().unwrap();
            assert!(
                ended.success(),
                "expected the worker to drain and exit with success, found \
                 {ended}"
            );
        }
        match self.order.backend {
            Backend::MySql => mysql::drop_database(&self.order).await,
            Backend::MongoDb => mongodb::drop_database(&self.order).await,
            Backend::SqlServer => sqlserver::drop_schema(&self.order).await,
            Backend::Postgres => drop_schema(&self.order).await,
        }
    }
}

/// Starts a worker, which runs until its standard input ends.
pub(crate) fn spawn(order: &Order) -> Child {
    let (role, order) = order.to_environment();
    let worker = Command::new(env::current_exe().unwrap())
        .env(role, order)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    worker.unwrap()
}

impl Drop for Field {
    /// Kills the workers, so that none keeps running after a failed test.
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// Enqueues jobs until `produced.stop` is true, and returns the acknowledged ones. The jobs of a
/// failed call may or may not be stored, so the result does not contain them.
async fn produce(client: Client, produced: Arc<Produced>) -> Vec<JobId> {
    let mut acknowledged = Vec::new();
    let mut size = 0;
    while !produced.stop.load(Ordering::Relaxed) {
        size = size % 8 + 1;
        let jobs: Vec<NewJob> = (0..size)
            .map(|n| Nap { millis: n * 8 }.into_job())
            .collect();
        match client.enqueue_all(&jobs).await {
            Ok(answers) => {
                acknowledged.extend(answers.iter().map(|answer| answer.id()));
                let count = acknowledged.len() as u64;
                produced.acknowledged.store(count, Ordering::Relaxed);
            }
            Err(error) => {
                assert!(
                    error.is_transient(),
                    "expected a transient error, found {error:?}"
                );
                produced.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
    acknowledged
}

async fn drop_schema(order: &Order) {
    let mut admin = admin(&order.url).await;
    let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE", order.schema);
    sqlx::raw_sql(AssertSqlSafe(drop))
        .execute(&mut admin)
        .await
        .unwrap();
}

/// Returns a connection that no case disturbs.
pub(crate) async fn admin(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

/// Terminates the server processes of a schema's workers and producer: all of them, or up to
/// `limit`.
pub(crate) async fn terminate(admin: &mut PgConnection, schema: &str, limit: Option<i64>) -> u64 {
    let terminate = "
        SELECT pg_terminate_backend(pid) FROM (
            SELECT pid FROM pg_stat_activity WHERE application_name = $1
            ORDER BY random() LIMIT $2) AS victims";
    let terminated = sqlx::query(terminate)
        .bind(schema)
        .bind(limit)
        .execute(admin)
        .await;
    terminated.unwrap().rows_affected()
}

/// Opens up to `count` connections, or as many as the server accepts, and keeps them open.
pub(crate) async fn take_connections(
    url: &str,
    count: u32,
) -> (PgPool, Vec<sqlx::pool::PoolConnection<sqlx::Postgres>>) {
    let pool = PgPoolOptions::new()
        .max_connections(count)
        .acquire_timeout(Duration::from_millis(500))
        .connect_lazy(url)
        .unwrap();
    let mut taken = Vec::new();
    for _ in 0..count {
        match pool.acquire().await {
            Ok(connection) => taken.push(connection),
            Err(_) => break,
        }
    }
    (pool, taken)
}

/// Returns how often each job's body began.
pub(crate) fn begun(notes: &PathBuf) -> BTreeMap<String, usize> {
    let mut begun = BTreeMap::new();
    for job in std::fs::read_to_string(notes).unwrap().lines() {
        *begun.entry(job.to_owned()).or_default() += 1;
    }
    begun
}

/// Returns every stored job.
pub(crate) async fn all_jobs(client: &Client) -> BTreeMap<JobId, JobRecord> {
    let mut jobs = BTreeMap::new();
    let mut page = PageRequest::first(1_000).order(JobOrder::OldestFirst);
    loop {
        let found = client.list(&JobFilter::all(), &page).await.unwrap();
        jobs.extend(found.jobs.into_iter().map(|job| (job.id, job)));
        match found.next {
            Some(next) => page = page.after(Some(next)),
            None => return jobs,
        }
    }
}
