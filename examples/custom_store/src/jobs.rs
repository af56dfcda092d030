//! Jobs: each call applies a rule of the core and writes the result. The core checks the input
//! before these calls.

use std::convert::Infallible;

use async_trait::async_trait;
use ratchet_core::model::{
    Acted, ActionOutcome, Attempt, AttemptOutcome, Claim, ClaimRequest, ClaimedJob, Detail,
    Enqueued, Fenced, Guarded, HeldClaim, JobFilter, JobInput, JobOrder, JobRecord, NextRun,
    NodeRegistry, NodeStatus, PageRequest, Progress, PurgeRequest, ReclaimEffect, ReclaimPass,
    ReclaimRequest, Reclaimed, Report, ReportKind, Reported, Settlement, StateCounts,
};
use ratchet_core::priority::merge;
use ratchet_core::state::Response;
use ratchet_core::store::JobStore;
use ratchet_core::time::{self, duration_millis, from_millis};
use ratchet_core::{ClaimToken, JobAction, JobId, JobState, NewJob, Priority, Result};

use crate::store::MapStore;
use crate::tables::{Row, Tables};

#[async_trait]
impl JobStore for MapStore {
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        Ok(self.transaction(|tables, now| {
            let enqueue = |job| tables.enqueue(job, now);
            jobs.iter().map(enqueue).collect()
        }))
    }

    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        Ok(self.transaction(|tables, now| tables.claim(request, now)))
    }

    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        Ok(self.transaction(|tables, _| {
            let load = |token: &ClaimToken| {
                let row = tables.jobs.get(&token.job);
                row.filter(|row| row.holds(*token)).map(input_of)
            };
            tokens.iter().map(load).collect()
        }))
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        Ok(self.transaction(|tables, now| {
            let settle = |one| tables.settle(one, now);
            settlements.iter().map(settle).collect()
        }))
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        Ok(self.transaction(|tables, now| {
            let report = |one| tables.report(one, now);
            reports.iter().map(report).collect()
        }))
    }

    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        Ok(self.transaction(|tables, now| tables.reclaim(request, now)))
    }

    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        Ok(self.transaction(|tables, now| {
            let act = |job: &JobId| Acted {
                job: *job,
                outcome: tables.act(*job, from, action, now),
            };
            jobs.iter().map(act).collect()
        }))
    }

    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>> {
        Ok(self.transaction(|tables, _| {
            let read = |id: &JobId| tables.jobs.get(id).map(|row| shown(row, detail));
            ids.iter().map(read).collect()
        }))
    }

    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>> {
        Ok(self.transaction(|tables, _| {
            let jobs = tables.jobs.values().map(|row| &row.job);
            let mut ids: Vec<JobId> = jobs
                .filter(|job| filter.matches(job))
                .map(|job| job.id)
                // The cursor of a page is the last job of the previous page.
                .filter(|id| match (page.after, page.order) {
                    (None, _) => true,
                    (Some(after), JobOrder::NewestFirst) => *id < after,
                    (Some(after), _) => *id > after,
                })
                .collect();
            if page.order == JobOrder::NewestFirst {
                ids.reverse();
            }
            ids.truncate(page.limit);
            ids
        }))
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts> {
        Ok(self.transaction(|tables, _| {
            let mut counts = StateCounts::new();
            for row in tables.jobs.values() {
                if filter.matches(&row.job) {
                    *counts.entry(row.job.state).or_default() += 1;
                }
            }
            counts
        }))
    }

    async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        Ok(self.transaction(|tables, _| {
            let row = tables.jobs.get(&job);
            row.map(|row| row.history.clone()).unwrap_or_default()
        }))
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        Ok(self.transaction(|tables, now| {
            if !tables.allows(request.guard.as_ref(), now) {
                return Guarded::Stale;
            }
            let old = tables.old(request, now);
            for id in &old {
                tables.jobs.remove(id);
            }
            Guarded::Done(old.len() as u64)
        }))
    }
}

impl Tables {
    fn enqueue(&mut self, job: &NewJob, now: i64) -> Enqueued {
        let (id, spec) = (job.id(), job.spec());
        // The caller repeats a call whose answer was lost, with the same ids.
        if self.jobs.contains_key(&id) {
            return Enqueued::Created(id);
        }
        let once = spec.idempotency_key.as_ref();
        let earlier = once.and_then(|key| self.idempotency_keys.get(key).copied());
        let unique = spec.unique_key.as_ref();
        let earlier = earlier.or_else(|| self.unique_key(unique?));
        if let Some(earlier) = earlier {
            return Enqueued::Duplicate(earlier);
        }
        if let Some(key) = once {
            self.idempotency_keys.insert(key.clone(), id);
        }
        let run_at = from_millis(job.due().resolve(now));
        let record = JobRecord::new(id, spec.clone(), run_at, from_millis(now));
        self.insert(record);
        Enqueued::Created(id)
    }

    fn claim(&mut self, request: &ClaimRequest, now: i64) -> Vec<ClaimedJob> {
        let node = self.nodes.get(&request.node);
        if node.is_some_and(|node| node.status != NodeStatus::Active) {
            return Vec::new();
        }
        // There is one stream for each priority, ordered by time and id; `merge` applies the claim
        // order.
        let mut due: Vec<&JobRecord> = self
            .due(now)
            .filter(|job| !self.paused_queues.contains(&job.spec.route.queue))
            .filter(|job| job.spec.route.matches(request))
            .collect();
        due.sort_by_key(|job| (job.run_at, job.id));
        let streams = Priority::ALL.map(|priority| {
            let jobs = due.iter().filter(move |job| job.spec.priority == priority);
            let item =
                |job: &&JobRecord| Ok::<_, Infallible>((time::to_millis(job.run_at), job.id));
            (priority, jobs.map(item))
        });
        let Ok(chosen) = merge(streams, request.aging, now, request.limit);
        let claim = |id: JobId| {
            let row = self.jobs.get_mut(&id)?;
            row.job.state = JobState::Running;
            row.job.claim_seq += 1;
            row.job.node = Some(request.node);
            row.job.claimed_at = Some(from_millis(now));
            Some(ClaimedJob {
                claim: Claim::of(&row.job),
                input: request.payloads.then(|| input_of(row)),
            })
        };
        chosen.into_iter().filter_map(claim).collect()
    }

    fn settle(&mut self, settlement: &Settlement, now: i64) -> Fenced {
        let token = settlement.token;
        let Some(row) = self.jobs.get(&token.job) else {
            return Fenced::Stale;
        };
        if !row.holds(token) {
            return match row.settled == Some(token) {
                true => Fenced::Applied,
                false => Fenced::Stale,
            };
        }
        let effect = settlement.effect(row.job.cancel_requested);
        let Some(row) = self.end_claim(token.job, effect.state, effect.record, now) else {
            return Fenced::Stale;
        };
        row.settled = Some(token);
        row.job.attempts += effect.attempts_added;
        if let NextRun::In(delay) = effect.next_run {
            row.job.run_at = from_millis(now.saturating_add(duration_millis(delay)));
        }
        if let Some(error) = effect.error {
            row.job.last_error = Some(error.to_owned());
        }
        if let Some(result) = effect.result {
            row.job.result = Some(result.clone());
        }
        if let Some(attempt) = row.history.last_mut() {
            attempt.ran_for = settlement.ran_for;
            attempt.error = effect.error.map(str::to_owned);
        }
        Fenced::Applied
    }

    fn report(&mut self, report: &Report, now: i64) -> Reported {
        let row = self.jobs.get_mut(&report.token.job);
        let Some(row) = row.filter(|row| row.holds(report.token)) else {
            return Reported::Stale;
        };
        row.last_report = Some(now);
        match &report.kind {
            ReportKind::Progress { percent, message } => {
                row.job.progress = Some(Progress {
                    percent: *percent,
                    message: message.clone(),
                });
            }
            ReportKind::Checkpoint(checkpoint) => row.job.checkpoint = Some(checkpoint.clone()),
            // Every report shows that the body is alive. `Alive` has no other content.
            _ => {}
        }
        Reported::Applied {
            cancel_requested: row.job.cancel_requested,
        }
    }

    fn reclaim(&mut self, request: &ReclaimRequest, now: i64) -> Vec<Reclaimed> {
        let nodes = NodeRegistry::new(self.nodes.values());
        let mut pass = ReclaimPass::of(request);
        for row in self.running() {
            let job = &row.job;
            let claim = HeldClaim {
                owner: nodes.owner(job.node),
                claimed_at: job.claimed_at.map(time::to_millis),
                last_report: row.last_report,
                timeout: job.spec.timeout,
                stall_timeout: job.spec.stall_timeout,
                crash_count: Some(job.crash_count),
                cancel_requested: job.cancel_requested,
            };
            if let Some(effect) = request.judge(&claim, now) {
                pass.add(job.id, job.node.is_some(), (job.id, effect));
            }
        }
        let take_back = |(id, effect): (JobId, ReclaimEffect)| {
            let row = self.jobs.get_mut(&id)?;
            let token = row.token();
            row.job.crash_count = effect.crash_count;
            if effect.is_exhausted() {
                // The engine decides how the job ends. Until then, the job has no owner.
                row.job.node = None;
            } else {
                self.end_claim(id, effect.state, AttemptOutcome::Lost, now);
            }
            Some(effect.reclaimed(token))
        };
        pass.chosen().into_iter().filter_map(take_back).collect()
    }

    fn act(&mut self, id: JobId, from: &[JobState], action: JobAction, now: i64) -> ActionOutcome {
        let row = self.jobs.get_mut(&id);
        let Some(row) = row.filter(|row| from.contains(&row.job.state)) else {
            return ActionOutcome::NotFound;
        };
        let job = &mut row.job;
        match job.state.respond(action) {
            Response::Refuse => ActionOutcome::Refused(job.state),
            Response::RequestCancel => {
                job.cancel_requested = true;
                ActionOutcome::CancelRequested
            }
            Response::Change => {
                match action {
                    JobAction::Reschedule(due) => job.run_at = from_millis(due.resolve(now)),
                    JobAction::SetPriority(priority) => job.spec.priority = priority,
                    _ => {}
                }
                ActionOutcome::Changed
            }
            Response::Remove => {
                self.jobs.remove(&id);
                ActionOutcome::Deleted
            }
            Response::Become(_) if action == JobAction::Requeue => self.requeue(id, now),
            Response::Become(state) => {
                self.enter(id, state, now);
                ActionOutcome::Became(state)
            }
        }
    }

    fn requeue(&mut self, id: JobId, now: i64) -> ActionOutcome {
        let key = self
            .jobs
            .get(&id)
            .and_then(|row| row.job.spec.unique_key.as_ref());
        if let Some(holder) = key.and_then(|key| self.unique_key(key)) {
            return ActionOutcome::KeyTaken(holder);
        }
        let (Some(state), Some(row)) = (self.enter_lane(id), self.jobs.get_mut(&id)) else {
            return ActionOutcome::NotFound;
        };
        let job = &mut row.job;
        (job.attempts, job.crash_count) = (0, 0);
        (job.last_error, job.finished_at) = (None, None);
        job.run_at = from_millis(now);
        ActionOutcome::Became(state)
    }

    /// Returns the ids of the jobs to purge. The job that ended first comes first.
    fn old(&self, request: &PurgeRequest, now: i64) -> Vec<JobId> {
        let cutoff = from_millis(now.saturating_sub(duration_millis(request.older_than)));
        let jobs = self.jobs.values().map(|row| &row.job);
        let old = jobs.filter(|job| job.state == request.state);
        let old = old.filter(|job| job.finished_at.is_some_and(|at| at < cutoff));
        let mut old: Vec<_> = old.map(|job| (job.finished_at, job.id)).collect();
        old.sort_unstable();
        old.truncate(request.limit);
        old.into_iter().map(|(_, id)| id).collect()
    }
}

fn shown(row: &Row, detail: Detail) -> JobRecord {
    let job = row.job.clone();
    match detail {
        Detail::Whole => job,
        Detail::Outline => job.outline(),
    }
}

fn input_of(row: &Row) -> JobInput {
    JobInput {
        payload: row.job.spec.payload.clone(),
        checkpoint: row.job.checkpoint.clone(),
    }
}
