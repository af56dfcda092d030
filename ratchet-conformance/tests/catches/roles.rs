//! Stores with a defect in queues, nodes or locks.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::limits::MAX_BATCH;
use ratchet_core::model::{
    Claim, ClockTrust, DueRoute, Fenced, Finding, Guard, Guarded, Heartbeat, HeartbeatReply,
    JobFilter, JobRecord, JobSelector, NodeRecord, NodeStatus, NodeSweep, OwnedClaim, PageRequest,
    PauseInfo, PauseRequest, PauseScope, QueueInfo, Severity, SweptNodes,
};
use ratchet_core::store::{
    Acquired, Changed, DiagnosticStore, JobStore, LockInfo, LockStore, NodeStore, QueueStore,
    VersionStore,
};
use ratchet_core::time::{self, Timestamp};
use ratchet_core::{
    Fence, JobAction, JobState, Name, NodeId, Result, SchemaProblem, StoreError, StoreErrorKind,
};

use crate::sabotage::{Sabotage, Sabotaged};

#[async_trait]
impl QueueStore for Sabotaged {
    async fn pause(&self, request: &PauseRequest) -> Result<Changed> {
        let ignored = match request.scope {
            PauseScope::Queue(_) => Sabotage::IgnoresPausedQueues,
            PauseScope::Kind(_) => Sabotage::IgnoresPausedKinds,
        };
        if self.is(ignored) {
            return Ok(Changed::Changed);
        }
        let changed = self.inner.pause(request).await?;
        if changed == Changed::Unchanged && self.is(Sabotage::ReplacesPauses) {
            self.inner.resume(&request.scope).await?;
            self.inner.pause(request).await?;
        }
        Ok(changed)
    }

    async fn resume(&self, scope: &PauseScope) -> Result<Changed> {
        if let PauseScope::Queue(name) = scope
            && self.is(Sabotage::ResumesKindsWithQueues)
        {
            self.inner.resume(&PauseScope::Kind(name.clone())).await?;
        }
        self.inner.resume(scope).await
    }

    async fn pauses(&self) -> Result<Vec<PauseInfo>> {
        let mut pauses = self.inner.pauses().await?;
        if self.is(Sabotage::LosesReasonsOfPauses) {
            for pause in &mut pauses {
                pause.reason = None;
            }
        }
        Ok(pauses)
    }

    async fn queues(&self) -> Result<Vec<QueueInfo>> {
        self.inner.queues().await
    }

    async fn due_routes(&self, within: Duration) -> Result<Vec<DueRoute>> {
        let mut due = self.inner.due_routes(within).await?;
        due.retain(|due| !due.is_paused() || !self.is(Sabotage::LeavesPausedRoutesOut));
        due.retain(|due| due.due_in.is_zero() || !self.is(Sabotage::ListsNoUpcomingRoutes));
        Ok(due)
    }

    async fn count_due(&self, queue: &Name, limit: u64) -> Result<u64> {
        if self.is(Sabotage::CountsWhatIsNotDue) {
            let mut filter = JobFilter::all();
            filter.queue = Some(queue.clone());
            let counts = self.inner.count_jobs(&filter).await?;
            let pending = counts.get(&JobState::Pending);
            return Ok(limit.min(pending.copied().unwrap_or_default()));
        }
        if self.is(Sabotage::CountsBeyondTheLimit) {
            return self.inner.count_due(queue, u64::MAX).await;
        }
        self.inner.count_due(queue, limit).await
    }

    async fn separate_queues(&self, limit: usize) -> Result<u64> {
        if self.is(Sabotage::PausesJobsThatItSeparates) {
            let pending = JobFilter::all().state(JobState::Pending);
            let page = self.inner.list(&pending, &PageRequest::first(1)).await?;
            let jobs = page.jobs.iter().map(|job| job.id).collect();
            let jobs = JobSelector::Ids(jobs);
            self.inner.act(&jobs, JobAction::Pause).await?;
        }
        self.inner.separate_queues(limit).await
    }
}

#[async_trait]
impl NodeStore for Sabotaged {
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply> {
        let mut heartbeat = heartbeat.clone();
        if self.is(Sabotage::LetsLabelsBeShared) {
            heartbeat.label = Name::new("label", heartbeat.node.to_string()).expect(
                "a UUID should be a valid \
                 name",
            );
        }
        if self.is(Sabotage::TakesNoKindsForSilence) {
            let kinds = &mut heartbeat.profile.kinds;
            *kinds = kinds.take().filter(|kinds| !kinds.is_empty());
        }
        if self.is(Sabotage::LosesTotals) {
            heartbeat.load.totals = None;
        }
        let mut reply = self.inner.heartbeat(&heartbeat).await?;
        if self.is(Sabotage::ForgetsWhenNodesWereSeen) {
            reply.previous = None;
        }
        if self.is(Sabotage::KeepsCancelsFromHeartbeats) {
            let kept = |claim: &OwnedClaim| OwnedClaim::new(claim.token, false);
            reply.claims = reply.claims.iter().map(kept).collect();
        }
        if self.is(Sabotage::ListsOnlyClaimsToCancel) {
            reply.claims.retain(|claim| claim.cancel_requested);
        }
        if self.is(Sabotage::ListsTheClaimsOfOtherNodes) {
            let running = JobFilter::all().state(JobState::Running);
            let page = self.inner.list(&running, &PageRequest::first(500)).await?;
            let claim = |job: &JobRecord| {
                let token = Claim::of(job).token;
                OwnedClaim::new(token, job.cancel_requested)
            };
            reply.claims = page.jobs.iter().map(claim).collect();
        }
        if self.is(Sabotage::ListsClaimsAsTheyCome) {
            reply.claims.reverse();
        }
        if self.is(Sabotage::HidesTheOtherNodes) {
            reply.alone = true;
        }
        if self.is(Sabotage::RevivesDeadNodes) {
            reply.status = heartbeat.status;
        }
        Ok(reply)
    }

    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed> {
        self.inner.set_node_status(node, status).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.inner.nodes().await
    }

    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        let mut sweep = sweep.clone();
        sweep.guard = self.weakened(sweep.guard).await?;
        sweep.clock = self.believed(sweep.clock);
        let swept = self.sweep(&sweep).await?;
        match swept {
            Guarded::Done(mut swept) if self.is(Sabotage::ForgetsOwnersOfClaimsToCancel) => {
                swept.forgotten += self.running(|job| job.cancel_requested).await?;
                Ok(Guarded::Done(swept))
            }
            swept => Ok(swept),
        }
    }

    async fn database_time(&self) -> Result<Timestamp> {
        if self.is(Sabotage::ReadsTheProcessClock) {
            return Ok(time::wall_clock());
        }
        self.inner.database_time().await
    }
}

impl Sabotaged {
    /// Returns how far the sabotaged pass trusts the clock.
    pub(crate) fn believed(&self, clock: ClockTrust) -> ClockTrust {
        match self.how {
            Sabotage::AgesAcrossSteps => clock.stepped_back(Duration::MAX),
            Sabotage::TrustsEveryTime => clock.until(Timestamp::MAX_UTC),
            _ => clock,
        }
    }

    /// Returns the guard that the inner store checks: weakened by the sabotage, or `None` if the
    /// sabotage ignores guards.
    pub(crate) async fn weakened(&self, guard: Option<Guard>) -> Result<Option<Guard>> {
        let Some(mut guard) = guard.filter(|_| !self.is(Sabotage::IgnoresGuards)) else {
            return Ok(None);
        };
        if self.is(Sabotage::ChecksOnlyTheOwnerOfAGuard)
            && let Some(lock) = self.inner.inspect(&guard.lock).await?
        {
            guard.fence = lock.fence;
        }
        Ok(Some(guard))
    }

    /// Converts the fence that this store gave to its caller to the inner store's fence.
    fn inner_fence(&self, name: &Name, fence: Fence) -> Fence {
        let given = self.memory().fences.get(name).copied();
        given
            .filter(|_| self.is(Sabotage::ReusesFences) || self.is(Sabotage::CountsFences))
            .unwrap_or(fence)
    }
}

#[async_trait]
impl LockStore for Sabotaged {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired> {
        let ttl = match self.how {
            Sabotage::LetsLocksNeverExpire => ttl * 1_000,
            Sabotage::LetsLocksExpireEarly => (ttl / 2).max(Duration::from_millis(1)),
            _ => ttl,
        };
        if self.is(Sabotage::ChecksLocksBeforeItTakesThem) {
            let found = self.inner.inspect(name).await?;
            if found.is_none_or(|lock| lock.holder.is_none()) {
                self.let_another_look(name).await;
                if let Some(lock) = self.inner.inspect(name).await?
                    && let Some(holder) = lock.holder
                {
                    self.inner.release(name, &holder.owner, lock.fence).await?;
                }
            }
        }
        let acquired = self.inner.acquire(name, owner, ttl).await?;
        if let Acquired::Acquired { fence } = acquired
            && self.is(Sabotage::ReusesFences)
        {
            self.memory().fences.insert(name.clone(), fence);
            return Ok(Acquired::Acquired { fence: Fence(1) });
        }
        if let Acquired::Acquired { fence } = acquired
            && self.is(Sabotage::CountsFences)
        {
            let mut memory = self.memory();
            let again = memory.fences.insert(name.clone(), fence) == Some(fence);
            let given = memory.fences_given.entry(name.clone()).or_default();
            *given += u64::from(!again);
            return Ok(Acquired::Acquired {
                fence: Fence(*given),
            });
        }
        Ok(acquired)
    }

    async fn renew(
        &self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Fenced> {
        let fence = self.inner_fence(name, fence);
        let renewed = self.inner.renew(name, owner, fence, ttl).await?;
        Ok(match self.how {
            Sabotage::RenewsWhatIsLost => Fenced::Applied,
            _ => renewed,
        })
    }

    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced> {
        if self.is(Sabotage::LetsAnyoneRelease)
            && let Some(lock) = self.inner.inspect(name).await?
            && let Some(holder) = lock.holder
        {
            return self.inner.release(name, &holder.owner, lock.fence).await;
        }
        let fence = self.inner_fence(name, fence);
        self.inner.release(name, owner, fence).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>> {
        let mut found = self.inner.inspect(name).await?;
        if let Some(lock) = &mut found
            && lock.holder.is_none()
            && self.is(Sabotage::ForgetsThatLocksWereReleased)
        {
            lock.expired_for = Some(lock.expired_for.unwrap_or_default());
        }
        Ok(found)
    }

    async fn list_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, LockInfo)>> {
        let after = after.filter(|_| !self.is(Sabotage::IgnoresCursors));
        let spoiled = self.memory().spoiled_lock.clone();
        if let Some(spoiled) = spoiled {
            if self.is(Sabotage::StumblesOverSpoiledLocks) {
                return Err(StoreError::new(StoreErrorKind::Corrupt, "list_locks"));
            }
            let places = match self.how {
                Sabotage::LetsSpoiledLocksTakePlaces => limit,
                _ => MAX_BATCH,
            };
            let mut locks = self.inner.list_locks(after, places).await?;
            locks.retain(|(name, _)| *name != spoiled);
            locks.truncate(limit);
            return Ok(locks);
        }
        if self.is(Sabotage::ListsLocksByTheirUnits) {
            let units = |name: &Name| name.as_str().encode_utf16().collect::<Vec<u16>>();
            let mut locks = self.inner.list_locks(None, MAX_BATCH).await?;
            locks.retain(|(name, _)| after.is_none_or(|after| units(name) > units(after)));
            locks.sort_by_cached_key(|(name, _)| units(name));
            locks.truncate(limit);
            return Ok(locks);
        }
        let mut locks = self.inner.list_locks(after, limit).await?;
        let held_only = self.is(Sabotage::ListsHeldLocksOnly);
        locks.retain(|(_, lock)| lock.holder.is_some() || !held_only);
        Ok(locks)
    }
}

#[async_trait]
impl VersionStore for Sabotaged {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>> {
        if self.is(Sabotage::ReadsVersionsBeforeItBumps) {
            let before = self.inner.versions(std::slice::from_ref(namespace)).await?[0];
            self.let_another_look(namespace).await;
            self.inner.bump(namespace, guard).await?;
            return Ok(Guarded::Done(before + 1));
        }
        self.inner.bump(namespace, guard).await
    }

    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        self.inner.versions(namespaces).await
    }
}

#[async_trait]
impl DiagnosticStore for Sabotaged {
    async fn findings(&self) -> Result<Vec<Finding>> {
        let mut findings = self.inner.findings().await?;
        if self.memory().spoiled_schema {
            if self.is(Sabotage::EndsAtALookThatFails) {
                let kind = StoreErrorKind::SchemaMismatch(SchemaProblem::Altered);
                return Err(StoreError::new(kind, "findings"));
            }
            findings.extend([
                Finding::not_seen("the migrations", "there are none"),
                Finding::missing("migrations"),
            ]);
            Finding::sort(&mut findings);
        }
        match self.how {
            Sabotage::LooksByWriting => {
                let config = Name::new("namespace", "config")?;
                self.inner.bump(&config, None).await?;
            }
            Sabotage::CriesWolf => findings.insert(0, Finding::missing("jobs_claim")),
            Sabotage::ListsFindingsAsTheyCome => {
                let late = Finding::new(
                    "late",
                    Severity::Warning,
                    "this finding is worse than the \
                     first",
                );
                findings.push(late);
            }
            _ => {}
        }
        Ok(findings)
    }
}
