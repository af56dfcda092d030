//! Simulations of clusters whose store repeatedly returns to an earlier state, as in a failover to
//! a lagging replica or in a restore. The clock of the store also steps forward, and calls fail and
//! hang. No node dies.
//!
//! Checked throughout: no node runs two bodies of one job at once, no node is counted as dead, no
//! crash is counted, and no term has two leaders. Checked once the faults have ended: every claim
//! has a holder within [`HOLDER_BOUND`], every job that the store still knows ends within
//! [`END_BOUND`], and each result is that of a body that held the claim under which it was stored.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::memory::{Fault, ManualClock, Snapshot};
use ratchet_core::model::{Detail, JobFilter, NodeStatus, PageRequest};
use ratchet_core::store::{IfKnown, JobStore, NodeStore, PermitStore};
use ratchet_core::time::{Timestamp, wall_clock};
use ratchet_core::{
    Fence, Job, JobContext, JobId, JobRecord, JobResult, JobState, MemoryStore, Name, NewJob, Node,
    NodeId, Ratchet, Requires, RetryPolicy,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::seeds;

const SECOND: Duration = Duration::from_secs(1);
/// The default heartbeat interval.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long after the last fault a stored claim may exist without a running body. It is much longer
/// than a heartbeat interval, because a claimed job may also wait for a slot.
const HOLDER_BOUND: Duration = Duration::from_secs(60);
/// How long after the last fault a job may take to end.
const END_BOUND: Duration = Duration::from_secs(900);

#[test]
fn shard_1_of_clusters_that_are_set_back_keeps_every_promise() {
    seeds::simulate_shard(0, |seed| Simulation::new(seed).run());
}

#[test]
fn shard_2_of_clusters_that_are_set_back_keeps_every_promise() {
    seeds::simulate_shard(1, |seed| Simulation::new(seed).run());
}

#[test]
fn shard_3_of_clusters_that_are_set_back_keeps_every_promise() {
    seeds::simulate_shard(2, |seed| Simulation::new(seed).run());
}

#[test]
fn shard_4_of_clusters_that_are_set_back_keeps_every_promise() {
    seeds::simulate_shard(3, |seed| Simulation::new(seed).run());
}

/// A claim as it was stored when its body began: `claim_seq`, node, and time of the claim.
type Held = (u64, Option<NodeId>, Option<Timestamp>);

/// A record of the bodies on all nodes.
#[derive(Default)]
struct Log {
    /// How many bodies of a job run on each machine.
    running: BTreeMap<(usize, JobId), usize>,
    /// The claim under which each body began, by the random number that the body returns.
    began: HashMap<u64, Held>,
    /// The jobs of which a node ran two bodies at once.
    doubles: Vec<JobId>,
}

/// The node on which a body runs, with the log and the store that its bodies use.
struct Machine {
    number: usize,
    log: Arc<Mutex<Log>>,
    store: MemoryStore,
}

/// Counts as one running body in the log until it is dropped.
struct Running<'a> {
    machine: &'a Machine,
    job: JobId,
}

impl<'a> Running<'a> {
    fn begin(machine: &'a Machine, job: JobId) -> Self {
        let mut log = machine.log.lock().unwrap();
        let running = log.running.entry((machine.number, job)).or_default();
        *running += 1;
        if *running > 1 {
            log.doubles.push(job);
        }
        drop(log);
        Self { machine, job }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut log = self.machine.log.lock().unwrap();
        log.running.remove(&(self.machine.number, self.job));
    }
}

/// A job whose body returns a random number. The number identifies the body, and so the claim under
/// which it ran.
#[derive(Serialize, Deserialize)]
struct Work {
    millis: u64,
    fails: u32,
    reports: bool,
}

impl Job for Work {
    const KIND: &'static str = "work";
    type Output = u64;

    fn requires() -> Requires {
        Requires::nothing().state::<Machine>()
    }

    async fn run(self, ctx: JobContext) -> JobResult<u64> {
        let machine = ctx.state::<Machine>();
        let _running = Running::begin(machine, ctx.job_id());
        let stored = machine
            .store
            .get(&[ctx.job_id()], Detail::Whole)
            .await?
            .remove(0);
        let body = fastrand::u64(..u64::from(u32::MAX));
        if let Some(job) = stored.filter(|job| job.state == JobState::Running) {
            let held = (job.claim_seq, job.node, job.claimed_at);
            machine.log.lock().unwrap().began.insert(body, held);
        }
        if self.reports {
            ctx.save_checkpoint(&body).await?;
        }
        sleep(Duration::from_millis(self.millis)).await;
        if ctx.attempt() <= self.fails {
            return Err("planned failure".into());
        }
        Ok(body)
    }
}

struct Simulation {
    random: fastrand::Rng,
    clock: ManualClock,
    store: MemoryStore,
    chaos: Arc<AtomicBool>,
    log: Arc<Mutex<Log>>,
    nodes: Vec<Node>,
    copy: Snapshot,
    /// The leader of each term.
    terms: BTreeMap<Fence, usize>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        fastrand::seed(seed);
        let clock = ManualClock::running(wall_clock());
        let store = MemoryStore::with_clock(clock.clone());
        Self {
            random: fastrand::Rng::with_seed(seed),
            clock,
            copy: store.snapshot(),
            store,
            chaos: Arc::new(AtomicBool::new(true)),
            log: Arc::default(),
            nodes: Vec::new(),
            terms: BTreeMap::new(),
        }
    }

    async fn run(mut self) {
        let printer = Name::new("permit", "printer").unwrap();
        self.store
            .set_permits(&printer, 1, IfKnown::Change)
            .await
            .unwrap();
        let mut running = JoinSet::new();
        for number in 0..self.random.usize(1..=4) {
            let node = self.node(number);
            self.nodes.push(node.clone());
            running.spawn(async move { node.run_until(std::future::pending::<()>()).await });
        }
        sleep(self.random.u32(1..40) * SECOND).await;
        self.copy = self.store.snapshot();
        for _ in 0..self.random.usize(20..80) {
            for _ in 0..self.random.u32(1..50) {
                sleep(SECOND / 10).await;
                self.look().await;
            }
            self.act().await;
        }
        self.chaos.store(false, Ordering::SeqCst);
        self.calm_down().await;
        running.shutdown().await;
    }

    fn node(&mut self, number: usize) -> Node {
        let machine = Machine {
            number,
            log: Arc::clone(&self.log),
            store: self.store.clone(),
        };
        Ratchet::builder(Arc::new(faulty(
            &self.store,
            &self.chaos,
            self.random.u64(..),
        )))
        .register::<Work>()
        .state(machine)
        .concurrency(self.random.usize(1..6))
        .prefetch(self.random.usize(0..2) * 8)
        // A node with rarer heartbeats would not notice a rewind that is shorter than its interval.
        .heartbeat_max(HEARTBEAT)
        .lazy_payloads(self.random.bool())
        .seed(self.random.u64(..))
        .build()
        .unwrap()
    }

    async fn act(&mut self) {
        match self.random.u8(0..10) {
            0..2 => self.copy = self.store.snapshot(),
            2 => {
                self.store.rewind(&self.copy);
                if self.random.bool() {
                    self.copy = self.store.snapshot();
                }
            }
            3 if self.random.bool() => self.clock.advance(self.random.u32(1..3_600) * SECOND),
            _ => {
                for _ in 0..self.random.usize(1..5) {
                    let job = self.job();
                    self.store.enqueue(&[job]).await.unwrap();
                }
            }
        }
    }

    fn job(&mut self) -> NewJob {
        let work = Work {
            millis: self.random.u64(0..8_000),
            fails: self.random.u32(0..3) / 2,
            reports: self.random.bool(),
        };
        let retry = RetryPolicy::exponential(5, SECOND, 2 * SECOND);
        let mut job = work.into_job().retry(retry);
        if self.random.u8(0..3) == 0 {
            job = job.lane(["p", "q"][self.random.usize(0..2)]);
        }
        if self.random.u8(0..3) == 0 {
            job = job.permit("printer");
        }
        job
    }

    async fn jobs(&self) -> Vec<JobRecord> {
        let (filter, page) = (JobFilter::all(), PageRequest::first(10_000));
        self.store.list(&filter, &page).await.unwrap().jobs
    }

    /// Checks what must hold at any time: no second body, no crash, no dead node, one leader per
    /// term.
    async fn look(&mut self) {
        let doubles = self.log.lock().unwrap().doubles.clone();
        assert!(
            doubles.is_empty(),
            "a job should not have two bodies at once: {doubles:?}"
        );
        for job in self.jobs().await {
            assert_eq!(job.crash_count, 0, "expected no counted crash: {job:?}");
        }
        for node in self.store.nodes().await.unwrap() {
            assert_ne!(node.status, NodeStatus::Dead, "buried: {node:?}");
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let leadership = node.leadership("maintenance").unwrap();
            let Some(term) = leadership.term().filter(|_| leadership.is_leader()) else {
                continue;
            };
            let leader = *self.terms.entry(term).or_insert(number);
            assert_eq!(
                leader, number,
                "expected one leader in the term {term:?}, found two"
            );
        }
    }

    /// Waits, after the faults have ended, until every job has ended.
    async fn calm_down(&mut self) {
        let mut since = Duration::ZERO;
        while since < END_BOUND {
            sleep(SECOND).await;
            since += SECOND;
            self.look().await;
            let jobs = self.jobs().await;
            if jobs.iter().all(|job| job.state.is_terminal()) {
                return self.check_results(&jobs).await;
            }
            if since > HOLDER_BOUND {
                self.check_holders(&jobs);
            }
        }
        let jobs = self.jobs().await;
        let stuck = jobs.iter().filter(|job| !job.state.is_terminal());
        let stuck: Vec<&JobRecord> = stuck.collect();
        panic!("expected every job to end; still open: {stuck:#?}");
    }

    /// Checks that every running job has a running body, unless it was claimed less than 20 s ago.
    fn check_holders(&self, jobs: &[JobRecord]) {
        let log = self.log.lock().unwrap();
        let now = self.clock.now();
        for job in jobs.iter().filter(|job| job.state == JobState::Running) {
            let held = log.running.keys().any(|(_, running)| *running == job.id);
            let age = job.claimed_at.map(|at| now - at);
            let fresh = age.is_some_and(|age| age.num_seconds() < 20);
            assert!(
                held || fresh,
                "the claim of the job should have a holder: {job:?}"
            );
        }
    }

    /// Checks that each job succeeded, and that its result is from the body of its last claim.
    async fn check_results(&self, jobs: &[JobRecord]) {
        for job in jobs {
            assert_eq!(job.state, JobState::Succeeded, "{job:?}");
            let history = self.store.history(job.id).await.unwrap();
            let last = history.last().unwrap();
            let ended = (last.seq, last.node, Some(last.claimed_at));
            let body: u64 = serde_json::from_str(job.result.as_ref().unwrap().as_str()).unwrap();
            let began = self.log.lock().unwrap().began.get(&body).copied();
            assert_eq!(
                began,
                Some(ended),
                "only the result of the last claim should be applied: \
                 {job:?}"
            );
        }
    }
}

/// Returns the store as one node sees it. While `chaos` is set, random calls fail before or after
/// their commit, or hang.
fn faulty(store: &MemoryStore, chaos: &Arc<AtomicBool>, seed: u64) -> MemoryStore {
    let random = Mutex::new(fastrand::Rng::with_seed(seed));
    let chaos = Arc::clone(chaos);
    store.clone().with_faults(move |operation| {
        if !chaos.load(Ordering::SeqCst) {
            return Fault::None;
        }
        let mut random = random.lock().unwrap();
        let fault = random.u32(0..1_000);
        let hang = Duration::from_millis(random.u64(0..30_000));
        match fault {
            0..20 => Fault::ErrorBeforeCommit,
            20..40 => Fault::ErrorAfterCommit,
            // These calls may fail, but do not hang. If the heartbeats of a node hang, the node may
            // be marked dead. If a call of a reclaim pass hangs, the pass may use an outdated state
            // of a node, and mark this node dead.
            _ if ["heartbeat", "sweep_nodes", "reclaim"].contains(&operation) => Fault::None,
            40..80 => Fault::Delay(Duration::from_millis(random.u64(0..2_000))),
            80..90 => Fault::Delay(hang),
            90..100 => Fault::DelayedAnswer(hang),
            _ => Fault::None,
        }
    })
}
