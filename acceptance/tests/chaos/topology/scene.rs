//! Runs worker processes and producers, and records the answers that the producers received.

use std::collections::BTreeSet;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use ratchet::mysql::MysqlStore;
use ratchet::postgres::PostgresStore;
use ratchet::store_api::store::Acquired;
use ratchet::{Client, JobId, Name, NewJob, NodeStatus, Ratchet, SharedStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::duty::{Duty, KINDS, RESOURCE};
use super::now;
use crate::field::spawn;
use crate::mysql;
use crate::worker::{Backend, Order};

/// The number of endpoints. The test's own clients use the first; each worker has one of the
/// others.
pub(crate) const ENDPOINTS: usize = 5;
/// The number of the first endpoint that stays on the old primary, if the fault is a stale
/// endpoint. A producer shares the last endpoint with a worker.
pub(crate) const STALE: usize = 3;
/// The number of producers before the fault.
pub(crate) const PRODUCERS: u64 = 3;
pub(crate) const LANES: usize = 12;
/// The number of permits of the resource `RESOURCE`.
const PERMITS: u32 = 8;
/// How often each producer enqueues. `BATCH` is the number of jobs of each kind per tick.
const TICK: Duration = Duration::from_millis(100);
/// How many times longer a tick is on a replica set. Jobs in lanes need transactions there, and
/// faster ticks would only build up a backlog.
const SLOWER: u32 = 5;
const BATCH: usize = 2;
/// The jobs stored at once just before the fault.
const BURST: usize = 200;
/// The deadline of every step before the fault.
const PATIENCE: Duration = Duration::from_secs(60);
/// The `dead_after` of the workers.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// What a producer enqueues: on each tick, jobs of each kind in one of the queues.
struct Menu {
    kinds: [&'static str; 3],
    /// The queues. The first is used from the start, the others from shortly before the fault.
    queues: &'static [&'static str],
}

const OLD: Menu = Menu {
    kinds: KINDS,
    queues: &["early", "late", "latest"],
};

/// The menu of producers that use only the new server. They create some of the routes that only the
/// old server had, in another order. They never create the rest of those routes.
const NEW: Menu = Menu {
    kinds: [KINDS[2], KINDS[1], KINDS[0]],
    queues: &["late"],
};

/// The end of a fault, and the jobs that survived the fault.
pub(crate) struct Event {
    /// The time from which every process could reach the new server.
    pub(crate) since: i64,
    /// The jobs on the new server before any client reached it. `None` means that every
    /// acknowledged job must be there.
    pub(crate) present: Option<BTreeSet<String>>,
    /// The time at which each endpoint moved to the new server.
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

/// The answers that the producers received.
#[derive(Default)]
pub(crate) struct Ledger {
    /// How often each producer enqueues.
    tick: Duration,
    stop: AtomicBool,
    /// Whether producers also use the later queues of their menu. `late_stored` is true once jobs
    /// of these queues are stored.
    late: AtomicBool,
    late_stored: AtomicBool,
    /// Whether the fault is over.
    over: AtomicBool,
    pub(crate) acknowledged: Mutex<Vec<Acknowledged>>,
    /// The fences of the lock, in the order in which they were granted.
    pub(crate) fences: Mutex<Vec<u64>>,
    pub(crate) refused: AtomicU64,
    pub(crate) longest_ms: AtomicU64,
}

pub(crate) struct Acknowledged {
    pub(crate) job: JobId,
    /// The time at which the call began.
    pub(crate) asked: i64,
    /// The endpoint of the call. `None` means the new server itself.
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
    /// Starts workers and producers. `urls` are the endpoints. Calls `prepare` when the tables
    /// exist and nothing uses them yet.
    pub(crate) async fn new(
        backend: Backend,
        schema: String,
        urls: &[String],
        prepare: impl AsyncFnOnce(),
    ) -> Self {
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
        if backend == Backend::MySql {
            mysql::create_database(&order).await;
        }
        let client = Ratchet::client(order.open().await.unwrap());
        prepare().await;
        client.set_permits(RESOURCE, PERMITS).await.unwrap();
        let pooled = Ratchet::client(pooled(&order).await);
        let stale = Ratchet::client(last.open().await.unwrap());
        let mut scene = Self {
            ledger: Arc::new(Ledger {
                tick: match backend {
                    Backend::Postgres | Backend::MySql => TICK,
                    _ => TICK * SLOWER,
                },
                ..Ledger::default()
            }),
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
            let pauses = place == 1;
            if !pauses {
                let takes = take_lock(client.clone(), Arc::clone(&scene.ledger), endpoint);
                scene.tasks.push(tokio::spawn(takes));
            }
            scene.produce(Producer {
                client,
                endpoint: Some(endpoint),
                menu: &OLD,
                pauses,
            });
        }
        scene
    }

    async fn wait_for_nodes(&self) {
        let waited = timeout(PATIENCE, async {
            loop {
                let nodes = self.clients[0].nodes().await.unwrap();
                let active = |node: &&ratchet::NodeRecord| node.status == NodeStatus::Active;
                if nodes.iter().filter(active).count() == self.workers.len() {
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        waited.await.expect("the workers join");
    }

    fn produce(&mut self, producer: Producer) {
        let produces = producer.run(Arc::clone(&self.ledger));
        self.tasks.push(tokio::spawn(produces));
    }

    /// Makes the producers use new queues, and waits until jobs of these queues are stored and the
    /// pausing producer pauses. Then enqueues a burst of jobs, so that the nodes are claiming many
    /// jobs when the fault comes.
    pub(crate) async fn begin_late(&self) {
        self.ledger.late.store(true, Ordering::Relaxed);
        let stored = timeout(PATIENCE, async {
            while !self.ledger.late_stored.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(1)).await;
            }
        });
        stored.await.expect("jobs are stored");
        let producer = Producer {
            client: self.clients[0].clone(),
            endpoint: Some(0),
            menu: &OLD,
            pauses: false,
        };
        let burst: Vec<NewJob> = (0..BURST)
            .map(|_| duty(KINDS[0], "early", 2).job())
            .collect();
        producer.enqueue(&self.ledger, &burst).await;
    }

    /// Starts a producer that is connected to the new server only.
    pub(crate) async fn welcome(&mut self, url: String) {
        let order = Order {
            url,
            ..self.order.clone()
        };
        let client = Ratchet::client(order.open().await.unwrap());
        self.produce(Producer {
            client,
            endpoint: None,
            menu: &NEW,
            pauses: false,
        });
        sleep(TICK).await;
    }

    /// Ends the pause of the pausing producer.
    pub(crate) fn is_over(&self) {
        self.ledger.over.store(true, Ordering::Relaxed);
    }

    /// Makes parallel calls, so that the clients' connection pools then have idle connections.
    pub(crate) async fn warm(&self) {
        for client in &self.clients {
            join_all((0..10).map(|_| client.nodes())).await;
        }
    }

    pub(crate) async fn stop_producing(&mut self) {
        self.ledger.stop.store(true, Ordering::Relaxed);
        // A call that is still running returns by its deadline.
        let _ = timeout(PATIENCE, join_all(self.tasks.drain(..))).await;
    }

    /// Counts the workers that have exited.
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

/// Opens a store on the application's own pool, if the backend supports that.
async fn pooled(order: &Order) -> SharedStore {
    match order.backend {
        Backend::Postgres => {
            let pool = PgPoolOptions::new().max_connections(order.connections);
            let pool = pool.connect(&order.url).await.unwrap();
            let builder = PostgresStore::pool_builder(pool).schema(&order.schema);
            Arc::new(builder.connect().await.unwrap())
        }
        Backend::MySql => {
            let pool = MySqlPoolOptions::new().max_connections(order.connections);
            let pool = pool.connect(&mysql::url(order)).await.unwrap();
            Arc::new(MysqlStore::pool_builder(pool).connect().await.unwrap())
        }
        Backend::MongoDb | Backend::SqlServer => order.open().await.unwrap(),
    }
}

struct Producer {
    client: Client,
    /// The producer's endpoint. `None` means that it is connected to the new server itself.
    endpoint: Option<usize>,
    menu: &'static Menu,
    /// Whether the producer makes no calls during the fault, and so never loses a connection.
    pauses: bool,
}

impl Producer {
    /// Enqueues jobs of the menu until it is stopped.
    async fn run(self, ledger: Arc<Ledger>) {
        let mut ticks = interval(ledger.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for number in 0.. {
            ticks.tick().await;
            let queues = match ledger.late.load(Ordering::Relaxed) {
                true => self.menu.queues,
                false => &self.menu.queues[..1],
            };
            let queue = queues[number % queues.len()];
            for kind in self.menu.kinds {
                if ledger.stop.load(Ordering::Relaxed) {
                    return;
                }
                let batch = number * BATCH..(number + 1) * BATCH;
                let jobs: Vec<NewJob> = batch.map(|n| duty(kind, queue, n).job()).collect();
                self.enqueue(&ledger, &jobs).await;
            }
            if self.pauses && queue == "latest" {
                ledger.late_stored.store(true, Ordering::Relaxed);
                while !ledger.over.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// Enqueues jobs. A failed call may or may not have stored its jobs, so the judge does not
    /// expect them.
    async fn enqueue(&self, ledger: &Ledger, jobs: &[NewJob]) {
        let asked = now();
        match self.client.enqueue_all(jobs).await {
            Ok(answers) => {
                let acknowledged = answers.iter().map(|answer| Acknowledged {
                    job: answer.id(),
                    asked,
                    endpoint: self.endpoint,
                });
                ledger.acknowledged.lock().unwrap().extend(acknowledged);
            }
            Err(_) => drop(ledger.refused.fetch_add(1, Ordering::Relaxed)),
        }
        let took = (now() - asked).max(0).cast_unsigned();
        ledger.longest_ms.fetch_max(took, Ordering::Relaxed);
    }
}

fn duty(kind: &str, queue: &str, number: usize) -> Duty {
    Duty {
        kind: kind.to_owned(),
        queue: queue.to_owned(),
        lane: (kind == "laned").then(|| format!("lane-{}", number % LANES)),
        permit: kind == "permitted",
        long: kind == "plain" && number % 5 < 2,
        fails: kind == "plain" && number.is_multiple_of(10),
    }
}

/// Acquires and releases a lock in a loop. The loops of different endpoints are offset, so that the
/// two servers of a split brain do not grant the lock in the same millisecond.
async fn take_lock(client: Client, ledger: Arc<Ledger>, endpoint: usize) {
    let name = Name::new("lock", "duty").unwrap();
    if endpoint > 0 {
        sleep(TICK / 2).await;
    }
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for number in 0.. {
        ticks.tick().await;
        if ledger.stop.load(Ordering::Relaxed) {
            return;
        }
        // Each attempt has a new owner, since an owner that still holds the lock would get the same
        // term again.
        let owner = Name::new("owner", format!("taker-{endpoint}-{number}")).unwrap();
        let locks = client.store().locks();
        let taken = locks.acquire(&name, &owner, Duration::from_secs(2)).await;
        if let Ok(Acquired::Acquired { fence }) = taken {
            ledger.fences.lock().unwrap().push(fence.0);
            let _ = locks.release(&name, &owner, fence).await;
        }
    }
}
