//! Workers and producers on a topology, and what they were told.

use std::collections::BTreeSet;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use ratchet::model::NodeStatus;
use ratchet::postgres::PostgresStore;
use ratchet::store::Acquired;
use ratchet::{Client, JobId, Name, NewJob, Ratchet, SharedStore};
use sqlx::postgres::PgPoolOptions;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::duty::{Duty, KINDS, RESOURCE};
use super::now;
use crate::field::spawn;
use crate::worker::{Backend, Order};

/// The endpoints: the first is that of the test itself, each of the others has a worker.
pub(crate) const ENDPOINTS: usize = 5;
/// The first of the endpoints that are moved late, in the case in which some are. The last of them
/// is that of a producer, too.
pub(crate) const STALE: usize = 3;
pub(crate) const LANES: usize = 6;
/// How many permitted jobs may run at once.
const PERMITS: u32 = 4;
/// How often each producer enqueues one job of each kind.
const TICK: Duration = Duration::from_millis(100);
/// How long anything may take that a case needs before its fault.
const PATIENCE: Duration = Duration::from_secs(60);
/// Silence that means death.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// When a fault was over, and what it left.
pub(crate) struct Event {
    /// From then on every process can reach the server that there is.
    pub(crate) since: i64,
    /// The jobs that the new server had when nobody had reached it yet. `None`: all there were.
    pub(crate) present: Option<BTreeSet<String>>,
    /// When each endpoint was moved to the new server.
    pub(crate) moved: [i64; ENDPOINTS],
}

impl Event {
    pub(crate) const fn nothing_lost(since: i64) -> Self {
        Self {
            since,
            present: None,
            moved: [0; ENDPOINTS],
        }
    }
}

/// What was answered to the producers.
#[derive(Default)]
pub(crate) struct Ledger {
    stop: AtomicBool,
    /// Whether jobs of a new queue are enqueued as well, and whether some are stored.
    late: AtomicBool,
    late_stored: AtomicBool,
    pub(crate) acknowledged: Mutex<Vec<Acknowledged>>,
    /// The fences of the lock, in the order in which they were granted.
    pub(crate) fences: Mutex<Vec<u64>>,
    pub(crate) refused: AtomicU64,
    pub(crate) longest_ms: AtomicU64,
}

pub(crate) struct Acknowledged {
    pub(crate) job: JobId,
    /// When the call began.
    pub(crate) asked: i64,
    /// The endpoint it was made through. `None`: it went to the new server.
    pub(crate) endpoint: Option<usize>,
}

pub(crate) struct Scene {
    pub(crate) order: Order,
    pub(crate) ledger: Arc<Ledger>,
    clients: Vec<Client>,
    workers: Vec<Child>,
    tasks: Vec<JoinHandle<()>>,
    _folder: TempDir,
}

impl Scene {
    /// Workers that run, and producers that have begun. `urls` are the endpoints.
    pub(crate) async fn new(backend: Backend, schema: String, urls: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let order = Order {
            backend,
            url: urls[0].clone(),
            schema,
            connections: 10,
            steps_clock: false,
            dead_after: DEAD_AFTER,
            store_deadline: Duration::from_secs(10),
            label: None,
            notes: folder.path().join("notes"),
        };
        let last = Order {
            url: urls[ENDPOINTS - 1].clone(),
            ..order.clone()
        };
        let client = Ratchet::client(order.open().await.unwrap());
        client.set_permits(RESOURCE, PERMITS).await.unwrap();
        let pooled = Ratchet::client(pooled(&order).await);
        let stale = Ratchet::client(last.open().await.unwrap());
        let mut scene = Self {
            ledger: Arc::default(),
            clients: vec![client, pooled, stale],
            workers: Vec::new(),
            tasks: Vec::new(),
            order,
            _folder: folder,
        };
        for (place, url) in urls.iter().enumerate().skip(1) {
            let order = Order {
                url: url.clone(),
                label: Some(format!("worker-{place}")),
                ..scene.order.clone()
            };
            scene.workers.push(spawn(&order));
        }
        scene.wait_for_nodes().await;
        for (place, endpoint) in [0, 0, ENDPOINTS - 1].into_iter().enumerate() {
            let client = scene.clients[place].clone();
            scene.produce(client.clone(), Some(endpoint), KINDS);
            if place != 1 {
                let takes = take_lock(client, Arc::clone(&scene.ledger), endpoint);
                scene.tasks.push(tokio::spawn(takes));
            }
        }
        scene
    }

    async fn wait_for_nodes(&self) {
        let waited = timeout(PATIENCE, async {
            loop {
                let nodes = self.clients[0].nodes().await.unwrap();
                let active = |node: &&ratchet::model::NodeRecord| node.status == NodeStatus::Active;
                if nodes.iter().filter(active).count() == self.workers.len() {
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        waited.await.expect("the workers join");
    }

    fn produce(&mut self, client: Client, endpoint: Option<usize>, kinds: [&'static str; 3]) {
        let ledger = Arc::clone(&self.ledger);
        let produces = produce(client, ledger, endpoint, kinds);
        self.tasks.push(tokio::spawn(produces));
    }

    /// From now on there are jobs of a new queue. Returns once some are stored.
    pub(crate) async fn begin_late(&self) {
        self.ledger.late.store(true, Ordering::Relaxed);
        let stored = timeout(PATIENCE, async {
            while !self.ledger.late_stored.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(1)).await;
            }
        });
        stored.await.expect("jobs are stored");
    }

    /// A producer that knows only the new server, and meets the routes in another order.
    pub(crate) async fn welcome(&mut self, port: u16) {
        let order = Order {
            url: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
            ..self.order.clone()
        };
        let client = Ratchet::client(order.open().await.unwrap());
        let [plain, laned, permitted] = KINDS;
        self.produce(client, None, [permitted, laned, plain]);
        sleep(TICK).await;
    }

    /// Fills the pools, so that there are connections that nobody uses.
    pub(crate) async fn warm(&self) {
        for client in &self.clients {
            join_all((0..10).map(|_| client.nodes())).await;
        }
    }

    pub(crate) async fn stop_producing(&mut self) {
        self.ledger.stop.store(true, Ordering::Relaxed);
        // A call that began returns by its deadline, at the latest.
        let _ = timeout(PATIENCE, join_all(self.tasks.drain(..))).await;
    }

    /// How many workers ended by themselves.
    pub(crate) fn ended_workers(&mut self) -> usize {
        let ended = |worker: &mut Child| usize::from(worker.try_wait().unwrap().is_some());
        self.workers.iter_mut().map(ended).sum()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// A store on a pool of the application's own, where there is such a thing.
async fn pooled(order: &Order) -> SharedStore {
    if order.backend != Backend::Postgres {
        return order.open().await.unwrap();
    }
    let pool = PgPoolOptions::new().max_connections(order.connections);
    let pool = pool.connect(&order.url).await.unwrap();
    let builder = PostgresStore::pool_builder(pool).schema(&order.schema);
    Arc::new(builder.connect().await.unwrap())
}

/// Enqueues one job of each kind again and again. What failed may be stored or not, and is not
/// counted on.
async fn produce(
    client: Client,
    ledger: Arc<Ledger>,
    endpoint: Option<usize>,
    kinds: [&'static str; 3],
) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for number in 0.. {
        ticks.tick().await;
        if ledger.stop.load(Ordering::Relaxed) {
            return;
        }
        let late = ledger.late.load(Ordering::Relaxed) && number % 2 == 0;
        let duty = |kind: &str| Duty {
            kind: kind.to_owned(),
            queue: if late { "late" } else { "early" }.to_owned(),
            lane: (kind == "laned").then(|| format!("lane-{}", number % LANES)),
            permit: kind == "permitted",
            long: kind == "plain" && number % 3 == 1,
            fails: kind == "plain" && number % 10 == 0,
        };
        let jobs: Vec<NewJob> = kinds.iter().map(|kind| duty(kind).job()).collect();
        let asked = now();
        match client.enqueue_all(&jobs).await {
            Ok(answers) => {
                ledger.late_stored.fetch_or(late, Ordering::Relaxed);
                let acknowledged = answers.iter().map(|answer| Acknowledged {
                    job: answer.id(),
                    asked,
                    endpoint,
                });
                ledger.acknowledged.lock().unwrap().extend(acknowledged);
            }
            Err(_) => drop(ledger.refused.fetch_add(1, Ordering::Relaxed)),
        }
        let took = (now() - asked).max(0).cast_unsigned();
        ledger.longest_ms.fetch_max(took, Ordering::Relaxed);
    }
}

/// Takes a lock and releases it again and again. Takers of different endpoints do so at different
/// times, so that not even two servers of a split brain grant it in one millisecond.
async fn take_lock(client: Client, ledger: Arc<Ledger>, endpoint: usize) {
    let name = Name::new("lock", "duty").unwrap();
    let owner = Name::new("owner", format!("taker-{endpoint}")).unwrap();
    if endpoint > 0 {
        sleep(TICK / 2).await;
    }
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !ledger.stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let locks = client.store().locks();
        let taken = locks.acquire(&name, &owner, Duration::from_secs(2)).await;
        if let Ok(Acquired::Acquired { fence }) = taken {
            ledger.fences.lock().unwrap().push(fence.0);
            let _ = locks.release(&name, &owner, fence).await;
        }
    }
}
