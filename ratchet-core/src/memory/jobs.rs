use std::convert::Infallible;

use async_trait::async_trait;

use super::MemoryStore;
use super::links::awaited;
use super::tables::{Row, Tables};
use crate::error::Result;
use crate::id::{ClaimToken, JobId};
use crate::links::waiting_state;
use crate::model::{
    Acted, ActionOutcome, Attempt, AttemptOutcome, Claim, ClaimRequest, ClaimedJob, Detail,
    Enqueued, Fenced, Guarded, HeldClaim, JobFilter, JobInput, JobOrder, JobRecord, NewJob,
    NextRun, NodeRegistry, NodeStatus, PageRequest, Progress, PurgeRequest, ReclaimEffect,
    ReclaimPass, ReclaimRequest, Reclaimed, Report, ReportKind, Reported, Settlement, StateCounts,
};
use crate::permit::Budget;
use crate::priority::merge_admitted;
use crate::state::{JobAction, JobState, Response};
use crate::store::JobStore;
use crate::time::{self, duration_millis, from_millis};

#[async_trait]
impl JobStore for MemoryStore {
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        self.call("enqueue", |tables, now| tables.enqueue(jobs, now))
            .await
    }

    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        self.call("claim_next_batch", |tables, now| {
            Ok(tables.claim(request, now))
        })
        .await
    }

    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        self.call("load_inputs", |tables, _| {
            let load = |token: &ClaimToken| {
                let row = tables.job(token.job).filter(|row| row.holds(*token))?;
                Some(input_of(row))
            };
            Ok(tokens.iter().map(load).collect())
        })
        .await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        self.call("settle", |tables, now| {
            Ok(settlements
                .iter()
                .map(|one| tables.settle(one, now))
                .collect())
        })
        .await
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        self.call("report", |tables, now| {
            Ok(reports.iter().map(|one| tables.report(one, now)).collect())
        })
        .await
    }

    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        self.call("reclaim", |tables, now| Ok(tables.reclaim(request, now)))
            .await
    }

    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        self.call("act", |tables, now| {
            let act = |job: &JobId| {
                let state = tables.job(*job).map(|row| row.job.state);
                let outcome = if state.is_some_and(|state| from.contains(&state)) {
                    tables.act(*job, action, now)
                } else {
                    ActionOutcome::NotFound
                };
                Acted { job: *job, outcome }
            };
            Ok(jobs.iter().map(act).collect())
        })
        .await
    }

    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>> {
        self.call("get", |tables, _| {
            let read = |id: &JobId| tables.job(*id).map(|row| shown(row, detail));
            Ok(ids.iter().map(read).collect())
        })
        .await
    }

    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>> {
        self.call("list", |tables, _| {
            let matching = tables.jobs().filter(|row| filter.matches(&row.job));
            let ids = matching.map(|row| row.job.id);
            Ok(match page.order {
                JobOrder::OldestFirst => ids
                    .filter(|id| page.after.is_none_or(|after| *id > after))
                    .take(page.limit)
                    .collect(),
                JobOrder::NewestFirst => ids
                    .rev()
                    .filter(|id| page.after.is_none_or(|after| *id < after))
                    .take(page.limit)
                    .collect(),
            })
        })
        .await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts> {
        self.call("count_jobs", |tables, _| {
            let mut counts = StateCounts::new();
            for row in tables.jobs().filter(|row| filter.matches(&row.job)) {
                *counts.entry(row.job.state).or_default() += 1;
            }
            Ok(counts)
        })
        .await
    }

    async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        self.call("history", |tables, _| {
            Ok(tables
                .job(job)
                .map(|row| row.history.clone())
                .unwrap_or_default())
        })
        .await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        self.call("purge", |tables, now| {
            if !tables.is_tenure(request.guard.as_ref(), now) {
                return Ok(Guarded::Stale);
            }
            let old = tables.old(request, now);
            for id in &old {
                tables.remove(*id);
            }
            Ok(Guarded::Done(old.len() as u64))
        })
        .await
    }
}

impl Tables {
    /// Returns the finished jobs that this request selects for deletion or for the archive.
    pub(super) fn old(&self, request: &PurgeRequest, now: i64) -> Vec<JobId> {
        let cutoff = now.saturating_sub(duration_millis(request.older_than));
        self.finished()
            .take_while(|(finished_at, _)| *finished_at < cutoff)
            .filter(|(_, row)| row.job.state == request.state)
            .map(|(_, row)| row.job.id)
            .filter(|job| !self.is_awaited(*job))
            .take(request.limit)
            .collect()
    }

    fn claim(&mut self, request: &ClaimRequest, now: i64) -> Vec<ClaimedJob> {
        let node = self.nodes.get(&request.node);
        if node.is_some_and(|node| node.status != NodeStatus::Active) {
            return Vec::new();
        }
        let claimable = |route: &crate::Route| {
            !self.paused_queues.contains(&route.queue) && route.matches(request)
        };
        let levels = self.pending_levels(claimable);
        let mut budget = Budget::new(self.held_permits());
        let streams = levels.iter().map(|(_, priority, jobs)| {
            let due = jobs.iter().take_while(|(run_at, _)| *run_at <= now);
            (*priority, due.map(|job| Ok::<_, Infallible>(*job)))
        });
        let admit = |stream: usize| budget.take(levels[stream].0);
        let Ok(chosen) = merge_admitted(streams, request.aging, now, request.limit, admit);
        let claim = |id: JobId| {
            self.change(id, |row| {
                row.job.state = JobState::Running;
                row.job.claim_seq += 1;
                row.job.node = Some(request.node);
                row.job.claimed_at = Some(from_millis(now));
                ClaimedJob {
                    claim: claim_of(row),
                    input: request.payloads.then(|| input_of(row)),
                }
            })
        };
        chosen.into_iter().filter_map(claim).collect()
    }

    fn settle(&mut self, settlement: &Settlement, now: i64) -> Fenced {
        let token = settlement.token;
        let Some(row) = self.job(token.job) else {
            return Fenced::Stale;
        };
        if !row.holds(token) {
            return if row.settled == Some(token) {
                Fenced::Applied
            } else {
                Fenced::Stale
            };
        }
        self.change(token.job, |row| {
            let effect = settlement.effect(row.job.cancel_requested);
            row.end_claim(effect.state, effect.record, now);
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
            if let Some(ended) = row.history.last_mut() {
                ended.ran_for = settlement.ran_for;
                ended.error = effect.error.map(str::to_owned);
            }
        });
        Fenced::Applied
    }

    fn report(&mut self, report: &Report, now: i64) -> Reported {
        if !self
            .job(report.token.job)
            .is_some_and(|row| row.holds(report.token))
        {
            return Reported::Stale;
        }
        self.change(report.token.job, |row| {
            row.last_report = Some(now);
            match &report.kind {
                ReportKind::Alive => {}
                ReportKind::Progress { percent, message } => {
                    row.job.progress = Some(Progress {
                        percent: *percent,
                        message: message.clone(),
                    });
                }
                ReportKind::Checkpoint(checkpoint) => {
                    row.job.checkpoint = Some(checkpoint.clone());
                }
            }
            Reported::Applied {
                cancel_requested: row.job.cancel_requested,
            }
        })
        .unwrap_or(Reported::Stale)
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
            self.change(id, |row| {
                let token = row.token();
                row.job.crash_count = effect.crash_count;
                if effect.is_exhausted() {
                    row.job.node = None;
                } else {
                    row.end_claim(effect.state, AttemptOutcome::Lost, now);
                }
                effect.reclaimed(token)
            })
        };
        pass.chosen().into_iter().filter_map(take_back).collect()
    }

    fn act(&mut self, id: JobId, action: JobAction, now: i64) -> ActionOutcome {
        let Some(row) = self.job(id) else {
            return ActionOutcome::NotFound;
        };
        let state = row.job.state;
        let to = match state.respond(action) {
            Response::Refuse => return ActionOutcome::Refused(state),
            Response::RequestCancel => {
                self.change(id, |row| row.job.cancel_requested = true);
                return ActionOutcome::CancelRequested;
            }
            Response::Change => {
                self.change(id, |row| match action {
                    JobAction::Reschedule(due) => row.job.run_at = from_millis(due.resolve(now)),
                    JobAction::SetPriority(priority) => row.job.spec.priority = priority,
                    _ => {}
                });
                return ActionOutcome::Changed;
            }
            Response::Remove => {
                self.remove(id);
                return ActionOutcome::Deleted;
            }
            Response::Become(to) => to,
        };
        if action == JobAction::Requeue {
            let key = row.job.spec.unique_key.as_ref();
            if let Some(holder) = key.and_then(|key| self.unique_keys.get(key)) {
                return ActionOutcome::KeyTaken(*holder);
            }
        }
        let to = match action {
            JobAction::Requeue if row.job.spec.lane.is_some() => {
                let job = row.job.clone();
                self.lanes.enter(&job)
            }
            JobAction::Requeue => {
                let signal = row.job.signal.as_ref();
                let awaits_signal = signal.is_some_and(|signal| signal.delivered.is_none());
                waiting_state(self.links.has_open(id), awaits_signal)
            }
            _ => to,
        };
        self.change(id, |row| {
            if action == JobAction::Requeue {
                if let (Some(wait), Some(signal)) = (&row.job.spec.signal, &mut row.job.signal)
                    && signal.delivered.is_none()
                {
                    *signal = awaited(wait.timeout, now);
                }
                row.job.attempts = 0;
                row.job.crash_count = 0;
                row.job.last_error = None;
                row.job.run_at = from_millis(now);
            }
            row.enter(to, from_millis(now));
        });
        ActionOutcome::Became(to)
    }
}

fn claim_of(row: &Row) -> Claim {
    let mut claim = Claim::of(&row.job);
    claim.awaited |= row.has_children;
    claim
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
