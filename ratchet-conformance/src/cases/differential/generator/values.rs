//! Random values for the steps of a history.

use std::time::Duration;

use ratchet_core::model::*;
use ratchet_core::time::{self, Timestamp};
use ratchet_core::{
    Aging, BatchId, ClaimToken, Incarnation, JobId, JobState, Misfire, Name, NewJob, NodeId,
    OnConflict, Overlap, Priority, Recurring, RetryPolicy, Selection,
};

use super::{CAPABILITIES, Generator, KINDS, QUEUES, RESOURCES, TAGS};
use crate::Power;
use crate::build::{name, put};

impl Generator {
    pub(super) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.usize(0..all.len())].clone()
    }

    pub(super) fn chance(&mut self, percent: u8) -> bool {
        self.random.u8(0..100) < percent
    }

    pub(super) fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }

    /// Adds random links to a new job, so that it waits for other jobs or for a signal, or belongs
    /// to a batch.
    fn entangle(&mut self, mut job: NewJob) -> NewJob {
        let free = job.spec().lane.is_none() || self.chance(3);
        let alone = self.stored.is_empty() && self.fresh.is_empty();
        if self.workflows && free && !alone && self.chance(45) {
            for _ in 0..self.random.usize(1..4) {
                job = if self.batches.is_empty() || self.chance(75) {
                    let parent = self.a_parent(job.id());
                    let condition = match self.random.u8(0..6) {
                        0 | 1 => Condition::Succeeded,
                        2 => Condition::Failed,
                        3 => self.on_result(),
                        _ => Condition::Ended,
                    };
                    job.after(parent, condition)
                } else {
                    let batch = self.a_batch();
                    let condition = match self.random.u8(0..6) {
                        0 => BatchCondition::Succeeded,
                        1 => BatchCondition::Failed,
                        2 => BatchCondition::FailuresReach(self.random.u64(1..4)),
                        3 => BatchCondition::SucceededAtLeast {
                            percent: self.random.u8(0..=100),
                        },
                        _ => BatchCondition::Ended,
                    };
                    job.after_batch(batch, condition)
                };
            }
        }
        if self.workflows && self.chance(35) {
            let open = self.random.choice(self.open.iter().copied());
            if let Some(batch) = open.filter(|_| !self.chance(4)) {
                job = job.in_batch(batch);
            } else if self.chance(20) {
                job = job.in_batch(self.a_batch());
            }
        }
        if self.signals && free && self.chance(12) {
            let timeout = self.millis(1..20_000);
            job = job.wait_for(self.pick(&["s", "S", "ü"]), timeout);
            self.waiters.push(job.id());
        }
        job
    }

    /// Returns a random condition on the result of a parent. The results are numbers.
    fn on_result(&mut self) -> Condition {
        let number = self.random.u8(..);
        let many = Condition::result_compares("", Comparison::AtLeast, &number);
        let mut all = Condition::choice([many]);
        all.push(Condition::result_is("", &number));
        all.push(Condition::result_is_not("", &number));
        // A second random number would change all later steps of the histories, whose seeds are
        // fixed.
        all.swap_remove(usize::from(number) % all.len())
    }

    fn a_parent(&mut self, own: JobId) -> JobId {
        let recent = self.stored.len().saturating_sub(8);
        let near = if self.random.bool() || self.fresh.is_empty() {
            &self.stored[recent..]
        } else {
            &self.fresh[..]
        };
        let near = self.random.choice(near.iter().copied());
        match (self.random.u8(0..100), near) {
            (0, _) => own,
            (1, _) | (_, None) => JobId::new(),
            (_, Some(parent)) => parent,
        }
    }

    /// Returns the id of one of the last two batches, or sometimes the id of a batch that does not
    /// exist.
    pub(super) fn a_batch(&mut self) -> BatchId {
        if self.batches.is_empty() || self.chance(2) {
            return BatchId::new();
        }
        let recent = self.batches.len().saturating_sub(2);
        self.batches[self.random.usize(recent..self.batches.len())]
    }

    pub(super) fn job(&mut self, now: Timestamp) -> NewJob {
        if !self.jobs.is_empty() && self.chance(8) {
            return self.jobs[self.random.usize(0..self.jobs.len())].clone();
        }
        let number = self.jobs.len();
        let (kind, queue) = (self.pick(&KINDS), self.pick(&QUEUES));
        // The version and the fair key depend on `number`. Random ones would change all later
        // choices of a known seed.
        let version = [1, 2, 7][number % 3];
        let fair = [
            None,
            Some(("f", 1.0)),
            None,
            Some(("g", 2.0)),
            Some(("h", 0.5)),
        ][number % 5];
        let mut job = NewJob::new(kind, &number)
            .queue(queue)
            .payload_version(version)
            .priority(self.pick(&Priority::ALL));
        if let Some((key, weight)) = fair {
            job = self.with(Power::FairKeys, job, |job| {
                job.weighted_fair_key(key, weight)
            });
        }
        if self.chance(25) {
            job = job.capability(self.pick(&CAPABILITIES));
        }
        if self.chance(25) {
            job = job.unique_key(self.pick(&["u", "U", "ü"]));
        }
        if self.chance(20) {
            let key = format!("once {}", self.random.u8(0..6));
            job = self.with(Power::IdempotencyKeys, job, |job| job.idempotency_key(&key));
        }
        if self.chance(35) {
            let lane = self.pick(&["l", "L", "ü"]);
            job = self.with(Power::Lanes, job, |job| job.lane(lane));
        }
        job = match self.random.u8(0..5) {
            0 => job.delay(self.millis(0..5_000)),
            1 => job.run_at(time::from_millis(
                time::to_millis(now) + self.random.i64(-60_000..10_000),
            )),
            _ => job,
        };
        for _ in 0..self.random.u8(0..3) {
            let tag = self.pick(&TAGS);
            job = self.with(Power::Tags, job, |job| job.tag(tag));
        }
        if self.chance(30) {
            job = job.timeout(self.millis(1..3_000));
        }
        if self.chance(30) {
            job = job.stall_timeout(self.millis(1..3_000));
        }
        if self.chance(20) {
            job = job.retry(RetryPolicy::fixed(3, self.millis(1..1_000)));
        }
        if !self.resources.is_empty() && self.chance(40) {
            let resources = self.resources.clone();
            job = job.permit(self.pick(&resources));
        } else if self.permits && self.chance(1) {
            job = job.permit(self.pick(&RESOURCES));
        }
        if self.chance(1) {
            job = job.queue("");
        }
        if number % 6 == 1 {
            job = job.all_or_nothing();
        }
        if number.is_multiple_of(2) && job.spec().idempotency_key.is_some() {
            job = job.unique_for(Duration::from_secs(3));
        }
        job = self.entangle(job);
        if number % 3 == 2 && self.workflows {
            job = conflicting(job, number);
        }
        if number % 7 == 3 {
            job = expiring(job, number);
        }
        self.fresh.push(job.id());
        self.jobs.push(job.clone());
        job
    }

    /// Adds a feature to the job if the store supports this feature.
    fn with(&self, feature: Power, job: NewJob, add: impl FnOnce(NewJob) -> NewJob) -> NewJob {
        match self.features.contains(&feature) {
            true => add(job),
            false => job,
        }
    }

    pub(super) fn claim(&mut self) -> ClaimRequest {
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

    pub(super) fn a_node(&mut self) -> NodeId {
        let nodes = self.nodes.clone();
        self.pick(&nodes)
    }

    /// Returns a random claim token: mostly a recent one, sometimes an old one or one with wrong
    /// fields.
    fn a_token(&mut self) -> ClaimToken {
        if self.tokens.is_empty() {
            let node = self.a_node();
            let seq = self.random.u64(0..2);
            return ClaimToken::new(self.an_id(), seq, Some(node), Timestamp::UNIX_EPOCH);
        }
        let recent = self.tokens.len().saturating_sub(6);
        let from = if self.chance(75) { recent } else { 0 };
        let mut token = self.tokens[self.random.usize(from..self.tokens.len())];
        if self.chance(6) {
            token.seq = self.random.u64(0..4);
        }
        if self.chance(4) {
            token.node = Some(self.a_node());
        }
        if self.chance(2) {
            token.node = None;
        }
        if self.chance(4) {
            token.claimed_at += Duration::from_secs(1);
        }
        token
    }

    pub(super) fn some_tokens(&mut self) -> Vec<ClaimToken> {
        let count = self.random.usize(0..5);
        (0..count).map(|_| self.a_token()).collect()
    }

    pub(super) fn an_id(&mut self) -> JobId {
        if self.jobs.is_empty() || self.chance(4) {
            return JobId::new();
        }
        self.jobs[self.random.usize(0..self.jobs.len())].id()
    }

    pub(super) fn some_ids(&mut self) -> Vec<JobId> {
        let count = self.random.usize(0..5);
        (0..count).map(|_| self.an_id()).collect()
    }

    pub(super) fn filter(&mut self) -> JobFilter {
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
        if self.chance(40) {
            filter = filter.tag(name(self.pick(&TAGS)));
        }
        if self.workflows && self.chance(25) {
            filter = filter.batch(self.a_batch());
        }
        filter
    }

    pub(super) fn definition(&mut self, named: &str, now: Timestamp) -> PutRecurring {
        let mut recurring = match self.random.u8(0..4) {
            0 => Recurring::cron(self.pick(&["*/2 * * * * *", "@hourly", "* * * * *"])),
            _ => Recurring::every(self.millis(1_000..5_000)),
        };
        let misfires = [Misfire::Skip, Misfire::FireOnce, Misfire::CatchUp(3)];
        recurring = recurring.misfire(self.pick(&misfires));
        let skips = self.chance(40);
        if skips {
            recurring = recurring.overlap(Overlap::Skip);
        }
        if self.chance(15) {
            recurring = recurring.starts_at(now + self.millis(0..5_000));
        }
        if self.chance(15) {
            recurring = recurring.ends_at(now + self.millis(5_000..20_000));
        }
        let (kind, number) = (self.pick(&KINDS), self.random.u8(0..2));
        let mut job = NewJob::new(kind, &number);
        if skips && number == 1 {
            job = job.unique_key("u");
        }
        let put = put(recurring.job(job.queue(self.pick(&QUEUES))).named(named));
        let mut put = put.declared(self.random.bool());
        put.incarnation = Incarnation::from_bytes(self.random.u128(..).to_be_bytes());
        put
    }

    /// Returns up to three random firings. Most of them are recent, and nearly always they belong
    /// to different definitions.
    pub(super) fn some_firings(&mut self) -> Vec<RecurringFiring> {
        let mut some: Vec<RecurringFiring> = Vec::new();
        for _ in 0..self.random.usize(0..4) {
            let recent = self.firings.len().saturating_sub(3);
            let from = if self.chance(80) { recent } else { 0 };
            let Some(last) = self.firings.len().checked_sub(1) else {
                break;
            };
            let firing = self.firings[self.random.usize(from..=last)].clone();
            let others = some.iter().map(|one| &one.token.name);
            if self.chance(3) || !others.into_iter().any(|name| *name == firing.token.name) {
                some.push(firing);
            }
        }
        some
    }
}

/// Lets the enqueue of the job change the holder of its unique key, if the job can. Depends on
/// `number`, as a random choice would change all later choices of a known seed.
fn conflicting(job: NewJob, number: usize) -> NewJob {
    if job.spec().unique_key.is_none() || job.spec().lane.is_some() {
        return job;
    }
    let delay = Duration::from_millis(700);
    match number / 3 % 4 {
        0 => job.debounce(delay, delay * 3),
        1 => job.on_conflict(OnConflict::Restart),
        _ => job.on_conflict(OnConflict::Replace),
    }
}

/// Lets the job expire, soon after it is due. Depends on `number`, as `conflicting` does.
fn expiring(job: NewJob, number: usize) -> NewJob {
    let after = Duration::from_millis([1, 900, 2_000, 5_000][number / 7 % 4]);
    match job.due() {
        RunAt::Now => job.expires_in(after),
        RunAt::In(delay) => job.expires_in(delay + after),
        RunAt::At(due) => job.expires_at(due + after),
    }
}
