//! Simulations of whole clusters: nodes on one memory store, under paused time, with random store
//! faults, partitions, kills and restarts. A seed determines all random choices of a run.
//!
//! Checked throughout: ended jobs never change, `claim_seq` and attempts never decrease, each lane
//! has one head, and no job runs before its parents end. Checked at the end: every acknowledged job
//! is stored, each job ended in a state that its history explains, each claim has exactly one end,
//! no job overtook another in its lane, and the batch has counted each child once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::{
    Attempt, AttemptOutcome, JobSelector, LinkState, PageRequest, PauseRequest, PauseScope,
};
use ratchet_core::store::{JobStore, QueueStore, WorkflowStore};
use ratchet_core::{
    BatchCondition, BatchId, Client, Condition, Enqueued, Job, JobAction, JobContext, JobError,
    JobId, JobRecord, JobResult, JobState, MemoryStore, NewJob, Node, Priority, Ratchet,
    RetryPolicy,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::seeds::{self, PLANNED};

#[test]
fn shard_1_of_random_clusters_keeps_every_promise() {
    seeds::simulate_shard(0, |seed| Simulation::new(seed).run());
}

#[test]
fn shard_2_of_random_clusters_keeps_every_promise() {
    seeds::simulate_shard(1, |seed| Simulation::new(seed).run());
}

#[test]
fn shard_3_of_random_clusters_keeps_every_promise() {
    seeds::simulate_shard(2, |seed| Simulation::new(seed).run());
}

#[test]
fn shard_4_of_random_clusters_keeps_every_promise() {
    seeds::simulate_shard(3, |seed| Simulation::new(seed).run());
}

/// A job whose body performs one of these steps in each attempt, in order. Further attempts repeat
/// the last step.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Work {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Step {
    Succeed,
    Sleep(u64),
    Fail,
    Panic,
    Snooze(u64),
    Discard,
    Checkpoint,
    Obey(u64),
}

impl Job for Work {
    const KIND: &'static str = "work";
    type Output = u32;

    async fn run(self, ctx: JobContext) -> JobResult<u32> {
        let index = (ctx.attempt() as usize - 1).min(self.steps.len() - 1);
        match self.steps[index] {
            Step::Succeed => {}
            Step::Sleep(millis) => sleep(Duration::from_millis(millis)).await,
            Step::Fail => return Err("planned failure".into()),
            Step::Panic => std::panic::panic_any(PLANNED),
            Step::Snooze(millis) => {
                // The job snoozes only once: snoozing costs no attempt, so it would otherwise never
                // end.
                if ctx.checkpoint::<u32>()?.is_none() {
                    ctx.save_checkpoint(&1_u32).await?;
                    return Err(JobError::snooze(Duration::from_millis(millis)));
                }
            }
            Step::Discard => return Err(JobError::discard("planned discard")),
            Step::Checkpoint => ctx.save_checkpoint(&ctx.attempt()).await?,
            Step::Obey(millis) => {
                ctx.progress(50, "waiting");
                tokio::select! {
                    biased;
                    _ = ctx.cancelled() => return Err("told to stop".into()),
                    () = sleep(Duration::from_millis(millis)) => {}
                }
            }
        }
        Ok(ctx.attempt())
    }
}

/// A simulated cluster, and the jobs that the checks have seen in it.
struct Simulation {
    seed: u64,
    random: fastrand::Rng,
    /// The store without faults, which the checks use.
    store: MemoryStore,
    /// Whether faults are injected at all.
    chaos: Arc<AtomicBool>,
    seen: BTreeMap<JobId, JobRecord>,
    acknowledged: Vec<JobId>,
    batch: BatchId,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            store: MemoryStore::new(),
            chaos: Arc::new(AtomicBool::new(true)),
            seen: BTreeMap::new(),
            acknowledged: Vec::new(),
            batch: BatchId::new(),
        }
    }

    async fn run(mut self) {
        self.store.create_batch(self.batch).await.unwrap();
        let done = Work {
            steps: vec![Step::Succeed],
        };
        let done = done
            .into_job()
            .after_batch(self.batch, BatchCondition::Ended);
        self.acknowledged.push(done.id());
        self.store.enqueue(&[done]).await.unwrap();
        let mut players = JoinSet::new();
        for _ in 0..self.random.usize(1..=4) {
            let node = self.random.u64(..);
            players.spawn(play_node(self.store.clone(), Arc::clone(&self.chaos), node));
        }
        let client = Ratchet::client(Arc::new(self.faulty_store(&Arc::default())));
        for _ in 0..self.random.usize(10..60) {
            sleep(Duration::from_millis(self.random.u64(0..6_000))).await;
            self.act(&client).await;
            self.check_step().await;
        }
        self.chaos.store(false, Ordering::SeqCst);
        for pause in self.store.pauses().await.unwrap() {
            self.store.resume(&pause.scope).await.unwrap();
        }
        self.store.close_batch(self.batch).await.unwrap();
        self.settle_down().await;
        players.shutdown().await;
        self.check_end().await;
    }

    /// Performs one random call of a client or an operator.
    async fn act(&mut self, client: &Client) {
        match self.random.u8(0..10) {
            0 => {
                let queue = ["a", "b"][self.random.usize(0..2)];
                let pause = PauseRequest::new(PauseScope::queue(queue).unwrap());
                let _ = self.store.pause(&pause).await;
            }
            1 => {
                for queue in ["a", "b"] {
                    let _ = client.resume_queue(queue).await;
                }
            }
            2 if !self.acknowledged.is_empty() => {
                let job = self.acknowledged[self.random.usize(0..self.acknowledged.len())];
                let _ = client
                    .act(&JobSelector::Ids(vec![job]), JobAction::Cancel)
                    .await;
            }
            _ => {
                let jobs: Vec<NewJob> = (0..self.random.usize(1..6)).map(|_| self.job()).collect();
                // Repeats the enqueue of the same jobs until the store responds. The store
                // recognizes jobs that it has already stored.
                loop {
                    match client.enqueue_all(&jobs).await {
                        Ok(answers) => {
                            self.acknowledged.extend(answers.iter().map(|one| one.id()));
                            assert_eq!(answers.len(), jobs.len());
                            return;
                        }
                        Err(_) => sleep(Duration::from_secs(1)).await,
                    }
                }
            }
        }
    }

    fn job(&mut self) -> NewJob {
        let random = &mut self.random;
        let steps = (0..random.usize(1..4)).map(|_| match random.u8(0..10) {
            0..3 => Step::Succeed,
            3 => Step::Sleep(random.u64(0..40_000)),
            4 => Step::Fail,
            5 => Step::Panic,
            6 => Step::Snooze(random.u64(0..5_000)),
            7 if random.u8(0..4) == 0 => Step::Discard,
            8 => Step::Checkpoint,
            _ => Step::Obey(random.u64(0..60_000)),
        });
        let work = Work {
            steps: steps.collect(),
        };
        let attempts = random.u32(1..6);
        let delay = Duration::from_millis(random.u64(1..3_000));
        let mut job = work
            .into_job()
            .queue(["a", "b", "c"][random.usize(0..3)])
            .priority(Priority::ALL[random.usize(0..5)])
            .retry(RetryPolicy::exponential(attempts, delay, delay * 8).with_jitter(25));
        if random.bool() {
            job = job.timeout(Duration::from_millis(random.u64(500..50_000)));
        }
        if random.u8(0..4) == 0 {
            job = job.delay(Duration::from_millis(random.u64(0..20_000)));
        }
        if random.u8(0..4) == 0 {
            job = job.unique_key(["x", "y", "z"][random.usize(0..3)]);
        }
        if random.u8(0..3) == 0 {
            job = job.lane(["p", "q"][random.usize(0..2)]);
        } else {
            for _ in 0..random.u8(0..3) {
                // The first acknowledged job is the callback of the batch. It must not be a parent,
                // because it waits for the jobs of the batch, which may include this job.
                let known = &self.acknowledged[1..];
                let recent = &known[known.len().saturating_sub(10)..];
                let Some(parent) = random.choice(recent.iter()) else {
                    break;
                };
                let conditions = [Condition::Succeeded, Condition::Ended, Condition::Ended];
                job = job.after(*parent, conditions[random.usize(0..3)].clone());
            }
        }
        if random.u8(0..3) == 0 {
            job = job.in_batch(self.batch);
        }
        if random.u8(0..6) == 0 {
            job = job.stall_timeout(Duration::from_millis(random.u64(1_000..30_000)));
        }
        job
    }

    fn faulty_store(&mut self, partitioned: &Arc<AtomicBool>) -> MemoryStore {
        faulty(&self.store, &self.chaos, partitioned, self.random.u64(..))
    }

    /// Lets the cluster work without faults until every job has ended.
    async fn settle_down(&mut self) {
        for _ in 0..5_000 {
            sleep(Duration::from_secs(2)).await;
            self.check_step().await;
            if self.seen.values().all(|job| job.state.is_terminal()) {
                return;
            }
        }
        let stuck: Vec<&JobRecord> = self
            .seen
            .values()
            .filter(|job| !job.state.is_terminal())
            .collect();
        panic!(
            "seed {}: expected every job to end; still open: {stuck:#?}",
            self.seed
        );
    }

    /// Reads all jobs, and compares them with what the previous check read.
    async fn check_step(&mut self) {
        let page = PageRequest::first(10_000);
        let filter = ratchet_core::model::JobFilter::all();
        let jobs = self.store.list(&filter, &page).await.unwrap().jobs;
        for job in jobs {
            if let Some(before) = self.seen.get(&job.id) {
                assert!(job.claim_seq >= before.claim_seq, "claim_seq fell: {job:?}");
                assert!(job.attempts >= before.attempts, "attempts fell: {job:?}");
                if before.state.is_terminal() {
                    assert_eq!(&job, before, "an ended job should not change");
                }
            }
            for link in self.store.parents_of(&[job.id]).await.unwrap().remove(0) {
                let claimed = job.claim_seq > 0;
                assert!(
                    !claimed || link.state == LinkState::Met,
                    "the job should not run before its parents end: {job:?}"
                );
            }
            let owned = job.node.is_some();
            assert!(
                job.state == JobState::Running || !owned,
                "only a running job should have a node: {job:?}"
            );
            self.seen.insert(job.id, job);
        }
        let mut heads: BTreeMap<_, usize> = BTreeMap::new();
        for job in self.seen.values().filter(|job| !job.state.is_terminal()) {
            if let Some(lane) = &job.spec.lane {
                let head = usize::from(job.state != JobState::Blocked);
                *heads.entry((&job.spec.route.queue, lane)).or_default() += head;
            }
        }
        assert!(heads.values().all(|heads| *heads == 1), "{heads:?}");
    }

    /// Checks that no job of a lane was claimed before all jobs enqueued earlier had ended.
    async fn check_lanes(&self) {
        let mut ended = BTreeMap::new();
        let mut known = std::collections::BTreeSet::new();
        let once = self.acknowledged.iter().filter(|id| known.insert(**id));
        let mut enqueued: Vec<&JobRecord> = once.map(|id| &self.seen[id]).collect();
        // Sorts by the time of the enqueue: a job that was a duplicate at first may have been
        // stored only when the call was repeated.
        enqueued.sort_by_key(|job| job.created_at);
        for job in enqueued {
            let (Some(lane), Some(end)) = (&job.spec.lane, job.finished_at) else {
                continue;
            };
            let last = ended
                .entry((&job.spec.route.queue, lane))
                .or_insert(job.created_at);
            let history = self.store.history(job.id).await.unwrap();
            if let Some(first) = history.first() {
                assert!(
                    first.claimed_at >= *last,
                    "the job should not start before an earlier job \
                     of the lane {lane} ends: {job:?}"
                );
            }
            *last = end.max(*last);
        }
    }

    /// Checks that the batch has counted every child once, by the state in which it ended.
    async fn check_batch(&self) {
        let stands = self.store.batches(&[self.batch]).await.unwrap().remove(0);
        let stands = stands.unwrap();
        let children = self.seen.values();
        let children = children.filter(|job| job.spec.batch == Some(self.batch));
        let mut counts = BTreeMap::new();
        for job in children {
            *counts.entry(job.state).or_insert(0) += 1;
        }
        let count = |state| counts.get(&state).copied().unwrap_or(0);
        assert_eq!(stands.total, counts.values().sum::<u64>(), "{stands:?}");
        let expected = [JobState::Succeeded, JobState::Failed, JobState::Cancelled].map(count);
        let counted = [stands.succeeded, stands.failed, stands.cancelled];
        assert_eq!(counted, expected, "{stands:?}");
        assert!(stands.ended_at.is_some(), "{stands:?}");
    }

    async fn check_end(&mut self) {
        self.check_lanes().await;
        self.check_batch().await;
        for id in &self.acknowledged {
            assert!(
                self.seen.contains_key(id),
                "the acknowledged job {id} should be stored"
            );
        }
        for job in self.seen.values() {
            let history = self.store.history(job.id).await.unwrap();
            check_history(job, &history);
        }
    }
}

/// Checks that the end of a job matches its history.
fn check_history(job: &JobRecord, history: &[Attempt]) {
    let seqs: Vec<u64> = history.iter().map(|attempt| attempt.seq).collect();
    let all: Vec<u64> = (1..=job.claim_seq).collect();
    assert_eq!(
        seqs, all,
        "every claim should have exactly one end: {job:?} {history:?}"
    );
    let succeeded = history
        .iter()
        .filter(|attempt| attempt.outcome == AttemptOutcome::Succeeded)
        .count();
    assert_eq!(
        succeeded,
        usize::from(job.state == JobState::Succeeded),
        "{job:?} {history:?}"
    );
    let lost = history
        .iter()
        .filter(|attempt| attempt.outcome == AttemptOutcome::Lost)
        .count();
    assert!(job.crash_count as usize <= lost + 1, "{job:?} {history:?}");
    let last = history.last().map(|attempt| attempt.outcome);
    match job.state {
        JobState::Succeeded => assert_eq!(last, Some(AttemptOutcome::Succeeded)),
        JobState::Failed => assert_eq!(last, Some(AttemptOutcome::Failed)),
        JobState::Cancelled => {}
        other => panic!("a job should not end as {other}: {job:?}"),
    }
    assert!(job.attempts <= job.spec.retry.max_attempts(), "{job:?}");
}

/// Returns the store as one node or client sees it. While `chaos` is set, random calls fail or are
/// delayed, and all calls fail while `partitioned` is set.
fn faulty(
    store: &MemoryStore,
    chaos: &Arc<AtomicBool>,
    partitioned: &Arc<AtomicBool>,
    seed: u64,
) -> MemoryStore {
    let random = Mutex::new(fastrand::Rng::with_seed(seed));
    let (chaos, partitioned) = (Arc::clone(chaos), Arc::clone(partitioned));
    store.clone().with_faults(move |_| {
        if !chaos.load(Ordering::SeqCst) {
            return Fault::None;
        }
        if partitioned.load(Ordering::SeqCst) {
            return Fault::ErrorBeforeCommit;
        }
        let mut random = random.lock().unwrap();
        match random.u32(0..1_000) {
            0..30 => Fault::ErrorBeforeCommit,
            30..60 => Fault::ErrorAfterCommit,
            60..110 => Fault::Delay(Duration::from_millis(random.u64(0..2_000))),
            // The delay exceeds the deadline of a call.
            110..113 => Fault::Delay(Duration::from_secs(15)),
            _ => Fault::None,
        }
    })
}

/// Simulates a machine that runs nodes: repeatedly starts a node, and stops, kills or disconnects
/// it after a while.
async fn play_node(store: MemoryStore, chaos: Arc<AtomicBool>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let partitioned = Arc::new(AtomicBool::new(false));
        let handle = faulty(&store, &chaos, &partitioned, random.u64(..));
        let node = node(handle, &mut random);
        let life = Duration::from_millis(random.u64(100..120_000));
        let death = random.u8(0..3);
        let calm = async {
            sleep(life).await;
            // Once the faults have ended, nodes run until the end of the simulation.
            while !chaos.load(Ordering::SeqCst) {
                sleep(Duration::from_secs(60)).await;
            }
        };
        match death {
            // The node stops gracefully.
            0 => drop(node.run_until(calm).await),
            // The node ends at once, as if it were killed by SIGKILL.
            1 => tokio::select! {
                biased;
                () = calm => {}
                _ = node.run_until(std::future::pending::<()>()) => {}
            },
            // The node is unreachable for a while, but continues to work.
            _ => {
                let cut = async {
                    calm.await;
                    partitioned.store(true, Ordering::SeqCst);
                    sleep(Duration::from_secs(40)).await;
                    partitioned.store(false, Ordering::SeqCst);
                    sleep(Duration::from_secs(30)).await;
                };
                drop(node.run_until(cut).await);
            }
        }
        sleep(Duration::from_millis(random.u64(0..20_000))).await;
    }
}

fn node(store: MemoryStore, random: &mut fastrand::Rng) -> Node {
    let mut builder = Ratchet::builder(Arc::new(store))
        .register::<Work>()
        .concurrency(random.usize(1..8))
        .prefetch(random.usize(0..20))
        .lazy_payloads(random.bool())
        .start_timeout(Duration::from_secs(60))
        .drain_grace(Duration::from_secs(random.u64(0..20)))
        .seed(random.u64(..));
    if random.bool() {
        builder = builder.queue_concurrency("a", random.usize(1..4));
    }
    if random.u8(0..3) == 0 {
        builder = builder.label(["one", "two"][random.usize(0..2)]);
    }
    builder.build().unwrap()
}

/// Checks that a repeated enqueue returns `Created` again and stores no second job.
#[test]
fn an_enqueue_repeated_after_an_unknown_outcome_leaves_one_job() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = MemoryStore::new();
        let failing = store.clone().with_faults(|_| Fault::ErrorAfterCommit);
        let job = NewJob::new("work", &());
        assert!(failing.enqueue(std::slice::from_ref(&job)).await.is_err());
        let answer = store.enqueue(std::slice::from_ref(&job)).await.unwrap();
        assert_eq!(answer, [Enqueued::Created(job.id())]);
        assert_eq!(
            store.queues().await.unwrap()[0].counts[&JobState::Pending],
            1
        );
    });
}
