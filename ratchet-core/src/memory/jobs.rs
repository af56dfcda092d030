use std::convert::Infallible;

use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::Result;
use crate::fair::{Places, WOKEN_BY_A_CLAIM};
use crate::id::{ClaimToken, JobId, NodeId};
use crate::model::{
    Acted, ActionOutcome, Attempt, ClaimRequest, ClaimedJob, Detail, Enqueued, Fenced, Guarded,
    JobFilter, JobInput, JobOrder, JobRecord, LanePlace, NewJob, NodeRegistry, NodeStatus,
    PageRequest, PurgeRequest, ReclaimEffect, ReclaimPass, ReclaimRequest, Reclaimed, Report,
    Reported, Settlement, StateCounts, StoredJob,
};
use crate::permit::Budget;
use crate::priority::merge_decided;
use crate::route::{Route, Selection};
use crate::state::{JobAction, JobState};
use crate::store::JobStore;
use crate::time::duration_millis;

#[async_trait]
impl JobStore for MemoryStore {
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        self.write(Command::Enqueue(jobs.into())).await
    }

    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        self.write(Command::ClaimNextBatch(request.into())).await
    }

    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        self.read("load_inputs", |tables, _| {
            let load = |token: &ClaimToken| {
                let row = tables.job(token.job).filter(|row| row.holds(*token))?;
                Some(row.input())
            };
            tokens.iter().map(load).collect()
        })
        .await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        self.write(Command::Settle(settlements.into())).await
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        self.write(Command::Report(reports.into())).await
    }

    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        self.write(Command::Reclaim(request.into())).await
    }

    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        self.write(Command::ActOn {
            jobs: jobs.into(),
            from: from.into(),
            action,
        })
        .await
    }

    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>> {
        self.read("get", |tables, _| {
            let read = |id: &JobId| tables.job(*id).map(|row| shown(row, detail));
            ids.iter().map(read).collect()
        })
        .await
    }

    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>> {
        self.read("list", |tables, _| {
            let matching = tables.jobs().filter(|row| filter.matches(&row.record));
            let ids = matching.map(|row| row.record.id);
            match page.order {
                JobOrder::OldestFirst => ids
                    .filter(|id| page.after.is_none_or(|after| *id > after))
                    .take(page.limit)
                    .collect(),
                JobOrder::NewestFirst => ids
                    .rev()
                    .filter(|id| page.after.is_none_or(|after| *id < after))
                    .take(page.limit)
                    .collect(),
            }
        })
        .await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts> {
        self.read("count_jobs", |tables, _| {
            let mut counts = StateCounts::new();
            for row in tables.jobs().filter(|row| filter.matches(&row.record)) {
                *counts.entry(row.record.state).or_default() += 1;
            }
            counts
        })
        .await
    }

    async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        self.read("history", |tables, _| tables.history(job).to_vec())
            .await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        self.write(Command::Purge(request.into())).await
    }

    async fn expire_jobs(&self, limit: usize) -> Result<Vec<JobId>> {
        self.write(Command::ExpireJobs { limit }).await
    }
}

impl Tables {
    /// Returns the finished jobs that this request selects for deletion or for the archive.
    pub(super) fn old(&self, request: &PurgeRequest, now: i64) -> Vec<JobId> {
        let cutoff = now.saturating_sub(duration_millis(request.older_than));
        self.finished()
            .take_while(|(finished_at, _)| *finished_at < cutoff)
            .filter(|(_, row)| row.record.state == request.state)
            .map(|(_, row)| row.record.id)
            .filter(|job| !self.is_awaited(*job))
            .take(request.limit)
            .collect()
    }

    /// Returns whether a claim at this time changes nothing.
    pub(super) fn claims_nothing(&self, request: &ClaimRequest, now: i64) -> bool {
        let chosen = || self.choose(request, now);
        let is_empty = |(claimed, places): (Vec<JobId>, Places)| {
            claimed.is_empty() && places.parked().is_empty()
        };
        self.freed_of(request).is_empty()
            && self.sleepers(request, now).is_empty()
            && is_empty(chosen())
    }

    pub(super) fn claim(&mut self, request: &ClaimRequest, now: i64) -> Vec<ClaimedJob> {
        self.wake_parked(request, now);
        let sleepers = self.sleepers(request, now);
        self.give_turns(sleepers, now);
        let (chosen, places) = self.choose(request, now);
        for id in places.parked() {
            self.change(*id, StoredJob::park);
        }
        let claim = |id: JobId| {
            self.change(id, |job| {
                let mut claim = job.claim(request.node, now);
                claim.limited = places.is_limited(id);
                let input = request.payloads.then(|| job.input());
                ClaimedJob { claim, input }
            })
        };
        let mut claimed: Vec<ClaimedJob> = chosen.into_iter().filter_map(claim).collect();
        // Jobs with fair keys were chosen in another order.
        ClaimedJob::sort(&mut claimed, request.aging, now);
        claimed
    }

    /// Returns the due jobs without a turn to which a claim at this time gives turns.
    fn sleepers(&self, request: &ClaimRequest, now: i64) -> Vec<JobId> {
        let matches = self.claimable(request);
        let budget = Budget::new(self.held_permits());
        let awake = |route: &Route| matches(route) && budget.rest(route) != Some(0);
        self.indexes.sleepers(awake, now, WOKEN_BY_A_CLAIM)
    }

    /// Returns the jobs that a claim at this time takes, in the order in which it takes them, and
    /// the places of fair keys that it uses.
    fn choose(&self, request: &ClaimRequest, now: i64) -> (Vec<JobId>, Places) {
        let of_kind = |route: &Route| {
            let (kinds, capabilities) = (&request.kinds, &request.capabilities);
            route.is_selected(&Selection::All, kinds, capabilities, request.untagged)
        };
        let matches = self.claimable(request);
        let streams = self.indexes.claimable(of_kind, &matches, now);
        let routes: Vec<&Route> = streams.iter().map(|(route, ..)| *route).collect();
        let streams = streams
            .into_iter()
            .map(|(_, priority, jobs)| (priority, jobs));
        let mut places = Places::new(Budget::new(self.held_permits()));
        let has_limits = !self.fair_limits.is_empty();
        let decide = |stream: usize, id: JobId| {
            // Jobs with a fair key are in no stream of several queues.
            let route = routes[stream];
            let key = match has_limits {
                true => self.job(id).and_then(StoredJob::fair_key),
                false => None,
            };
            places.admit(id, route, key, || {
                let free = key.and_then(|key| self.free_places(&route.queue, key));
                Ok::<_, Infallible>(free)
            })
        };
        let Ok(chosen) = merge_decided(streams, request.aging, now, request.limit, decide);
        (chosen, places)
    }

    /// Returns whether a claim may take jobs of a route.
    fn claimable(&self, request: &ClaimRequest) -> impl Fn(&Route) -> bool {
        let active = self.may_claim(request.node);
        move |route| active && !self.pauses.cover(route) && route.matches(request)
    }

    /// Returns whether a node may claim jobs.
    pub(super) fn may_claim(&self, node: NodeId) -> bool {
        let node = self.nodes.get(&node);
        node.is_none_or(|node| node.status == NodeStatus::Active)
    }

    /// Gives turns to those of the jobs that sleep and are due.
    pub(super) fn give_turns(&mut self, jobs: impl IntoIterator<Item = JobId>, now: i64) {
        for id in jobs {
            let turn = self.job(id).and_then(|job| self.indexes.turn(job, now));
            if turn.is_some() {
                self.change(id, |job| job.turn = turn);
            }
        }
    }

    pub(super) fn settle_all(&mut self, settlements: &[Settlement], now: i64) -> Vec<Fenced> {
        let settle = |one| self.settle(one, now);
        settlements.iter().map(settle).collect()
    }

    fn settle(&mut self, settlement: &Settlement, now: i64) -> Fenced {
        let id = settlement.token.job;
        let settled = self.change(id, |job| job.settle(settlement, now));
        let (answer, ended) = settled.unwrap_or((Fenced::Stale, None));
        self.record(id, ended);
        answer
    }

    pub(super) fn report_all(&mut self, reports: &[Report], now: i64) -> Vec<Reported> {
        reports.iter().map(|one| self.report(one, now)).collect()
    }

    fn report(&mut self, report: &Report, now: i64) -> Reported {
        let reported = self.change(report.token.job, |job| job.report(report, now));
        reported.unwrap_or(Reported::Stale)
    }

    /// Returns the lost claims that a pass at this time reclaims, with what happens to each.
    pub(super) fn lost(&self, request: &ReclaimRequest, now: i64) -> Vec<(JobId, ReclaimEffect)> {
        let nodes = NodeRegistry::new(self.nodes.values());
        let mut pass = ReclaimPass::of(request);
        for job in self.running() {
            let (id, node) = (job.record.id, job.record.node);
            let claim = job.held_claim(nodes.owner(node));
            if let Some(effect) = request.judge(&claim, now) {
                pass.add(id, node.is_some(), (id, effect));
            }
        }
        pass.chosen()
    }

    pub(super) fn reclaim(&mut self, request: &ReclaimRequest, now: i64) -> Vec<Reclaimed> {
        let lost = self.lost(request, now);
        let reclaim = |(id, effect): (JobId, ReclaimEffect)| {
            let (reclaimed, ended) = self.change(id, |job| job.reclaim(effect, now))?;
            self.record(id, ended);
            Some(reclaimed)
        };
        lost.into_iter().filter_map(reclaim).collect()
    }

    pub(super) fn purge(&mut self, request: &PurgeRequest, now: i64) -> Guarded<u64> {
        if !self.is_tenure(request.guard.as_ref(), now) {
            return Guarded::Stale;
        }
        self.forget_keys(now);
        let old = self.old(request, now);
        for id in &old {
            self.remove(*id);
        }
        Guarded::Done(old.len() as u64)
    }

    pub(super) fn expire_jobs(&mut self, limit: usize, now: i64) -> Vec<JobId> {
        let mut expired: Vec<JobId> = self.indexes.expired(now).take(limit).collect();
        for id in &expired {
            self.change(*id, |job| job.expire(now));
        }
        expired.sort_unstable();
        expired
    }

    /// Returns whether any idempotency key is free again.
    pub(super) fn has_free_keys(&self, now: i64) -> bool {
        self.key_expiries.values().any(|until| *until <= now)
    }

    /// Deletes the idempotency keys that are free again.
    pub(super) fn forget_keys(&mut self, now: i64) {
        let Self {
            idempotency_keys,
            key_expiries,
            ..
        } = self;
        key_expiries.retain(|key, until| {
            let used = *until > now;
            if !used {
                idempotency_keys.remove(key);
            }
            used
        });
    }

    pub(super) fn act_on(
        &mut self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
        now: i64,
    ) -> Vec<Acted> {
        let act = |job: &JobId| {
            let state = self.job(*job).map(|row| row.record.state);
            let outcome = if state.is_some_and(|state| from.contains(&state)) {
                self.act(*job, action, now)
            } else {
                ActionOutcome::NotFound
            };
            Acted { job: *job, outcome }
        };
        jobs.iter().map(act).collect()
    }

    fn act(&mut self, id: JobId, action: JobAction, now: i64) -> ActionOutcome {
        let Some(mut job) = self.job(id).cloned() else {
            return ActionOutcome::NotFound;
        };
        let outcome = job.act(action, now, |job| self.requeue(job));
        match outcome {
            ActionOutcome::Deleted => self.remove(id),
            _ => drop(self.change(id, |stored| *stored = job)),
        }
        outcome
    }

    /// Returns the new place of a job in its lane, or the job that has its unique key.
    fn requeue(&mut self, job: &StoredJob) -> Result<Option<LanePlace>, JobId> {
        let key = job.record.spec.unique_key.as_ref();
        match key.and_then(|key| self.indexes.unique_keys.get(key)) {
            Some(holder) => Err(*holder),
            None => Ok(self.lanes.enter(&job.record)),
        }
    }
}

fn shown(row: &StoredJob, detail: Detail) -> JobRecord {
    let job = row.record.clone();
    match detail {
        Detail::Whole => job,
        Detail::Outline => job.outline(),
    }
}
