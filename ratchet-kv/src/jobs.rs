//! Jobs, from their enqueue to their purge.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::ops::Range;

use async_trait::async_trait;
use ratchet_core::fair::Places;
use ratchet_core::model::{
    Acted, ActionOutcome, Attempt, ClaimRequest, ClaimedJob, Detail, Enqueued, Fenced, Guarded,
    JobFilter, JobOrder, JobRecord, LanePlace, NewJob, NodeRegistry, NodeStatus, Owner,
    PageRequest, Parent, PurgeRequest, ReclaimPass, ReclaimRequest, Reclaimed, Report, Reported,
    Settlement, StoredJob,
};
use ratchet_core::permit::Budget;
use ratchet_core::priority::merge_decided;
use ratchet_core::state::{JobAction, JobState};
use ratchet_core::store::JobStore;
use ratchet_core::time::duration_millis;
use ratchet_core::{InvalidInput, JobId, Name, Priority, Result, Route};

use crate::call::{Call, Found, decoded};
use crate::engine::{Engine, Order, Transaction};
use crate::fair::parts_of;
use crate::keys::{self, Key, Table};
use crate::store::KvStore;

#[async_trait]
impl<E: Engine> JobStore for KvStore<E> {
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        let mut call = self.write("enqueue").await?;
        let answers = call.enqueue(jobs).await?;
        call.commit().await?;
        Ok(answers)
    }

    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        let mut call = self.write("claim_next_batch").await?;
        let claimed = call.claim(request).await?;
        call.commit().await?;
        Ok(claimed)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        let mut call = self.write("settle").await?;
        let now = call.now;
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let id = settlement.token.job;
            let settled = call.change(id, |job| job.settle(settlement, now)).await?;
            let (answer, ended) = settled.unwrap_or((Fenced::Stale, None));
            call.record(id, ended).await?;
            answers.push(answer);
        }
        call.commit().await?;
        Ok(answers)
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        let mut call = self.write("report").await?;
        let now = call.now;
        let mut answers = Vec::with_capacity(reports.len());
        for report in reports {
            let reported = call.change(report.token.job, |job| job.report(report, now));
            answers.push(reported.await?.unwrap_or(Reported::Stale));
        }
        call.commit().await?;
        Ok(answers)
    }

    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        let mut call = self.write("reclaim").await?;
        let reclaimed = call.reclaim(request).await?;
        call.commit().await?;
        Ok(reclaimed)
    }

    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        let mut call = self.write("act").await?;
        let mut acted = Vec::with_capacity(jobs.len());
        for id in jobs {
            let found = call.find(*id).await?;
            let outcome = match found {
                Some(found) if from.contains(&found.job.record.state) => {
                    call.act(found, action).await?
                }
                // The state of the job is unknown.
                None if action == JobAction::Delete && call.delete_unreadable(*id).await? => {
                    ActionOutcome::Deleted
                }
                _ => ActionOutcome::NotFound,
            };
            acted.push(Acted { job: *id, outcome });
        }
        call.commit().await?;
        Ok(acted)
    }

    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>> {
        let mut call = self.read("get").await?;
        let mut jobs = Vec::with_capacity(ids.len());
        for id in ids {
            let found = call.find(*id).await?.filter(|found| found.can_be_shown);
            let record = found.map(|found| found.job.record);
            jobs.push(match detail {
                Detail::Whole => record,
                Detail::Outline => record.map(JobRecord::outline),
            });
        }
        Ok(jobs)
    }

    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>> {
        let mut call = self.read("list").await?;
        let (mut keys, order) = scanned(filter, page);
        let mut ids = Vec::new();
        loop {
            let entries = call.page(&mut keys, order).await?;
            let jobs = call.jobs_of(&entries).await?;
            let matching = jobs.iter().filter(|job| filter.matches(&job.record));
            ids.extend(matching.map(|job| job.record.id));
            if entries.is_empty() || ids.len() >= page.limit {
                ids.truncate(page.limit);
                return Ok(ids);
            }
        }
    }

    async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        let mut call = self.read("history").await?;
        let entries = call.all(Key::new(Table::History).job(job).all()).await?;
        let read = |(_, value): &(_, Vec<u8>)| decoded(value, Attempt::decode);
        Ok(entries.iter().filter_map(read).collect())
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        let mut call = self.write("purge").await?;
        if !call.allows(request.guard.as_ref()).await? {
            return Ok(Guarded::Stale);
        }
        call.forget_keys(request.limit).await?;
        let old = call.old(request, true).await?;
        for job in &old {
            call.delete(job).await?;
        }
        call.commit().await?;
        Ok(Guarded::Done(old.len() as u64))
    }

    async fn expire_jobs(&self, limit: usize) -> Result<Vec<JobId>> {
        let mut call = self.write("expire_jobs").await?;
        let expired = call.expire_jobs(limit).await?;
        call.commit().await?;
        Ok(expired)
    }
}

/// Returns the range of keys that a page of a list scans, and the order of the scan. If the filter
/// has a tag, the range covers the jobs with that tag, and otherwise all jobs.
fn scanned(filter: &JobFilter, page: &PageRequest) -> (Range<Vec<u8>>, Order) {
    let base = || match &filter.tag {
        Some(tag) => Key::new(Table::Tag).name(tag.as_str()),
        None => Key::new(Table::Job),
    };
    let after = page.after.map(|job| base().job(job).bytes());
    match (page.order, after) {
        (JobOrder::OldestFirst, Some(after)) => (base().from(keys::after(after)), Order::Ascending),
        (JobOrder::OldestFirst, None) => (base().all(), Order::Ascending),
        (JobOrder::NewestFirst, Some(after)) => (base().before(after), Order::Descending),
        (JobOrder::NewestFirst, None) => (base().all(), Order::Descending),
    }
}

impl<T: Transaction> Call<T> {
    /// Returns the ended jobs that `request` selects. If `hidden` is true, these include jobs that
    /// are too damaged to be returned by reads.
    pub(crate) async fn old(&mut self, request: &PurgeRequest, hidden: bool) -> Result<Vec<Found>> {
        let cutoff = self.now.saturating_sub(duration_millis(request.older_than));
        let ended = || Key::new(Table::Ended).byte(request.state.code());
        let mut keys = ended().before(ended().number(cutoff).bytes());
        let mut old = Vec::new();
        loop {
            let page = self.page(&mut keys, Order::Ascending).await?;
            if page.is_empty() {
                return Ok(old);
            }
            for id in page.iter().filter_map(|(key, _)| keys::job_of(key)) {
                if old.len() == request.limit {
                    return Ok(old);
                }
                let found = self.find(id).await?;
                if let Some(found) = found.filter(|found| hidden || found.can_be_shown)
                    && !self.is_awaited(id).await?
                {
                    old.push(found);
                }
            }
        }
    }

    /// Returns whether `job` has a child that has not ended.
    async fn is_awaited(&mut self, job: JobId) -> Result<bool> {
        let children = self.children(Parent::Job(job)).await?;
        Ok(children
            .iter()
            .any(|child| !child.record.state.is_terminal()))
    }

    async fn claim(&mut self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        let node = self.node(request.node).await?;
        if node.is_some_and(|node| node.status != NodeStatus::Active) {
            return Ok(Vec::new());
        }
        let pauses = self.pauses().await?;
        let mut routes = self.routes().await?;
        self.wake_parked(request, &pauses, &routes).await?;
        routes.retain(|(route, _)| !pauses.cover(route) && route.matches(request));
        self.wake(&routes).await?;
        let (mut claimed, mut damaged) = (Vec::new(), 0);
        // `claim_once` ends jobs that cannot be read. Other jobs are then claimed in their place.
        loop {
            let limit = request.limit - claimed.len();
            let (jobs, ended) = self.claim_once(request, limit, &routes).await?;
            claimed.extend(jobs);
            damaged += ended;
            if ended == 0 || claimed.len() == request.limit || damaged >= request.limit {
                break;
            }
        }
        // Jobs with fair keys were chosen in another order.
        ClaimedJob::sort(&mut claimed, request.aging, self.now);
        Ok(claimed)
    }

    /// Chooses up to `limit` jobs. Claims those that can be read, and ends the others. Returns the
    /// claimed jobs, and the number of jobs that were not claimed.
    async fn claim_once(
        &mut self,
        request: &ClaimRequest,
        limit: usize,
        routes: &[(Route, Table)],
    ) -> Result<(Vec<ClaimedJob>, usize)> {
        let budget = Budget::new(self.held_permits().await?);
        let mut streams = Vec::new();
        let is_fair = |(_, table): &(Route, Table)| matches!(table, Table::PendingFair);
        let mut limited = match routes.iter().any(is_fair) {
            true => self.limited().await?,
            false => None,
        };
        // The fair keys of the jobs that may have to wait for a place.
        let mut fair_keys = HashMap::new();
        for (route, table) in routes {
            for priority in Priority::ALL {
                let due = match (table, &mut limited) {
                    (Table::PendingFair, Some(limited)) => {
                        let turns = self.limited_turns(limited, route, priority, limit).await?;
                        let key_of = |entry: &Vec<u8>| {
                            let (.., key) = parts_of(entry)?;
                            Some((keys::job_of(entry)?, key))
                        };
                        fair_keys.extend(turns.iter().filter_map(key_of));
                        turns
                    }
                    (Table::PendingFair, None) => self.turns(route, priority, limit).await?,
                    (table, _) => self.due(*table, route, priority, limit).await?,
                };
                if !due.is_empty() {
                    streams.push((route, priority, due));
                }
            }
        }
        let merged = streams.iter().map(|(_, priority, due)| {
            let job = |key: &Vec<u8>| keys::due_of(key).zip(keys::job_of(key));
            (
                *priority,
                due.iter().filter_map(job).map(Ok::<_, Infallible>),
            )
        });
        let mut places = Places::new(budget);
        let decide = |stream: usize, id: JobId| {
            let route = streams[stream].0;
            let key = fair_keys.get(&id);
            places.admit(id, route, key, || {
                let limited = limited.as_ref().zip(key);
                let free = limited.and_then(|(limited, key)| limited.free(&route.queue, key));
                Ok::<_, Infallible>(free)
            })
        };
        let Ok(chosen) = merge_decided(merged, request.aging, self.now, limit, decide);
        for id in places.parked() {
            self.change(*id, StoredJob::park).await?;
        }
        let now = self.now;
        let (mut claimed, mut unreadable) = (Vec::with_capacity(chosen.len()), 0);
        let mut lost = BTreeSet::new();
        for id in chosen {
            let claim = |job: &mut StoredJob, problem: Option<&InvalidInput>| {
                let input = request.payloads.then(|| job.input());
                let mut claim = job.claim(request.node, now);
                claim.limited = places.is_limited(id);
                match problem {
                    None => Ok(ClaimedJob { claim, input }),
                    Some(problem) => {
                        Err(job.settle(&Settlement::unreadable(claim.token, problem), now))
                    }
                }
            };
            match self.find(id).await? {
                None => {
                    self.set_aside(id).await?;
                    lost.insert(id);
                }
                Some(found) => match self.change_found(found, claim).await? {
                    Ok(job) => claimed.push(job),
                    Err((_, ended)) => {
                        self.record(id, ended).await?;
                        unreadable += 1;
                    }
                },
            }
        }
        // The row of a job in `lost` may lack the list of its keys, so `set_aside` may not have
        // removed the key by which the job was found.
        for key in streams.into_iter().flat_map(|(_, _, due)| due) {
            if keys::job_of(&key).is_some_and(|id| lost.contains(&id)) {
                self.forget_turn(&key).await?;
                self.remove(key).await?;
            }
        }
        Ok((claimed, unreadable + lost.len()))
    }

    async fn reclaim(&mut self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        let now = self.now;
        let nodes = self.nodes().await?;
        let nodes = NodeRegistry::new(&nodes);
        let mut pass = ReclaimPass::of(request);
        let running = self.all(Key::new(Table::Running).all()).await?;
        for (key, _) in running {
            let Some(id) = keys::job_of(&key) else {
                continue;
            };
            let Some(job) = self.job(id).await? else {
                // The body may still run on a live node.
                let owner = nodes.owner(keys::runner_of(&key));
                if !matches!(owner, Owner::Known(node) if node.status.is_live()) {
                    self.set_aside(id).await?;
                    self.remove(key).await?;
                }
                continue;
            };
            let node = job.record.node;
            if let Some(effect) = request.judge(&job.held_claim(nodes.owner(node)), now) {
                pass.add(id, node.is_some(), (id, effect));
            }
        }
        let mut reclaimed = Vec::new();
        for (id, effect) in pass.chosen() {
            let taken = self.change(id, |job| job.reclaim(effect, now)).await?;
            if let Some((taken, ended)) = taken {
                self.record(id, ended).await?;
                reclaimed.push(taken);
            }
        }
        Ok(reclaimed)
    }

    /// Cancels up to `limit` waiting jobs that have expired. Returns them in order of id.
    async fn expire_jobs(&mut self, limit: usize) -> Result<Vec<JobId>> {
        let now = self.now;
        let expiries = Key::new(Table::Expiry);
        let mut keys = expiries.clone().before(expiries.number(now).end());
        let mut expired = Vec::new();
        while expired.len() < limit {
            let page = self.page(&mut keys, Order::Ascending).await?;
            if page.is_empty() {
                break;
            }
            for id in page.iter().filter_map(|(key, _)| keys::job_of(key)) {
                if expired.len() == limit {
                    break;
                }
                let Some(found) = self.find(id).await? else {
                    self.set_aside(id).await?;
                    continue;
                };
                // The job was found by its expiry in the index. The expiry in a damaged job may be
                // unreadable, so such a job counts as overdue.
                if found.problem.is_some() || found.job.is_overdue(now) {
                    let expire = |job: &mut StoredJob, problem: Option<&InvalidInput>| match problem
                    {
                        Some(problem) => job.fail_damaged(problem, now),
                        None => job.expire(now),
                    };
                    self.change_found(found, expire).await?;
                    expired.push(id);
                }
            }
        }
        expired.sort_unstable();
        Ok(expired)
    }

    async fn act(&mut self, found: Found, action: JobAction) -> Result<ActionOutcome> {
        let (id, now) = (found.job.record.id, self.now);
        let requeue = match action {
            JobAction::Requeue => self.requeue(&found.job).await?,
            _ => Ok(None),
        };
        let (is_damaged, before) = (found.problem.is_some(), found.job.record.state);
        let mut acted = self
            .change(id, |job| job.act(action, now, |_| requeue))
            .await?;
        let may_differ = matches!(
            acted,
            Some(ActionOutcome::Became(_) | ActionOutcome::Changed)
        );
        if is_damaged && before != JobState::Running && may_differ {
            // The change has ended the job instead.
            let after = self.job(id).await?.map(|job| job.record.state);
            acted = after.map(|after| match after == before {
                true => ActionOutcome::Refused(before),
                false => ActionOutcome::Became(after),
            });
        }
        if acted == Some(ActionOutcome::Deleted) {
            self.delete(&found).await?;
        }
        Ok(acted.unwrap_or(ActionOutcome::NotFound))
    }

    /// Returns the place that a job gets in its lane when it is requeued, or `None` if it has no
    /// lane. The error is another unfinished job that has the same unique key.
    async fn requeue(&mut self, job: &StoredJob) -> Result<Result<Option<LanePlace>, JobId>> {
        let spec = &job.record.spec;
        if let Some(key) = &spec.unique_key
            && let Some(holder) = self.unique_holder(key).await?
        {
            return Ok(Err(holder));
        }
        Ok(Ok(self.lane_place(job).await?))
    }

    /// Returns the unfinished job that has the unique key `key`, if there is one.
    pub(crate) async fn unique_holder(&mut self, key: &Name) -> Result<Option<JobId>> {
        let holder = self.first(Key::new(Table::Unique).name(key.as_str()).all());
        Ok(holder.await?.and_then(|(key, _)| keys::job_of(&key)))
    }

    /// Returns the place at the end of the job's lane. Returns `None` if the job has no lane.
    pub(crate) async fn lane_place(&mut self, job: &StoredJob) -> Result<Option<LanePlace>> {
        let spec = &job.record.spec;
        let Some(lane) = &spec.lane else {
            return Ok(None);
        };
        let members = keys::lane(&spec.route.queue, lane).all();
        let last = self.range(members, Order::Descending, 1).await?;
        let last = last.first().and_then(|(key, _)| {
            let mut parts = keys::Parts::of(key);
            parts.name()?;
            parts.name()?;
            parts.number()
        });
        Ok(Some(LanePlace::after(last.unwrap_or(0))))
    }
}
