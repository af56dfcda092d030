//! The processes of a cluster on one database, and a producer that enqueues until the end.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratchet::store_api::time;
use ratchet::{Client, Job, JobId, Ratchet};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::judge::{self, Sample};
use crate::proxy::Proxy;
use crate::worker::{Order, Step};

/// How long any step may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many steps are enqueued per second: a steady load, far below what the database can handle.
const RATE: u64 = 50;
/// The number of lanes, which the steps use in turn.
const LANES: u64 = 8;

/// A process of the cluster.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) number: usize,
    /// The process's connection to the database, if it can be cut.
    pub(crate) way: Option<Proxy>,
}

impl Process {
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(
            sent.unwrap().success(),
            "could not send {signal} to a worker"
        );
    }
}

/// The time settings of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// The time from which all other times, except `lock`, are derived.
    pub(crate) ttl: Duration,
    /// The TTL of a leader's lock.
    pub(crate) lock: Duration,
}

/// The running cluster of one case.
pub(crate) struct Cluster {
    pub(crate) processes: Vec<Process>,
    pub(crate) client: Client,
    times: Times,
    url: String,
    cuttable: bool,
    spawned: usize,
    folder: TempDir,
    producer: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<JobId>>>,
}

impl Cluster {
    /// Starts `size` processes under load, and waits until one of them leads.
    pub(crate) async fn new(url: &str, times: Times, size: usize, cuttable: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = match url {
            "" => format!("sqlite://{}", folder.path().join("jobs.db").display()),
            url => url.to_owned(),
        };
        let client = Ratchet::client(ratchet::connect(&url).await.unwrap());
        let (stop, acknowledged) = (Arc::default(), Arc::default());
        let produce = produce(client.clone(), Arc::clone(&stop), Arc::clone(&acknowledged));
        let mut cluster = Self {
            processes: Vec::new(),
            client,
            times,
            url,
            cuttable,
            spawned: 0,
            folder,
            producer: tokio::spawn(produce),
            stop,
            acknowledged,
        };
        for _ in 0..size {
            cluster.spawn().await;
        }
        cluster.leader().await;
        cluster
    }

    pub(crate) async fn spawn(&mut self) {
        let number = self.spawned;
        self.spawned += 1;
        let way = match self.cuttable {
            true => Some(Proxy::start(&self.url).await),
            false => None,
        };
        let order = Order {
            url: way
                .as_ref()
                .map_or_else(|| self.url.clone(), |way| way.url.clone()),
            ttl: self.times.ttl,
            lock: self.times.lock,
            bodies: self.bodies_file(),
            samples: self.samples_file(number),
        };
        let (role, order) = order.to_environment();
        let child = Command::new(env::current_exe().unwrap())
            .env(role, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        self.processes.push(Process {
            child: child.unwrap(),
            number,
            way,
        });
    }

    fn bodies_file(&self) -> PathBuf {
        self.folder.path().join("bodies")
    }

    fn samples_file(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("samples-{number}"))
    }

    /// Returns the samples of all processes so far, including those that have ended.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let of = |number| judge::samples(number, &self.samples_file(number));
        (0..self.spawned).flat_map(of).collect()
    }

    pub(crate) fn bodies(&self) -> String {
        fs::read_to_string(self.bodies_file()).unwrap_or_default()
    }

    /// Waits until one of the live processes leads, and returns its position.
    pub(crate) async fn leader(&self) -> usize {
        let found = timeout(PATIENCE, async {
            loop {
                let leads = |process: &Process| {
                    let samples =
                        judge::samples(process.number, &self.samples_file(process.number));
                    samples.last().is_some_and(|sample| sample.term > 0)
                };
                if let Some(place) = self.processes.iter().position(leads) {
                    return place;
                }
                sleep(Duration::from_millis(5)).await;
            }
        });
        found.await.expect("a process leads")
    }

    /// Returns whether a client can write to the database within 500 ms.
    pub(crate) async fn can_be_written(&self) -> bool {
        let written = timeout(Duration::from_millis(500), self.client.bump("probe"));
        matches!(written.await, Ok(Ok(_)))
    }

    /// Waits until a process leads in a later term than any before `since`, and returns how long
    /// after `since` that was.
    pub(crate) async fn promoted(&self, since: i64) -> Duration {
        let found = timeout(PATIENCE, async {
            loop {
                if let Some(after) = judge::promotion(&self.samples(), since) {
                    return after;
                }
                sleep(Duration::from_millis(10)).await;
            }
        });
        found
            .await
            .expect("another process should become the leader")
    }

    /// Waits until every job acknowledged so far has ended, and returns how long after `since` that
    /// was.
    pub(crate) async fn recovered(&self, since: i64) -> Duration {
        let mut open = self.acknowledged.lock().await.clone();
        let ended = timeout(PATIENCE, async {
            while let Some(id) = open.last() {
                match self.client.job(*id).await {
                    Ok(Some(job)) if job.state.is_terminal() => {
                        open.pop();
                    }
                    _ => sleep(Duration::from_millis(5)).await,
                }
            }
        });
        ended
            .await
            .expect("other processes should finish the jobs of dead processes");
        Duration::from_millis((now() - since).max(0).cast_unsigned())
    }

    /// Ends the load, waits for the remaining jobs, drains the processes, and returns the
    /// acknowledged jobs.
    pub(crate) async fn finish(&mut self) -> Vec<JobId> {
        self.stop.store(true, Ordering::SeqCst);
        let produced = timeout(PATIENCE, &mut self.producer).await;
        produced.expect("the producer ends").unwrap();
        self.recovered(now()).await;
        for process in &mut self.processes {
            let early = process.child.try_wait().unwrap();
            assert!(
                early.is_none(),
                "expected the worker to run until it is asked to stop, found it ended: {early:?}"
            );
            drop(process.child.stdin.take());
        }
        for process in &mut self.processes {
            let ended = process.child.wait().unwrap();
            assert!(
                ended.success(),
                "expected the worker to drain and exit with success, found \
                 {ended}"
            );
        }
        self.acknowledged.lock().await.clone()
    }
}

impl Drop for Cluster {
    /// Kills the processes, so that none keeps running after a failed test.
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

/// Returns the time in milliseconds on the clock that the processes use for their samples.
pub(crate) fn now() -> i64 {
    time::to_millis(time::wall_clock())
}

/// Enqueues one step after another, each repeatedly until it is acknowledged.
async fn produce(client: Client, stop: Arc<AtomicBool>, acknowledged: Arc<Mutex<Vec<JobId>>>) {
    let mut number = 0;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(RATE).unwrap());
    while !stop.load(Ordering::SeqCst) {
        ticks.tick().await;
        let lane = format!("lane-{}", number % LANES);
        let job = Step {
            lane: lane.clone(),
            number,
        };
        let job = job.into_job().lane(&lane);
        while let Err(error) = client.enqueue(job.clone()).await {
            assert!(
                error.is_transient(),
                "expected a transient error, found {error:?}"
            );
            sleep(Duration::from_millis(10)).await;
        }
        acknowledged.lock().await.push(job.id());
        number += 1;
    }
}
