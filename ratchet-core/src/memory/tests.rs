//! Replays random histories of the memory store.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;

use super::*;
use crate::error::InvalidInput;
use crate::id::{BatchId, ClaimToken, Fence, JobId, NodeId};
use crate::json::Json;
use crate::model::{
    ArchiveFilter, ArchivePurge, BatchCondition, BatchPurge, ClaimRequest, Condition, Definition,
    Detail, FairScope, Guard, Heartbeat, JobFilter, JobOrder, NewJob, NodeStatus, NodeSweep,
    Outcome, PageRequest, Parent, PauseRequest, PauseScope, PurgeRequest, PutRecurring,
    RateRequest, ReclaimRequest, Recurring, RecurringClaimRequest, Report, ReportKind,
    RetireRecurring, Settlement, Signal, SignalTarget,
};
use crate::name::Name;
use crate::priority::Priority;
use crate::rate::Rate;
use crate::state::{JobAction, JobState};
use crate::store::{Acquired, IfKnown};

const SECOND: Duration = Duration::from_secs(1);
const STEPS: usize = 400;
const HISTORIES: u64 = 12;
/// The number of variants of [`Command`]: the histories contain each of them.
const OPERATIONS: usize = 34;

/// Is in the serialized form of data with freed entries.
const FREED: &str = "\"freed\":";

/// The serialized form of a command and of its answer.
type Logged = (String, String);

fn name(text: &str) -> Name {
    Name::new("name", text).unwrap()
}

/// A store with a random history, and what the next random calls refer to.
struct History {
    rng: Rng,
    clock: ManualClock,
    store: MemoryStore,
    log: Arc<Mutex<Vec<Logged>>>,
    nodes: Vec<NodeId>,
    jobs: Vec<JobId>,
    batches: Vec<BatchId>,
    claims: Vec<ClaimToken>,
    fence: Fence,
}

impl History {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
        let log: Arc<Mutex<Vec<Logged>>> = Arc::default();
        let entries = Arc::clone(&log);
        let store = MemoryStore::with_clock(clock.clone()).with_log(move |entry, answer| {
            let logged = (entry.encode().unwrap(), answer.encode().unwrap());
            entries.lock().unwrap().push(logged);
        });
        Self {
            rng: Rng::with_seed(seed),
            clock,
            store,
            log,
            nodes: (0..3).map(|_| NodeId::new()).collect(),
            jobs: Vec::new(),
            batches: Vec::new(),
            claims: Vec::new(),
            fence: Fence(0),
        }
    }

    fn some<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        self.rng.choice(of).cloned()
    }

    fn guard(&self) -> Guard {
        Guard {
            lock: name("lead"),
            owner: name("one"),
            fence: self.fence,
        }
    }

    fn job(&mut self) -> NewJob {
        let texts = ["a", "b", "c"];
        let text = texts[self.rng.usize(..3)];
        let mut job = NewJob::new(text, &self.rng.u8(..)).queue(texts[self.rng.usize(..3)]);
        job = job.priority(Priority::ALL[self.rng.usize(..5)]).tag(text);
        match self.rng.u8(..15) {
            0 | 1 => job = job.lane(text),
            2 => job = job.unique_key(text),
            3 => job = job.idempotency_key(&self.rng.u8(..40).to_string()),
            4 => job = job.delay(SECOND),
            5 => job = job.permit("licence"),
            6 => job = job.wait_for(text, 20 * SECOND),
            7 => {
                if let Some(parent) = self.some(&self.jobs.clone()) {
                    job = job.after(parent, Condition::result_is("", &1));
                }
            }
            8 => {
                if let Some(batch) = self.some(&self.batches.clone()) {
                    job = job.after_batch(batch, BatchCondition::Ended);
                }
            }
            9 => job = job.expires_in(SECOND * self.rng.u32(1..9)),
            10..13 => job = job.fair_key(text),
            13 => job = job.weighted_fair_key(&self.rng.u8(..9).to_string(), 0.5),
            _ => {
                if let Some(batch) = self.some(&self.batches.clone()) {
                    job = job.in_batch(batch);
                }
            }
        }
        job
    }

    async fn step(&mut self) -> Result<()> {
        self.clock
            .advance(Duration::from_millis(self.rng.u64(..700)));
        match self.rng.u8(..16) {
            0..4 => {
                let jobs: Vec<NewJob> = (0..self.rng.usize(1..4)).map(|_| self.job()).collect();
                let answers = self.store.enqueue(&jobs).await?;
                self.jobs.extend(answers.iter().map(|answer| answer.id()));
            }
            4..6 => {
                let node = self.nodes[self.rng.usize(..3)];
                let claimed = self
                    .store
                    .claim_next_batch(&ClaimRequest::new(node, 4))
                    .await?;
                self.claims
                    .extend(claimed.iter().map(|job| job.claim.token));
            }
            6..8 => self.end_a_claim().await?,
            8 => self.act().await?,
            9 => self.tend_nodes().await?,
            10 => self.hold_lock().await?,
            11 => self.tend_recurring().await?,
            12 => {
                let target = match self.rng.bool() {
                    true => SignalTarget::Key(name("b")),
                    false => {
                        SignalTarget::Job(self.some(&self.jobs.clone()).unwrap_or_else(JobId::new))
                    }
                };
                let signal = Signal::new(target, Json::from_stored("[1]"));
                self.store.deliver(&signal).await?;
                self.store.expire(2).await?;
                self.store.expire_jobs(2).await?;
            }
            13 => self.keep_house().await?,
            14 => self.tend_batches().await?,
            _ => self.limit().await?,
        }
        Ok(())
    }

    async fn end_a_claim(&mut self) -> Result<()> {
        let Some(token) = self.some(&self.claims.clone()) else {
            return Ok(());
        };
        let kind = match self.rng.u8(..3) {
            0 => ReportKind::Alive,
            1 => ReportKind::Checkpoint(Json::from_stored("{}")),
            _ => ReportKind::Progress {
                percent: 40,
                message: "on".to_owned(),
            },
        };
        self.store.report(&[Report::new(token, kind)]).await?;
        let error = || "it failed".to_owned();
        let outcome = match self.rng.u8(..6) {
            0 => Outcome::Retry {
                delay: SECOND,
                error: error(),
            },
            1 => Outcome::Failed { error: error() },
            2 => Outcome::Snoozed { delay: SECOND },
            3 => Outcome::Cancelled,
            _ => Outcome::Succeeded {
                result: Some(Json::from_stored("1")),
            },
        };
        let settlement = Settlement::new(token, outcome).ran_for(SECOND);
        self.store.settle(&[settlement]).await?;
        Ok(())
    }

    async fn act(&mut self) -> Result<()> {
        let job = self.some(&self.jobs.clone());
        let action = JobAction::ALL[self.rng.usize(..7)];
        let jobs: Vec<JobId> = job.into_iter().collect();
        self.store.act_on(&jobs, &JobState::ALL, action).await?;
        Ok(())
    }

    async fn tend_nodes(&mut self) -> Result<()> {
        let place = self.rng.usize(..3);
        let status = [
            NodeStatus::Joining,
            NodeStatus::Active,
            NodeStatus::Draining,
        ];
        let (node, status) = (self.nodes[place], status[self.rng.usize(..3)]);
        if self.rng.u8(..10) == 0 {
            self.nodes[place] = NodeId::new();
        }
        let label = name(&place.to_string());
        let heartbeat = Heartbeat::new(node, label, status, SECOND);
        self.store.heartbeat(&heartbeat).await?;
        self.store.set_node_status(node, NodeStatus::Active).await?;
        let sweep = NodeSweep::new(5 * SECOND, 20 * SECOND);
        let guard = self.rng.bool().then(|| self.guard());
        self.store.sweep_nodes(&sweep.guarded(guard)).await?;
        let reclaim = ReclaimRequest::new().dead_after(5 * SECOND);
        self.store.reclaim(&reclaim.max_crashes(1)).await?;
        Ok(())
    }

    async fn hold_lock(&mut self) -> Result<()> {
        let (lead, one) = (name("lead"), name("one"));
        match self.rng.u8(..4) {
            0 => drop(self.store.renew(&lead, &one, self.fence, SECOND).await?),
            1 => drop(self.store.release(&lead, &one, self.fence).await?),
            2 => drop(self.store.acquire(&lead, &name("two"), SECOND).await?),
            _ => {
                let acquired = self.store.acquire(&lead, &one, 9 * SECOND).await?;
                if let Acquired::Acquired { fence } = acquired {
                    self.fence = fence;
                }
            }
        }
        Ok(())
    }

    async fn tend_recurring(&mut self) -> Result<()> {
        let texts = ["r", "s"];
        let text = texts[self.rng.usize(..2)];
        let node = self.nodes[0];
        match self.rng.u8(..7) {
            0 | 1 => {
                let every = SECOND * self.rng.u32(1..4);
                let declared = self.rng.bool();
                let put = PutRecurring::new(every_so_often(text, every));
                self.store.put(&put.declared(declared)).await?;
            }
            2 => drop(self.store.set_paused(&name(text), self.rng.bool()).await?),
            3 if self.rng.bool() => drop(self.store.delete(&name(text)).await?),
            4 => {
                let request = RetireRecurring::new(vec![name("r")], node, self.guard());
                self.store.retire(&request).await?;
            }
            _ => {
                let request = RecurringClaimRequest::new(node, 2).lease(SECOND);
                let due = self.store.claim_due_recurring(&request).await?;
                let plans = due.definitions.iter().filter_map(|one| one.plan(due.now));
                let plans: Vec<_> = plans.collect();
                self.store.fire(&plans).await?;
            }
        }
        Ok(())
    }

    async fn keep_house(&mut self) -> Result<()> {
        let guard = self.rng.bool().then(|| self.guard());
        let states = [JobState::Succeeded, JobState::Failed, JobState::Cancelled];
        let request = PurgeRequest::new(states[self.rng.usize(..3)], SECOND, 2).guarded(guard);
        match self.rng.u8(..3) {
            0 => drop(self.store.purge(&request).await?),
            1 => drop(ArchiveStore::archive(&self.store, &request).await?),
            _ => {
                let request = ArchivePurge::new(9 * SECOND, 1);
                self.store.purge_archive(&request).await?;
            }
        }
        Ok(())
    }

    async fn tend_batches(&mut self) -> Result<()> {
        match self.rng.u8(..4) {
            0 | 1 => {
                let batch = BatchId::new();
                self.store.create_batch(batch).await?;
                self.batches.push(batch);
            }
            2 => {
                if let Some(batch) = self.some(&self.batches.clone()) {
                    self.store.close_batch(batch).await?;
                }
            }
            _ => drop(
                self.store
                    .purge_batches(&BatchPurge::new(9 * SECOND, 1))
                    .await?,
            ),
        }
        Ok(())
    }

    async fn limit(&mut self) -> Result<()> {
        let max = self.rng.u32(..3);
        self.store
            .set_permits(&name("licence"), max, IfKnown::Change)
            .await?;
        let rate = RateRequest::new(name("rate"), Rate::new(1, SECOND));
        self.store.take(&[rate.clone(), rate]).await?;
        if self.rng.u8(..4) == 0 {
            self.store.forget_idle(1).await?;
        }
        let guard = self.rng.bool().then(|| self.guard());
        self.store.bump(&name("space"), guard.as_ref()).await?;
        let scope = match self.rng.bool() {
            true => PauseScope::Queue(name("c")),
            false => PauseScope::Kind(name("c")),
        };
        match self.rng.bool() {
            true => self.store.pause(&PauseRequest::new(scope)).await?,
            false => self.store.resume(&scope).await?,
        };
        let scope = match self.rng.bool() {
            true => FairScope::queues("*")?,
            false => FairScope::key("a", "a")?,
        };
        let max = (self.rng.u8(..4) > 0).then(|| self.rng.u32(..2));
        self.store.set_fair_limit(&scope, max).await?;
        Ok(())
    }

    /// Checks that every read gives the same in this store and in `other`.
    async fn compare_reads(&self, other: &MemoryStore) -> Result<()> {
        let store = &self.store;
        assert_eq!(
            store.get(&self.jobs, Detail::Whole).await?,
            other.get(&self.jobs, Detail::Whole).await?
        );
        assert_eq!(store.fair_limits().await?, other.fair_limits().await?);
        for job in &self.jobs {
            assert_eq!(
                store.history(*job).await?,
                JobStore::history(other, *job).await?
            );
            let parent = Parent::Job(*job);
            assert_eq!(
                store.children_of(parent, 9, None).await?,
                other.children_of(parent, 9, None).await?
            );
        }
        assert_eq!(
            store.parents_of(&self.jobs).await?,
            other.parents_of(&self.jobs).await?
        );
        assert_eq!(
            store.load_inputs(&self.claims).await?,
            other.load_inputs(&self.claims).await?
        );
        assert_eq!(
            store.batches(&self.batches).await?,
            other.batches(&self.batches).await?
        );
        let page = PageRequest::first(9).order(JobOrder::OldestFirst);
        let all = ArchiveFilter::all();
        assert_eq!(
            store.list_archived(&all, &page).await?,
            other.list_archived(&all, &page).await?
        );
        let all = JobFilter::all();
        assert_eq!(
            store.select(&all, &page).await?,
            other.select(&all, &page).await?
        );
        assert_eq!(
            QueueStore::queues(store).await?,
            QueueStore::queues(other).await?
        );
        assert_eq!(
            store.due_routes(SECOND).await?,
            other.due_routes(SECOND).await?
        );
        assert_eq!(
            NodeStore::nodes(store).await?,
            NodeStore::nodes(other).await?
        );
        assert_eq!(
            store.list_locks(None, 9).await?,
            other.list_locks(None, 9).await?
        );
        let spaces = [name("space")];
        assert_eq!(
            VersionStore::versions(store, &spaces).await?,
            VersionStore::versions(other, &spaces).await?
        );
        assert_eq!(
            PermitStore::permits(store).await?,
            PermitStore::permits(other).await?
        );
        assert_eq!(
            store.definitions(None, 9).await?,
            other.definitions(None, 9).await?
        );
        Ok(())
    }
}

fn every_so_often(name: &str, every: Duration) -> Definition {
    let recurring = Recurring::every(every).named(name);
    recurring.job(NewJob::new("tick", &())).check().unwrap()
}

/// Where the recorded history is. Each line is an entry, or the answer to the entry before it. The
/// last line is the data at the end.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/memory/recorded.jsonl");
const RECORDED_STEPS: usize = 150;

/// Fails when a change of the rules gives other data or other answers than before, which processes
/// with a common log must not do.
#[tokio::test]
async fn the_recorded_history_gives_the_same_data_and_answers() {
    const REMEDY: &str = "the rules of the state machine have changed: increase FORMAT in \
                          ratchet-store-object/src/document.rs, unless this format was never \
                          released, and record a new history by RATCHET_WRITE_HISTORY=1";
    if std::env::var_os("RATCHET_WRITE_HISTORY").is_some() {
        let mut history = History::new(1);
        for _ in 0..RECORDED_STEPS {
            // Refusals are answers too.
            let _ = history.step().await;
        }
        let log = std::mem::take(&mut *history.log.lock().unwrap());
        let mut lines: Vec<String> = log
            .into_iter()
            .flat_map(|(entry, answer)| [entry, answer])
            .collect();
        lines.push(history.store.snapshot().encode().unwrap());
        std::fs::write(RECORDED, lines.join("\n") + "\n").unwrap();
    }
    let recorded = std::fs::read_to_string(RECORDED).unwrap();
    let mut lines: Vec<&str> = recorded.lines().collect();
    let end = lines.pop().unwrap();
    let mut data = Snapshot::default();
    let mut operations = BTreeSet::new();
    for pair in lines.chunks(2) {
        let entry = Entry::decode(pair[0]).expect(REMEDY);
        operations.insert(entry.command.operation());
        let answer = data.apply(&entry).encode().unwrap();
        assert_eq!(answer, pair[1], "{REMEDY}");
    }
    assert_eq!(data.encode().unwrap(), end, "{REMEDY}");
    assert!(operations.len() >= OPERATIONS - 2, "{operations:?}");
}

/// Replays the commands on `data`, and checks the answers. Returns the operations of the commands
/// that are known to change nothing, after checking that this is true.
fn replay(data: &mut Snapshot, log: &[Logged]) -> BTreeSet<&'static str> {
    let mut unchanged = BTreeSet::new();
    for (text, answer) in log {
        let entry = Entry::decode(text).unwrap();
        let foreseen = data.unchanged_by(&entry.command, entry.at);
        // Once per operation, because the data is large.
        let first = foreseen.is_some() && unchanged.insert(entry.command.operation());
        let before = first.then(|| data.encode().unwrap());
        let replayed = data.apply(&entry);
        assert_eq!(replayed.encode().unwrap(), *answer, "{text}");
        if let Some(foreseen) = foreseen {
            assert_eq!(foreseen.encode().unwrap(), *answer, "{text}");
        }
        if let Some(before) = before {
            assert_eq!(data.encode().unwrap(), before, "{text}");
        }
    }
    unchanged
}

/// The operations that histories call although nothing changes, and that are known not to change
/// anything.
const UNCHANGED: [&str; 19] = [
    "acquire",
    "archive",
    "bump",
    "claim_due_recurring",
    "claim_next_batch",
    "expire",
    "expire_jobs",
    "forget_idle",
    "pause",
    "purge",
    "purge_archive",
    "purge_batches",
    "reclaim",
    "release",
    "renew",
    "resume",
    "retire",
    "set_fair_limit",
    "sweep_nodes",
];

#[tokio::test]
async fn a_replayed_history_gives_the_same_data_and_answers() {
    let mut operations = BTreeSet::new();
    let mut unchanged = BTreeSet::new();
    let mut snapshots_with_freed = 0;
    for seed in 0..HISTORIES {
        let mut history = History::new(seed);
        let middle = history.rng.usize(..STEPS);
        let mut snapshot = (0, String::new());
        let mut kinds = [0, 0];
        for step in 0..STEPS {
            let has_freed = !history.store.data().0.freed.is_empty();
            if step == middle || (step > middle && has_freed && !snapshot.1.contains(FREED)) {
                let commands = history.log.lock().unwrap().len();
                snapshot = (commands, history.store.snapshot().encode().unwrap());
            }
            let refused = history.step().await;
            if let Err(error) = &refused {
                assert_eq!(error.kind(), StoreErrorKind::Invalid, "{error}");
            }
            kinds[usize::from(refused.is_err())] += 1;
        }
        assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
        let log = std::mem::take(&mut *history.log.lock().unwrap());
        let end = history.store.snapshot().encode().unwrap();

        let commands = log
            .iter()
            .map(|(entry, _)| Entry::decode(entry).unwrap().command);
        operations.extend(commands.map(|command| command.operation()));

        let mut data = Snapshot::default();
        unchanged.extend(replay(&mut data, &log));
        assert_eq!(data.encode().unwrap(), end, "seed {seed}");

        let (commands, snapshot) = snapshot;
        snapshots_with_freed += usize::from(snapshot.contains(FREED));
        let mut data = Snapshot::decode(&snapshot).unwrap();
        assert_eq!(data.encode().unwrap(), snapshot);
        replay(&mut data, &log[commands..]);
        assert_eq!(data.encode().unwrap(), end, "seed {seed} from {commands}");

        let other = MemoryStore::with_clock(history.clock.clone());
        other.rewind(&Snapshot::decode(&end).unwrap());
        history.compare_reads(&other).await.unwrap();
    }
    assert!(snapshots_with_freed > 0, "no snapshot has freed entries");
    assert_eq!(operations.len(), OPERATIONS, "{operations:?}");
    assert_eq!(unchanged, BTreeSet::from(UNCHANGED));
}

/// The time-zone data of the process that replays a command may differ.
#[tokio::test]
async fn a_replayed_definition_has_the_slots_of_its_command() {
    let clock = ManualClock::new(time::from_millis(0));
    let mut data = Snapshot::default();
    let put = PutRecurring::new(every_so_often("r", SECOND));
    let slot = |millis| Some(time::from_millis(millis));
    let find = async |data: &Snapshot| {
        let store = MemoryStore::with_clock(clock.clone());
        store.rewind(data);
        store.find(&name("r")).await.unwrap().unwrap().next_fire
    };
    let command = Command::Put {
        put: (&put).into(),
        next_fire: slot(77_000),
    };
    data.apply(&Entry::new(0, command));
    assert_eq!(find(&data).await, slot(77_000));
    for (paused, next_fire) in [(true, slot(77_000)), (false, slot(88_000))] {
        let name = name("r");
        let command = Command::SetPaused {
            name,
            paused,
            next_fire,
        };
        data.apply(&Entry::new(0, command));
    }
    assert_eq!(find(&data).await, slot(88_000));
}

#[test]
fn what_is_no_such_document_is_refused() {
    let later = |text: &str| text.replacen("\"v\":1", "\"v\":2", 1);
    let entry = Entry::new(5, Command::Resume(PauseScope::Queue(name("q"))));
    let answer = Answer::Refused(InvalidInput::new("permit", "is missing"));
    let texts = [
        entry.encode().unwrap(),
        answer.encode().unwrap(),
        Snapshot::default().encode().unwrap(),
    ];
    for text in [later(&texts[0]), "{}".to_owned()] {
        assert_eq!(Entry::decode(&text).unwrap_err().field(), "document");
    }
    for text in [later(&texts[1]), "{}".to_owned()] {
        assert_eq!(Answer::decode(&text).unwrap_err().field(), "document");
    }
    for text in [later(&texts[2]), "{}".to_owned()] {
        assert_eq!(Snapshot::decode(&text).unwrap_err().field(), "document");
    }
}

/// An enqueue of one job, and the data after it, as the first version wrote them.
const FIRST_ENTRY: &str = r#"{"v":1,"at":5,"command":{"enqueue":[{"id":
    "01890a5d-ac96-774b-bcce-b302099a8057","spec":{"route":{"queue":"q","kind":"k","capability":null,"permit":null},
    "payload":"1","payload_version":1,"priority":"normal","retry":{"max_attempts":10,"backoff":
    {"exponential":{"base":1000,"cap":300000}},"jitter_percent":25},"timeout":null,"stall_timeout":
    null,"unique_key":null,"idempotency_key":null,"lane":"l","after":[],"batch":null,"signal":null,
    "trace":null,"recurring":null,"tags":[]},"run_at":{"in":{"secs":1,"nanos":0}}}]}}"#;
const FIRST_SNAPSHOT: &str = r#"{"v":1,"jobs":{"01890a5d-ac96-774b-bcce-b302099a8057":{"record":
    {"id":"01890a5d-ac96-774b-bcce-b302099a8057","spec":{"route":{"queue":"q","kind":"k","capability":null,"permit":null},
    "payload":"1","payload_version":1,"priority":"normal","retry":{"max_attempts":10,"backoff":
    {"exponential":{"base":1000,"cap":300000}},"jitter_percent":25},"timeout":null,"stall_timeout":
    null,"unique_key":null,"idempotency_key":null,"lane":"l","after":[],"batch":null,"signal":null,
    "trace":null,"recurring":null,"tags":[]},"state":"pending","run_at":
    "1970-01-01T00:00:01.005Z","created_at":"1970-01-01T00:00:00.005Z","finished_at":null,
    "attempts":0,"crash_count":0,"claim_seq":0,"node":null,"claimed_at":null,"cancel_requested":
    false,"progress":null,"checkpoint":null,"result":null,"last_error":null,"signal":null},"links":
    [],"lane_seq":1,"has_children":false,"is_counted":false,"last_report":null,"settled":null}},
    "history":{},"idempotency_keys":{},"batches":{},"pauses":[],"nodes":{},"locks":{},
    "versions":{},"recurring":{},"archive":{},"permits":{},"rates":{}}"#;

#[test]
fn documents_of_the_first_version_are_read() {
    let mut data = Snapshot::default();
    let answer = data.apply(&Entry::decode(FIRST_ENTRY).unwrap());
    let first =
        r#"{"v":1,"answer":{"enqueued":[{"created":"01890a5d-ac96-774b-bcce-b302099a8057"}]}}"#;
    let first = Answer::decode(first).unwrap().encode();
    assert_eq!(answer.encode(), first);
    let read = Snapshot::decode(FIRST_SNAPSHOT).unwrap();
    assert_eq!(read.encode(), data.encode());
}
