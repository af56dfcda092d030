//! Generates random histories: each step follows from a seed and the results of earlier steps.

mod values;

use std::time::Duration;

use fastrand::Rng;
use ratchet_core::model::*;
use ratchet_core::schedule::ZoneData;
use ratchet_core::store::{Acquired, IfKnown};
use ratchet_core::time::{self, Timestamp};
use ratchet_core::{
    BatchId, ClaimToken, Fence, JobAction, JobId, JobState, NewJob, NodeId, Priority, Rate,
};

use super::step::{Answer, Step};
use crate::Power;
use crate::build::{json, name};

/// The queues that the steps use. This list and the following ones are short, so that several steps
/// use the same names and affect each other.
const QUEUES: [&str; 4] = ["default", "images", "Größe", "groupe"];
const KINDS: [&str; 3] = ["resize", "mail", "kind"];
const CAPABILITIES: [&str; 2] = ["gpu", "arm"];
pub(super) const LOCKS: [&str; 2] = ["leader", "lock"];
const TAGS: [&str; 3] = ["a", "A", "ü"];
const RESOURCES: [&str; 3] = ["p", "P", "ü"];
const OWNERS: [&str; 3] = ["a", "b", "c"];
const DEFINITIONS: [&str; 4] = ["d", "D", "ä", "minutely"];

pub(super) struct Generator {
    random: Rng,
    /// Whether the history uses the archive.
    archives: bool,
    /// Whether the history uses permits.
    permits: bool,
    /// Whether the history uses limits of fair keys.
    fair_limits: bool,
    /// Whether the history uses rates.
    rates: bool,
    /// Whether `next` has not been called yet.
    untouched: bool,
    /// Resources for which a step has set permits.
    resources: Vec<&'static str>,
    nodes: Vec<NodeId>,
    jobs: Vec<NewJob>,
    tokens: Vec<ClaimToken>,
    fences: Vec<Fence>,
    /// Whether the history uses recurring definitions.
    recurring: bool,
    firings: Vec<RecurringFiring>,
    /// Batches that are still open.
    open: Vec<BatchId>,
    /// All batches, open and closed.
    batches: Vec<BatchId>,
    /// Ids of the stored jobs. Nearly all parents are from this list or from `fresh`, because an
    /// enqueue with an unknown parent fails.
    stored: Vec<JobId>,
    /// Ids of the jobs in the enqueue that is being generated.
    fresh: Vec<JobId>,
    /// Ids of the jobs that wait for a signal.
    waiters: Vec<JobId>,
    /// Whether the history uses workflows.
    workflows: bool,
    /// Whether the history uses signals.
    signals: bool,
    /// The features of jobs that the store supports: lanes, tags, idempotency keys and fair keys.
    features: Vec<Power>,
}

impl Generator {
    pub(super) fn new(seed: u64, has: impl Fn(Power) -> bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let nodes = (0..4)
            .map(|_| NodeId::from_bytes(random.u128(..).to_be_bytes()))
            .collect();
        let features = [
            Power::Lanes,
            Power::Tags,
            Power::IdempotencyKeys,
            Power::FairKeys,
        ];
        let features = features
            .into_iter()
            .filter(|feature| has(*feature))
            .collect();
        // A history uses only some of the store's optional parts. If it used all parts, it would
        // contain too few steps for each of them.
        let mut uses = |power| has(power) && random.u8(0..5) < 2;
        Self {
            archives: uses(Power::Archive),
            permits: uses(Power::Permits),
            // Follows from the seed alone, so that the other choices of a seed stay the same.
            fair_limits: has(Power::FairLimits) && seed % 5 < 2,
            rates: uses(Power::Rates),
            untouched: true,
            resources: Vec::new(),
            nodes,
            jobs: Vec::new(),
            tokens: Vec::new(),
            fences: Vec::new(),
            recurring: uses(Power::Recurring),
            firings: Vec::new(),
            open: Vec::new(),
            batches: Vec::new(),
            stored: Vec::new(),
            fresh: Vec::new(),
            waiters: Vec::new(),
            workflows: uses(Power::Workflows),
            signals: uses(Power::Signals),
            features,
            random,
        }
    }

    /// Records the ids, tokens and other results of a step, so that later steps can use them.
    pub(super) fn learn(&mut self, answer: &Answer) {
        match answer {
            Answer::Claimed(jobs) => {
                self.tokens.extend(jobs.iter().map(|job| job.claim.token));
            }
            Answer::Lean(claims) => self.tokens.extend(claims.iter().map(|claim| claim.token)),
            Answer::Acquired(Acquired::Acquired { fence }) => self.fences.push(*fence),
            Answer::Due(due) => {
                let plans = due.definitions.iter().filter_map(|one| one.plan(due.now));
                let plans: Vec<RecurringFiring> = plans.collect();
                self.jobs
                    .extend(plans.iter().flat_map(|plan| plan.jobs.clone()));
                self.firings.extend(plans);
            }
            Answer::Enqueued(jobs) => self.stored.extend(jobs.iter().map(|job| job.id())),
            _ => {}
        }
    }

    pub(super) fn next(&mut self, now: Timestamp) -> Step {
        if self.recurring && self.chance(15) {
            return self.recurring(now);
        }
        // Half of the histories that use permits set them early, so that the permits affect most of
        // the steps.
        if std::mem::take(&mut self.untouched) && self.random.bool() {
            return match self.fair_limits && self.random.bool() {
                true => self.fair_limit(),
                false => self.permits(),
            };
        }
        if (self.workflows || self.signals) && self.chance(15) {
            return self.workflow();
        }
        match self.random.u8(0..100) {
            0..18 => self.enqueue(now),
            18..30 => Step::Claim(self.claim()),
            30..34 => Step::ClaimLean(self.claim()),
            34..36 => Step::Load(self.some_tokens()),
            36..50 => self.settle(),
            50..57 => self.report(),
            57..63 => match self.reclaim() {
                // Another range of the roll would change all later choices of a known seed.
                _ if self.jobs.len() % 5 == 2 => Step::ExpireJobs,
                reclaim => reclaim,
            },
            63..72 => self.act(now),
            72..74 => Step::Get(self.some_ids()),
            74..76 => self.list(),
            76 => Step::Count(self.filter()),
            77..80 => self.purge(),
            80..86 => self.node(),
            86..88 if self.fair_limits && self.random.bool() => self.fair_limit(),
            86..89 => self.queue(),
            89..91 => self.permits(),
            91..93 => self.rates(),
            93..96 => self.lock(),
            96..99 => self.advance(),
            _ => Step::Reopen,
        }
    }

    fn enqueue(&mut self, now: Timestamp) -> Step {
        self.fresh.clear();
        let count = self.random.usize(0..5);
        let mut batch: Vec<NewJob> = (0..count).map(|_| self.job(now)).collect();
        // Shuffles the jobs, so that a child may come before or after its parents.
        self.random.shuffle(&mut batch);
        Step::Enqueue(batch)
    }

    fn workflow(&mut self) -> Step {
        let none_open = self.open.is_empty() && self.chance(60);
        match (self.random.u8(0..12), self.workflows, self.signals) {
            (roll, true, _) if roll < 2 || none_open => {
                let batch = BatchId::new();
                self.batches.push(batch);
                self.open.push(batch);
                Step::CreateBatch(batch)
            }
            (2, true, _) => Step::CreateBatch(self.a_batch()),
            (3..6, true, _) => {
                let batch = self.a_batch();
                self.open.retain(|open| *open != batch);
                Step::CloseBatch(batch)
            }
            (6, true, _) => {
                let older_than = self.millis(0..10_000);
                Step::PurgeBatches(BatchPurge::new(older_than, 1_000))
            }
            (7..11, _, true) => {
                let target = if self.random.bool() {
                    SignalTarget::Key(name(self.pick(&["s", "S", "ü"])))
                } else {
                    let waiter = self.random.choice(self.waiters.iter().copied());
                    let other = self.an_id();
                    SignalTarget::Job(waiter.filter(|_| self.chance(85)).unwrap_or(other))
                };
                let payload = json(&self.random.u8(..).to_string());
                Step::Deliver(Signal::new(target, payload))
            }
            (_, _, true) => Step::Expire,
            _ => Step::CreateBatch(self.a_batch()),
        }
    }

    fn settle(&mut self) -> Step {
        let tokens = self.some_tokens();
        let settle = |token| {
            let error = format!("error {}", self.random.u8(..));
            let delay = Duration::from_millis(self.random.u64(0..3_000));
            let result = Some(json(&self.random.u8(..).to_string()));
            let outcome = match self.random.u8(0..10) {
                0 | 1 => Outcome::Succeeded { result },
                2 => Outcome::Succeeded { result: None },
                3 => Outcome::Retry { delay, error },
                4 => Outcome::Failed { error },
                5 => Outcome::Snoozed { delay },
                6 => Outcome::Released,
                7 => Outcome::Undelivered,
                8 => Outcome::Expired,
                _ => Outcome::Cancelled,
            };
            let settlement = Settlement::new(token, outcome);
            match self.random.u8(0..3) {
                0 => settlement.ran_for(delay),
                1 => settlement.without_attempt(),
                _ => settlement,
            }
        };
        Step::Settle(tokens.into_iter().map(settle).collect())
    }

    fn report(&mut self) -> Step {
        let tokens = self.some_tokens();
        let report = |token| {
            let kind = match self.random.u8(0..3) {
                0 => ReportKind::Alive,
                1 => ReportKind::Progress {
                    percent: self.random.u8(0..=100),
                    message: format!("at {}", self.random.u8(..)),
                },
                _ => ReportKind::Checkpoint(json(&self.random.u8(..).to_string())),
            };
            Report::new(token, kind)
        };
        Step::Report(tokens.into_iter().map(report).collect())
    }

    /// Creates a step that reclaims lost claims. Its limit is higher than the number of claims in a
    /// history, because the contract does not specify which claims a limited call reclaims.
    fn reclaim(&mut self) -> Step {
        let request = ReclaimRequest::new()
            .dead_after(self.millis(1..20_000))
            .start_timeout(self.millis(1..20_000))
            .overdue_after(self.millis(0..5_000))
            .max_crashes(self.random.u32(0..4));
        Step::Reclaim(request)
    }

    fn act(&mut self, now: Timestamp) -> Step {
        let action = match self.pick(&JobAction::ALL) {
            JobAction::Reschedule(_) => JobAction::Reschedule(match self.random.u8(0..3) {
                0 => RunAt::Now,
                1 => RunAt::In(self.millis(0..5_000)),
                _ => RunAt::At(time::from_millis(
                    time::to_millis(now) + self.random.i64(-60_000..10_000),
                )),
            }),
            JobAction::SetPriority(_) => JobAction::SetPriority(self.pick(&Priority::ALL)),
            other => other,
        };
        let selector = if self.chance(70) {
            JobSelector::Ids(self.some_ids())
        } else {
            let filter = self.filter();
            let limit = self.random.usize(1..4);
            let after = self.chance(30).then(|| self.an_id());
            JobSelector::matching(filter, limit).after(after)
        };
        Step::Act(selector, action)
    }

    fn list(&mut self) -> Step {
        let order = self.pick(&[JobOrder::NewestFirst, JobOrder::OldestFirst]);
        let after = self.chance(50).then(|| self.an_id());
        let page = PageRequest::first(self.random.usize(0..6)).order(order);
        Step::List(self.filter(), page.after(after))
    }

    /// Creates a step that deletes, archives or reads finished jobs. The limit of a deletion is
    /// higher than the number of jobs in a history, because the contract does not specify which of
    /// several equally old jobs is deleted first.
    fn purge(&mut self) -> Step {
        let ends = [JobState::Succeeded, JobState::Failed, JobState::Cancelled];
        let older_than = self.millis(0..4_000);
        let request = PurgeRequest::new(self.pick(&ends), older_than, 1_000);
        match self.random.u8(0..if self.archives { 8 } else { 2 }) {
            0 | 1 => Step::Purge(request),
            2..5 => Step::Archive(request),
            5 => Step::Archived(self.some_ids()),
            6 => {
                let order = self.pick(&[JobOrder::NewestFirst, JobOrder::OldestFirst]);
                let after = self.chance(30).then(|| self.an_id());
                let page = PageRequest::first(self.random.usize(0..4)).order(order);
                let mut filter = ArchiveFilter::all();
                if self.chance(30) {
                    filter = filter.queue(name(self.pick(&QUEUES)));
                }
                if self.chance(30) {
                    filter = filter.kind(name(self.pick(&KINDS)));
                }
                if self.chance(30) {
                    filter = filter.state(self.pick(&ends));
                }
                Step::ListArchived(filter, page.after(after))
            }
            _ => Step::PurgeArchive(ArchivePurge::new(older_than * 4, 1_000)),
        }
    }

    fn node(&mut self) -> Step {
        let node = self.a_node();
        match self.random.u8(0..10) {
            0 => Step::SetStatus(node, self.pick(&NodeStatus::ALL)),
            1 | 2 => {
                let (dead_after, forget_after) = (self.millis(0..20_000), self.millis(0..30_000));
                Step::Sweep(NodeSweep::new(dead_after, forget_after))
            }
            _ => {
                let label = name(self.pick(&["host", "other", "third"]));
                let status = if self.chance(80) {
                    NodeStatus::Active
                } else {
                    self.pick(&NodeStatus::ALL)
                };
                let mut load = NodeLoad::new(self.random.u32(0..9), self.random.u32(0..9));
                let mut profile = NodeProfile::default();
                if self.chance(50) {
                    load.totals = Some(NodeTotals::new(self.random.u64(..), 1, 2, 3, 4));
                    profile.kinds = Some(
                        KINDS[..self.random.usize(0..3)]
                            .iter()
                            .map(|kind| name(kind))
                            .collect(),
                    );
                }
                if self.chance(30) {
                    let (slots, free) = (self.random.u32(0..9), self.random.u32(0..9));
                    profile.pools = Some(vec![PoolProfile::new(slots, free)]);
                }
                if self.chance(30) {
                    profile.zone_data = Some(ZoneData::built_in());
                }
                let interval = self.millis(1..6_000);
                let beat = Heartbeat::new(node, label, status, interval);
                Step::Beat(beat.load(load).profile(profile))
            }
        }
    }

    fn queue(&mut self) -> Step {
        if self.chance(25) {
            return Step::SeparateQueues;
        }
        let scope = match self.chance(60) {
            true => PauseScope::Queue(name(self.pick(&QUEUES))),
            false => PauseScope::Kind(name(self.pick(&KINDS))),
        };
        if self.random.bool() {
            return Step::Resume(scope);
        }
        let request = PauseRequest::new(scope);
        Step::Pause(match self.random.bool() {
            true => request.by(self.pick(&OWNERS)).reason(self.pick(&LOCKS)),
            false => request,
        })
    }

    fn permits(&mut self) -> Step {
        if !self.permits {
            return self.queue();
        }
        let resource = self.pick(&RESOURCES);
        self.resources.push(resource);
        let if_known = match self.random.bool() {
            true => IfKnown::Change,
            false => IfKnown::Keep,
        };
        Step::SetPermits(name(resource), self.random.u32(0..4), if_known)
    }

    fn fair_limit(&mut self) -> Step {
        let queue = self.pick(&QUEUES);
        let scope = match self.random.u8(0..4) {
            0 => FairScope::queues("*"),
            1 => FairScope::key(queue, self.pick(&["f", "g", "h"])),
            _ => FairScope::queues(queue),
        };
        let max = self.chance(75).then(|| self.random.u32(0..3));
        match scope {
            Ok(scope) => Step::SetFairLimit(scope, max),
            Err(error) => panic!("the scope of a limit is refused: {error}"),
        }
    }

    fn rates(&mut self) -> Step {
        if !self.rates {
            return self.lock();
        }
        if self.chance(15) {
            return Step::ForgetRates;
        }
        let count = self.random.usize(0..5);
        let requests = (0..count).map(|_| {
            let limit = self.random.u32(1..4);
            let rate = Rate::new(limit, self.millis(1..3_000));
            let rate = rate.burst(self.random.u32(1..4));
            RateRequest::new(name(self.pick(&RESOURCES)), rate)
        });
        Step::Take(requests.collect())
    }

    fn lock(&mut self) -> Step {
        let (lock, owner) = (name(self.pick(&LOCKS)), name(self.pick(&OWNERS)));
        let ttl = self.millis(0..4_000);
        let fence = if self.fences.is_empty() || self.chance(10) {
            Fence(self.random.u64(0..5))
        } else {
            self.fences[self.random.usize(0..self.fences.len())]
        };
        match self.random.u8(0..5) {
            0 => Step::Release(lock, owner, fence),
            1 => Step::Renew(lock, owner, fence, ttl),
            _ => Step::Acquire(lock, owner, ttl),
        }
    }

    fn recurring(&mut self, now: Timestamp) -> Step {
        let definition = self.pick(&DEFINITIONS);
        match self.random.u8(0..20) {
            0..5 => Step::PutRecurring(Box::new(self.definition(definition, now))),
            5..11 => {
                let (node, limit) = (self.a_node(), self.random.usize(0..4));
                let lease = self.millis(0..3_000);
                Step::ClaimRecurring(RecurringClaimRequest::new(node, limit).lease(lease))
            }
            11..16 => Step::Fire(self.some_firings()),
            16 | 17 => Step::PauseRecurring(name(definition), self.random.bool()),
            18 => Step::DeleteRecurring(name(definition)),
            _ => {
                let guard = Guard {
                    lock: name(self.pick(&LOCKS)),
                    owner: name(self.pick(&OWNERS)),
                    fence: Fence(self.random.u64(1..4)),
                };
                let known = vec![name(self.pick(&DEFINITIONS))];
                Step::Retire(RetireRecurring::new(known, self.a_node(), guard))
            }
        }
    }

    fn advance(&mut self) -> Step {
        Step::Advance(match self.random.u8(0..4) {
            0 => Duration::from_millis(1),
            1 | 2 => self.millis(0..2_000),
            _ => self.millis(0..30_000),
        })
    }
}
