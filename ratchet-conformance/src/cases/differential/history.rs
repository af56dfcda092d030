//! Runs a history on the model, which is the in-memory store, and on the store under test, and
//! compares both after every step.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::time::Duration;

use ratchet_core::memory::{ManualClock, MemoryStore};
use ratchet_core::model::{
    ArchiveFilter, ArchivedJob, Attempt, BatchRecord, DueRoute, FairLimit, JobFilter, JobOrder,
    Link, NodeRecord, PageRequest, PauseInfo, PermitInfo, QueueInfo, RecurringPage,
};
use ratchet_core::store::Checked;
use ratchet_core::store::LockInfo;
use ratchet_core::time::Timestamp;
use ratchet_core::{JobId, JobRecord, Name, Store};

use super::difference::differences;
use super::generator::{Generator, LOCKS};
use super::step::Step;
use crate::Power;
use crate::build::name;
use crate::cx::Cx;
use crate::node::{TestNode, ok};

/// The differences between the model and the store, with one field per item.
struct Mismatch(Vec<String>);

/// The model and the store under test. Their clocks always show the same time.
struct Pair {
    model: Checked<MemoryStore>,
    clock: ManualClock,
    cx: Cx,
    /// Two handles of the store. The steps use them alternately, so that the comparison checks that
    /// each handle sees the writes of the other.
    handles: [TestNode; 2],
    steps: usize,
    seen: BTreeMap<JobId, JobRecord>,
}

impl Pair {
    async fn new(cx: Cx) -> Self {
        let handles = [cx.node().await, cx.node().await];
        let clock = ManualClock::new(handles[0].now().await);
        Self {
            model: Checked::new(MemoryStore::with_clock(clock.clone())),
            clock,
            cx,
            handles,
            steps: 0,
            seen: BTreeMap::new(),
        }
    }

    /// Runs a step on the model and on the store. Returns the answer of the model, or the
    /// differences between model and store.
    async fn step(&mut self, step: &Step) -> Result<super::step::Answer, Mismatch> {
        let turn = self.steps % 2;
        self.steps += 1;
        match step {
            Step::Advance(by) => {
                self.clock.advance(*by);
                self.cx.advance(*by).await;
            }
            Step::Reopen => self.handles[turn] = self.cx.node().await,
            _ => {}
        }
        let expected = step.apply(&self.model).await;
        let answer = step.apply(&*self.handles[turn].store).await;
        let answer = match self.cx.settings().may_exaggerate {
            true => answer.allowing_for(&expected),
            false => answer,
        };
        same("answer", &expected, &answer)?;
        self.compare(1 - turn).await?;
        Ok(expected)
    }

    /// Compares all observable data of the model and of the store. Reads the store through the
    /// handle `reader`, which did not run the step. Compares attempts only for jobs that have
    /// changed: a new attempt always changes its job too.
    async fn compare(&mut self, reader: usize) -> Result<(), Mismatch> {
        let store = &*self.handles[reader].store;
        let recurring = self.cx.has(Power::Recurring);
        let expected = observe(&self.model, recurring).await;
        let actual = observe(store, recurring).await;
        same("jobs", &expected.jobs, &actual.jobs)?;
        same("archive", &expected.archive, &actual.archive)?;
        same("queues", &expected.queues, &actual.queues)?;
        same("nodes", &expected.nodes, &actual.nodes)?;
        same("locks", &expected.locks, &actual.locks)?;
        same("list_locks", &expected.listed_locks, &actual.listed_locks)?;
        same("due_routes", &expected.due, &actual.due)?;
        same("pauses", &expected.pauses, &actual.pauses)?;
        same("definitions", &expected.recurring, &actual.recurring)?;
        if let (Some(expected), Some(actual)) = (expected.permits, actual.permits) {
            same("permits", &expected, &actual)?;
        }
        if let (Some(expected), Some(actual)) = (expected.fair_limits, actual.fair_limits) {
            same("fair_limits", &expected, &actual)?;
        }
        same("time", &expected.time, &actual.time)?;
        if let (Some(expected), Some(actual)) = (expected.workflows, actual.workflows) {
            same("links", &expected.links, &actual.links)?;
            same("batches", &expected.batches, &actual.batches)?;
        }
        let now: BTreeMap<JobId, JobRecord> =
            expected.jobs.into_iter().map(|job| (job.id, job)).collect();
        for (id, job) in &now {
            if self.seen.get(id) != Some(job) {
                let expected = history(&self.model, *id).await;
                same("history", &expected, &history(store, *id).await)?;
            }
        }
        self.seen = now;
        Ok(())
    }
}

async fn history(store: &dyn Store, job: JobId) -> Vec<Attempt> {
    ok(store.jobs().history(job).await)
}

/// All observable data of a store, except the attempts of jobs.
struct Observed {
    jobs: Vec<JobRecord>,
    archive: Vec<ArchivedJob>,
    queues: Vec<QueueInfo>,
    nodes: Vec<NodeRecord>,
    locks: Vec<Option<LockInfo>>,
    listed_locks: Vec<(Name, LockInfo)>,
    due: Vec<DueRoute>,
    pauses: Vec<PauseInfo>,
    recurring: Option<RecurringPage>,
    /// Permits of all resources, or `None` if the store has no permits.
    permits: Option<Vec<PermitInfo>>,
    /// Limits of fair keys, or `None` if the store has none.
    fair_limits: Option<Vec<FairLimit>>,
    time: Timestamp,
    /// Links and batches, or `None` if the store has no workflows.
    workflows: Option<ObservedWorkflows>,
}

struct ObservedWorkflows {
    links: Vec<Vec<Link>>,
    batches: Vec<BatchRecord>,
}

async fn observe(store: &dyn Store, recurring: bool) -> Observed {
    let page = PageRequest::first(10_000).order(JobOrder::OldestFirst);
    let mut locks = Vec::new();
    for lock in LOCKS {
        locks.push(ok(store.locks().inspect(&name(lock)).await));
    }
    let definitions = match store.recurring().filter(|_| recurring) {
        Some(recurring) => Some(ok(recurring.definitions(None, 100).await)),
        None => None,
    };
    let archive = match store.archive() {
        Some(archive) => ok(archive.list_archived(&ArchiveFilter::all(), &page).await).jobs,
        None => Vec::new(),
    };
    let jobs = ok(store.jobs().list(&JobFilter::all(), &page).await).jobs;
    let workflows = match store.workflows() {
        None => None,
        Some(workflows) => {
            let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
            Some(ObservedWorkflows {
                links: ok(workflows.parents_of(&ids).await),
                batches: ok(workflows.recent_batches(1_000, None).await),
            })
        }
    };
    Observed {
        recurring: definitions,
        archive,
        jobs,
        workflows,
        queues: ok(store.queues().queues().await),
        nodes: ok(store.nodes().nodes().await),
        locks,
        listed_locks: ok(store.locks().list_locks(None, 100).await),
        due: ok(store.queues().due_routes(Duration::from_secs(60)).await),
        pauses: ok(store.queues().pauses().await),
        permits: match store.permits() {
            None => None,
            Some(permits) => Some(ok(permits.permits().await)),
        },
        fair_limits: match store.fair() {
            None => None,
            Some(fair) => Some(ok(fair.fair_limits().await)),
        },
        time: ok(store.nodes().database_time().await),
    }
}

fn same<T: PartialEq + Debug>(what: &str, expected: &T, actual: &T) -> Result<(), Mismatch> {
    if expected == actual {
        return Ok(());
    }
    let mut lines = differences(what, expected, actual);
    if lines.is_empty() {
        lines.push(format!("{what}: expected {expected:?} / found {actual:?}"));
    }
    Err(Mismatch(lines))
}

/// Generates a history from a seed and runs it. Panics if the store differs from the model. The
/// panic message shows the history, which is shortened first if the settings allow it.
pub(super) async fn run(cx: &Cx, seed: u64, length: usize) {
    let mut generator = Generator::new(seed, |power| cx.has(power));
    let mut pair = Pair::new(cx.another().await).await;
    let mut steps = Vec::new();
    let mut failed = None;
    while steps.len() < length && failed.is_none() {
        let step = generator.next(pair.clock.now());
        steps.push(step.clone());
        match pair.step(&step).await {
            Ok(answer) => generator.learn(&answer),
            Err(mismatch) => failed = Some(mismatch),
        }
    }
    close(cx, pair).await;
    if let Some(mismatch) = failed {
        let (steps, mismatch) = match cx.settings().shrinks {
            true => shrink(cx, steps, mismatch).await,
            false => (steps, mismatch),
        };
        panic!("{}", tell(seed, &steps, &mismatch));
    }
}

async fn close(cx: &Cx, pair: Pair) {
    drop(pair.handles);
    cx.close(pair.cx).await;
}

/// Runs these steps on a new model and a new, empty store.
async fn replay(cx: &Cx, steps: &[Step]) -> Result<(), Mismatch> {
    let mut pair = Pair::new(cx.another().await).await;
    let mut ended = Ok(());
    for step in steps {
        ended = pair.step(step).await.map(|_| ());
        if ended.is_err() {
            break;
        }
    }
    close(cx, pair).await;
    ended
}

/// A failing history while it is being shortened.
struct Shrinking<'a> {
    cx: &'a Cx,
    steps: Vec<Step>,
    mismatch: Mismatch,
}

impl Shrinking<'_> {
    /// Runs the history `fewer`. If `fewer` fails too, replaces the steps by `fewer` and returns
    /// `true`. Returns `false` without a run if the test case has no time left.
    async fn try_instead(&mut self, fewer: Vec<Step>) -> bool {
        if self.cx.is_late() {
            return false;
        }
        match replay(self.cx, &fewer).await {
            Err(mismatch) => {
                (self.steps, self.mismatch) = (fewer, mismatch);
                true
            }
            Ok(()) => false,
        }
    }

    /// Tries to remove parts of the history, beginning with the last part. The parts are first
    /// halves of the history, then quarters, and finally single steps. Returns whether it removed
    /// steps.
    async fn leave_out_steps(&mut self) -> bool {
        let before = self.steps.len();
        let mut size = before.div_ceil(2);
        loop {
            let mut end = self.steps.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut fewer = self.steps.clone();
                fewer.drain(start..end);
                self.try_instead(fewer).await;
                end = start;
            }
            if size <= 1 {
                return self.steps.len() < before;
            }
            size /= 2;
        }
    }

    /// Tries to remove single items from the steps, such as jobs and tokens. Returns whether it
    /// removed items.
    async fn leave_out_items(&mut self) -> bool {
        let mut changed = false;
        for index in (0..self.steps.len()).rev() {
            for item in (0..self.steps[index].items()).rev() {
                let mut fewer = self.steps.clone();
                fewer[index].remove_item(item);
                changed |= self.try_instead(fewer).await;
            }
        }
        changed
    }
}

/// Removes all steps and items without which the history still fails. Returns the remaining steps
/// and their differences.
async fn shrink(cx: &Cx, steps: Vec<Step>, first: Mismatch) -> (Vec<Step>, Mismatch) {
    if cx.is_late() {
        return (steps, first);
    }
    let Err(mismatch) = replay(cx, &steps).await else {
        let Mismatch(mut lines) = first;
        let once = "the store differed from the model in the first run of the history, but not in \
            a second run:";
        lines.insert(0, once.to_owned());
        return (steps, Mismatch(lines));
    };
    let mut shrinking = Shrinking {
        cx,
        steps,
        mismatch,
    };
    loop {
        let fewer_steps = shrinking.leave_out_steps().await;
        let fewer_items = shrinking.leave_out_items().await;
        if !fewer_steps && !fewer_items {
            return (shrinking.steps, shrinking.mismatch);
        }
    }
}

/// Returns the failure message: the differences, the steps of the shortened history, and the seed.
fn tell(seed: u64, steps: &[Step], mismatch: &Mismatch) -> String {
    const SHOWN: usize = 20;
    let Mismatch(lines) = mismatch;
    let mut out = lines[..lines.len().min(SHOWN)].join("\n");
    if lines.len() > SHOWN {
        let _ = write!(out, "\nand {} more", lines.len() - SHOWN);
    }
    let _ = writeln!(
        out,
        "\nthe store differs after the last of these steps, to which the history was shortened; \
         RATCHET_SEED={seed} runs the whole history:"
    );
    for (number, step) in steps.iter().enumerate() {
        let _ = writeln!(out, "{number:>4}. {step:?}");
    }
    out
}
