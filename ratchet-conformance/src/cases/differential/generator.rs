//! Makes random histories: each step from a seed and from what earlier steps answered.

use std::time::Duration;

use fastrand::Rng;
use ratchet_core::model::*;
use ratchet_core::store::Acquired;
use ratchet_core::time::{self, Timestamp};
use ratchet_core::{
    Aging, ClaimToken, Fence, JobAction, JobId, JobState, Name, NewJob, NodeId, Priority,
    RetryPolicy, Selection,
};

use super::step::{Answer, Step};
use crate::build::{json, name};

/// A few of everything, so that steps meet.
const QUEUES: [&str; 3] = ["default", "images", "Größe"];
const KINDS: [&str; 3] = ["resize", "mail", "kind"];
const CAPABILITIES: [&str; 2] = ["gpu", "arm"];
pub(super) const LOCKS: [&str; 2] = ["leader", "lock"];
const OWNERS: [&str; 3] = ["a", "b", "c"];

pub(super) struct Generator {
    random: Rng,
    nodes: Vec<NodeId>,
    jobs: Vec<NewJob>,
    tokens: Vec<ClaimToken>,
    fences: Vec<Fence>,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let nodes = (0..4)
            .map(|_| NodeId::from_bytes(random.u128(..).to_be_bytes()))
            .collect();
        Self {
            random,
            nodes,
            jobs: Vec::new(),
            tokens: Vec::new(),
            fences: Vec::new(),
        }
    }

    /// Notes what later steps can use.
    pub(super) fn learn(&mut self, answer: &Answer) {
        match answer {
            Answer::Claimed(jobs) => {
                self.tokens.extend(jobs.iter().map(|job| job.claim.token));
            }
            Answer::Lean(claims) => self.tokens.extend(claims.iter().map(|claim| claim.token)),
            Answer::Acquired(Acquired::Acquired { fence }) => self.fences.push(*fence),
            _ => {}
        }
    }

    pub(super) fn next(&mut self, now: Timestamp) -> Step {
        match self.random.u8(0..100) {
            0..18 => self.enqueue(now),
            18..30 => Step::Claim(self.claim()),
            30..34 => Step::ClaimLean(self.claim()),
            34..36 => Step::Load(self.some_tokens()),
            36..50 => self.settle(),
            50..57 => self.report(),
            57..63 => self.reclaim(),
            63..72 => self.act(),
            72..74 => Step::Get(self.some_ids()),
            74..77 => self.list(),
            77..80 => self.purge(),
            80..86 => self.node(),
            86..89 => self.queue(),
            89..93 => self.lock(),
            93..99 => self.advance(),
            _ => Step::Reopen,
        }
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.usize(0..all.len())].clone()
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.random.u8(0..100) < percent
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }

    fn enqueue(&mut self, now: Timestamp) -> Step {
        let count = self.random.usize(0..5);
        let batch = (0..count).map(|_| self.job(now)).collect();
        Step::Enqueue(batch)
    }

    fn job(&mut self, now: Timestamp) -> NewJob {
        if !self.jobs.is_empty() && self.chance(8) {
            return self.jobs[self.random.usize(0..self.jobs.len())].clone();
        }
        let number = self.jobs.len();
        let (kind, queue) = (self.pick(&KINDS), self.pick(&QUEUES));
        // Without a random choice, so that every other choice stays what it was.
        let version = [1, 2, 7][number % 3];
        let mut job = NewJob::new(kind, &number)
            .queue(queue)
            .payload_version(version)
            .priority(self.pick(&Priority::ALL));
        if self.chance(25) {
            job = job.capability(self.pick(&CAPABILITIES));
        }
        if self.chance(25) {
            job = job.unique_key(self.pick(&["u", "U", "ü"]));
        }
        if self.chance(20) {
            job = job.idempotency_key(&format!("once {}", self.random.u8(0..6)));
        }
        if self.chance(35) {
            job = job.lane(self.pick(&["l", "L", "ü"]));
        }
        job = match self.random.u8(0..5) {
            0 => job.delay(self.millis(0..5_000)),
            1 => job.run_at(time::from_millis(
                time::to_millis(now) + self.random.i64(-60_000..10_000),
            )),
            _ => job,
        };
        if self.chance(30) {
            job = job.timeout(self.millis(1..3_000));
        }
        if self.chance(30) {
            job = job.stall_timeout(self.millis(1..3_000));
        }
        if self.chance(20) {
            job = job.retry(RetryPolicy::fixed(3, self.millis(1..1_000)));
        }
        if self.chance(1) {
            job = job.queue("");
        }
        self.jobs.push(job.clone());
        job
    }

    fn claim(&mut self) -> ClaimRequest {
        let node = self.a_node();
        let limit = self.random.usize(0..6);
        let queues = self.selection(&QUEUES);
        let kinds = self.selection(&KINDS);
        let capabilities = CAPABILITIES
            .into_iter()
            .filter(|_| self.random.bool())
            .map(name);
        let capabilities: Vec<Name> = capabilities.collect();
        let untagged = capabilities.is_empty() || !self.chance(20);
        let aging = [
            Aging::OFF,
            Aging::default(),
            Aging::every(Duration::from_millis(700)),
        ];
        ClaimRequest::new(node, limit)
            .queues(queues)
            .kinds(kinds)
            .capabilities(capabilities)
            .untagged(untagged)
            .aging(self.pick(&aging))
    }

    fn selection(&mut self, all: &[&str]) -> Selection {
        if self.chance(70) {
            return Selection::All;
        }
        let some = all
            .iter()
            .filter(|_| self.random.bool())
            .map(|text| name(text));
        let some = some.collect();
        match self.random.bool() {
            true => Selection::Only(some),
            false => Selection::Except(some),
        }
    }

    fn a_node(&mut self) -> NodeId {
        let nodes = self.nodes.clone();
        self.pick(&nodes)
    }

    /// Mostly a recent token, now and then an old or a wrong one.
    fn a_token(&mut self) -> ClaimToken {
        if self.tokens.is_empty() {
            return ClaimToken::new(self.an_id(), self.random.u64(0..2));
        }
        let recent = self.tokens.len().saturating_sub(6);
        let from = if self.chance(75) { recent } else { 0 };
        let mut token = self.tokens[self.random.usize(from..self.tokens.len())];
        if self.chance(6) {
            token.seq = self.random.u64(0..4);
        }
        token
    }

    fn some_tokens(&mut self) -> Vec<ClaimToken> {
        let count = self.random.usize(0..5);
        (0..count).map(|_| self.a_token()).collect()
    }

    fn an_id(&mut self) -> JobId {
        if self.jobs.is_empty() || self.chance(4) {
            return JobId::new();
        }
        self.jobs[self.random.usize(0..self.jobs.len())].id()
    }

    fn some_ids(&mut self) -> Vec<JobId> {
        let count = self.random.usize(0..5);
        (0..count).map(|_| self.an_id()).collect()
    }

    fn settle(&mut self) -> Step {
        let tokens = self.some_tokens();
        let settle = |token| {
            let error = format!("error {}", self.random.u8(..));
            let delay = Duration::from_millis(self.random.u64(0..3_000));
            let result = Some(json(&self.random.u8(..).to_string()));
            let outcome = match self.random.u8(0..8) {
                0 | 1 => Outcome::Succeeded { result },
                2 => Outcome::Succeeded { result: None },
                3 => Outcome::Retry { delay, error },
                4 => Outcome::Failed { error },
                5 => Outcome::Snoozed { delay },
                6 => Outcome::Released,
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

    /// Without an effective limit: which claims a limited pass takes is left open.
    fn reclaim(&mut self) -> Step {
        let request = ReclaimRequest::new()
            .dead_after(self.millis(1..20_000))
            .start_timeout(self.millis(1..20_000))
            .overdue_after(self.millis(0..5_000))
            .max_crashes(self.random.u32(0..4));
        Step::Reclaim(request)
    }

    fn act(&mut self) -> Step {
        let action = self.pick(&JobAction::ALL);
        let selector = if self.chance(70) {
            JobSelector::Ids(self.some_ids())
        } else {
            let filter = self.filter();
            let limit = self.random.usize(1..4);
            JobSelector::Matching { filter, limit }
        };
        Step::Act(selector, action)
    }

    fn filter(&mut self) -> JobFilter {
        let mut filter = JobFilter::all();
        for _ in 0..self.random.u8(0..3) {
            filter = filter.state(self.pick(&JobState::ALL));
        }
        if self.chance(30) {
            filter = filter.queue(name(self.pick(&QUEUES)));
        }
        if self.chance(30) {
            filter = filter.kind(name(self.pick(&KINDS)));
        }
        filter
    }

    fn list(&mut self) -> Step {
        let order = self.pick(&[JobOrder::NewestFirst, JobOrder::OldestFirst]);
        let after = self.chance(50).then(|| self.an_id());
        let page = PageRequest::first(self.random.usize(0..6)).order(order);
        Step::List(self.filter(), page.after(after))
    }

    /// Without an effective limit: which of the equally old go first is left open.
    fn purge(&mut self) -> Step {
        let ends = [JobState::Succeeded, JobState::Failed, JobState::Cancelled];
        let older_than = self.millis(0..4_000);
        Step::Purge(PurgeRequest::new(self.pick(&ends), older_than, 1_000))
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
                let load = NodeLoad::new(self.random.u32(0..9), self.random.u32(0..9));
                let interval = self.millis(1..6_000);
                Step::Beat(Heartbeat::new(node, label, status, interval).load(load))
            }
        }
    }

    fn queue(&mut self) -> Step {
        let queue = name(self.pick(&QUEUES));
        if self.random.bool() {
            Step::Pause(queue)
        } else {
            Step::Resume(queue)
        }
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

    fn advance(&mut self) -> Step {
        Step::Advance(match self.random.u8(0..4) {
            0 => Duration::from_millis(1),
            1 | 2 => self.millis(0..2_000),
            _ => self.millis(0..30_000),
        })
    }
}
