//! Stores with a defect in the calls on jobs.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::*;
use ratchet_core::store::{JobStore, NodeStore};
use ratchet_core::{
    Aging, ClaimToken, Enqueued, InvalidInput, JobAction, JobId, JobRecord, JobState, Name, NewJob,
    NodeId, OnConflict, Result, Selection, StoreError, limits, time,
};

use crate::sabotage::{Sabotage, Sabotaged};

impl Sabotaged {
    pub(crate) async fn everything(&self) -> Result<Vec<JobRecord>> {
        let page = PageRequest::first(10_000).order(JobOrder::OldestFirst);
        Ok(self.inner.list(&JobFilter::all(), &page).await?.jobs)
    }

    pub(crate) async fn find(&self, job: JobId) -> Result<Option<JobRecord>> {
        Ok(self.inner.get(&[job], Detail::Whole).await?.remove(0))
    }

    /// Returns the token of the current claim of the job that `token` names, or `token` if the job
    /// is gone.
    async fn present(&self, token: ClaimToken) -> Result<ClaimToken> {
        let job = self.find(token.job).await?;
        Ok(job.map_or(token, |job| Claim::of(&job).token))
    }

    async fn enqueue_one(&self, job: &NewJob) -> Result<Enqueued> {
        let now = time::to_millis(self.inner.database_time().await?);
        let spec = job.spec();
        let fresh = || format!("fresh {}", JobId::new());
        if let Some(answer) = self.memory().replaced.get(&job.id()) {
            return Ok(*answer);
        }
        if let Some(holder) = self.unique_holder(job).await? {
            return Ok(Enqueued::Duplicate(holder));
        }
        if let Some(expiry) = job.resolve_expiry(now) {
            self.memory().expiries.insert(job.id(), expiry);
        }
        let job = match self.how {
            Sabotage::TruncatesTimesToSeconds => {
                let due = job.due().resolve(now) / 1_000 * 1_000;
                job.clone().run_at(time::from_millis(due))
            }
            Sabotage::KeepsKeysForEver if job.key_lifetime().is_some() => {
                job.clone().unique_for(limits::MAX_DELAY)
            }
            Sabotage::FreesKeysEarly => match job.key_lifetime() {
                Some(lifetime) => job
                    .clone()
                    .unique_for(lifetime.saturating_sub(Duration::from_millis(1))),
                None => job.clone(),
            },
            Sabotage::ExpiresJobsEarly => match job.expiry() {
                Some(RunAt::In(expiry)) => {
                    let early = expiry.saturating_sub(Duration::from_millis(1));
                    job.clone().expires_in(early)
                }
                _ => job.clone(),
            },
            Sabotage::KeepsExpiriesOfHolders if job.changes_holder() => {
                job.clone().expires_in(limits::MAX_DELAY)
            }
            Sabotage::KeepsPayloads => job.clone().on_conflict(OnConflict::Keep),
            Sabotage::DebouncesWithoutEnd if job.changes_holder() => match job.conflict() {
                OnConflict::Debounce { .. } => job.clone().on_conflict(OnConflict::Debounce {
                    max_delay: limits::MAX_DELAY,
                }),
                _ => job.clone(),
            },
            Sabotage::ForgetsToRestart if job.conflict() == OnConflict::Restart => {
                job.clone().on_conflict(OnConflict::Replace)
            }
            Sabotage::RestartsOnReplace if job.conflict() == OnConflict::Replace => {
                job.clone().on_conflict(OnConflict::Restart)
            }
            Sabotage::IgnoresDueTimes => job.clone().delay(Duration::ZERO),
            Sabotage::SharesOneFairKey if spec.fair_key.is_some() => job.clone().fair_key("one"),
            Sabotage::ForgetsFairWeights => match &spec.fair_key {
                Some(key) => job.clone().fair_key(key.name().as_str()),
                None => job.clone(),
            },
            Sabotage::ForgetsPayloadVersions => job.clone().payload_version(1),
            Sabotage::DeliversLateSignals => Self::patient(job),
            Sabotage::TrustsCachedRoutes => {
                let memory = &mut *self.memory();
                memory
                    .cached
                    .entry(spec.route.kind.clone())
                    .or_insert_with(|| {
                        memory.routes.push(spec.route.kind.clone());
                        memory.routes.len() - 1
                    });
                job.clone()
            }
            Sabotage::LetsClosedBatchesGrow => self.squeezed_in(job).await?,
            // The defect: every job gets its own lane.
            Sabotage::IgnoresLanes if spec.lane.is_some() => job.clone().lane(&fresh()),
            Sabotage::LetsTheSecondOfALanePass if self.follows_an_idle_head(job).await? => {
                job.clone().lane(&fresh())
            }
            Sabotage::NeverFreesUniqueKeys => {
                if let Some(key) = &spec.unique_key {
                    let first = *self.memory().keys.entry(key.clone()).or_insert(job.id());
                    if first != job.id() {
                        return Ok(Enqueued::Duplicate(first));
                    }
                }
                job.clone()
            }
            Sabotage::ChecksKeysBeforeItInserts => {
                let Some(key) = &spec.idempotency_key else {
                    return Ok(self.inner.enqueue(std::slice::from_ref(job)).await?[0]);
                };
                let first = self.memory().keys.get(key).copied();
                if let Some(first) = first {
                    return Ok(Enqueued::Duplicate(first));
                }
                self.let_another_look(key).await;
                self.memory().keys.insert(key.clone(), job.id());
                job.clone().idempotency_key(&fresh())
            }
            _ => job.clone(),
        };
        let answer = self.inner.enqueue(std::slice::from_ref(&job)).await?[0];
        if let (Sabotage::TakesTurnsAway, Enqueued::Replaced(holder)) = (self.how, answer) {
            self.take_turn_away(&JobSelector::Ids(vec![holder])).await?;
        }
        if self.is(Sabotage::ReplacesOnce) && matches!(answer, Enqueued::Replaced(_)) {
            self.memory().replaced.insert(job.id(), answer);
        }
        let Enqueued::Duplicate(first) = answer else {
            return Ok(answer);
        };
        let first = self.find(first).await?;
        let again = match (self.how, first) {
            (Sabotage::LetsDuplicatesTakePlaces, _) => {
                let mut place = NewJob::new("place", &()).queue(spec.route.queue.as_str());
                if let Some(lane) = &spec.lane {
                    place = place.lane(lane.as_str());
                }
                self.inner.enqueue(&[place]).await?;
                return Ok(answer);
            }
            (Sabotage::ForgetsIdempotencyKeysOnPurge, None) => job.idempotency_key(&fresh()),
            (Sabotage::FreesUniqueKeysOnClaim, Some(first))
                if first.state == JobState::Running && first.spec.unique_key.is_some() =>
            {
                job.unique_key(&fresh())
            }
            _ => return Ok(answer),
        };
        Ok(self.inner.enqueue(&[again]).await?[0])
    }

    pub(crate) async fn blocked(&self) -> Result<Vec<JobId>> {
        let jobs = self.everything().await?;
        let blocked = jobs.iter().filter(|job| job.state == JobState::Blocked);
        Ok(blocked.map(|job| job.id).collect())
    }

    /// Pauses the jobs that were blocked before the call, so that those it promoted cannot be
    /// claimed.
    pub(crate) async fn hold_back(&self, blocked: Vec<JobId>) -> Result<()> {
        let selector = JobSelector::Ids(blocked);
        self.inner
            .act(&selector, JobAction::Pause)
            .await
            .map(|_| ())
    }

    /// Takes the turns of pending jobs away.
    async fn take_turn_away(&self, jobs: &JobSelector) -> Result<()> {
        for action in [JobAction::Pause, JobAction::Resume] {
            self.inner.act(jobs, action).await?;
        }
        Ok(())
    }

    async fn required_capabilities(&self) -> Result<Vec<Name>> {
        let jobs = self.everything().await?;
        Ok(jobs
            .into_iter()
            .filter_map(|job| job.spec.route.capability)
            .collect())
    }

    /// Releases claimed jobs that the caller does not receive.
    async fn give_back(&self, jobs: &[ClaimedJob]) -> Result<()> {
        let release = |job: &ClaimedJob| Settlement::new(job.claim.token, Outcome::Released);
        let released: Vec<Settlement> = jobs.iter().map(release).collect();
        self.inner.settle(&released).await.map(|_| ())
    }
}

#[async_trait]
impl JobStore for Sabotaged {
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        if self.is(Sabotage::KeepsRefusedCallsOfGroups) {
            return self.enqueue_in_a_group(jobs).await;
        }
        if self.is(Sabotage::SwallowsBadLinks) {
            let answers = self.inner.enqueue(jobs).await;
            let bad = |error: &StoreError| {
                let field = error.invalid_input().map(InvalidInput::field);
                field.is_some_and(|field| ["parent", "batch"].contains(&field))
            };
            return match answers {
                Err(error) if bad(&error) => {
                    Ok(jobs.iter().map(|job| Enqueued::Created(job.id())).collect())
                }
                answers => answers,
            };
        }
        // A parent may follow its child in the list. A list in which jobs wait is therefore
        // enqueued in one call, without a defect.
        let in_one = jobs.iter().any(|job| job.spec().waits()) && jobs.len() > 1;
        // A job that asks for all or nothing needs the other jobs of its call.
        let asks = jobs.iter().any(NewJob::is_all_or_nothing);
        let asks = asks && !self.is(Sabotage::StoresWhatIsWithheld);
        if self.is(Sabotage::None) || in_one || asks {
            return self.inner.enqueue(jobs).await;
        }
        if !self.is(Sabotage::StoresPartOfABatch) {
            self.look_at_permits(jobs).await?;
        }
        if self.is(Sabotage::TakesEveryRegistryForOld) {
            let label = Name::new("label", "ancient").expect("a name");
            let minute = Duration::from_secs(60);
            let ancient = Heartbeat::new(NodeId::new(), label, NodeStatus::Active, minute);
            self.inner.heartbeat(&ancient).await?;
        }
        if self.is(Sabotage::OrdersLanesByTime) {
            let mut sorted = jobs.to_vec();
            sorted.sort_by_key(NewJob::id);
            let answers = self.inner.enqueue(&sorted).await?;
            let place = |job: &NewJob| sorted.iter().position(|other| other.id() == job.id());
            let answer = |job| place(job).map(|place| answers[place]);
            return Ok(jobs.iter().filter_map(answer).collect());
        }
        let mut answers = Vec::new();
        for job in jobs {
            answers.push(self.enqueue_one(job).await?);
        }
        self.forget_freed(Sabotage::FreesNoPlaceByEnqueues);
        Ok(answers)
    }

    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        let mut asked = request.clone();
        match self.how {
            Sabotage::ExceedsTheLimit => asked.limit += 1,
            Sabotage::IgnoresAging => asked.aging = Aging::OFF,
            Sabotage::ClaimsForInactiveNodes => asked.node = NodeId::new(),
            Sabotage::IgnoresCapabilities => {
                asked.capabilities = self.required_capabilities().await?;
            }
            Sabotage::ClaimsUntaggedJobsUnasked => asked.untagged = true,
            Sabotage::SendsPayloadsUnasked => asked.payloads = true,
            Sabotage::IgnoresExceptions => {
                for names in [&mut asked.queues, &mut asked.kinds] {
                    if matches!(names, Selection::Except(_)) {
                        *names = Selection::All;
                    }
                }
            }
            Sabotage::ClaimsFirstInFirstOut => asked.limit = 10_000,
            Sabotage::ForgetsToFillTheBatch => {
                // The defect: claims the first jobs of any route, and filters them only afterwards.
                asked = ClaimRequest::new(request.node, request.limit)
                    .capabilities(self.required_capabilities().await?);
            }
            Sabotage::CountsPermitsBeforeItClaims => {
                return self.claim_after_counting(&asked).await;
            }
            _ => {}
        }
        let mut claimed = self.inner.claim_next_batch(&asked).await?;
        match self.how {
            Sabotage::ClaimsFirstInFirstOut => {
                claimed.sort_by_key(|job| job.claim.token.job);
                let rest = claimed.split_off(request.limit.min(claimed.len()));
                self.give_back(&rest).await?;
            }
            Sabotage::ForgetsToFillTheBatch => {
                let (own, others): (Vec<ClaimedJob>, Vec<ClaimedJob>) = claimed
                    .into_iter()
                    .partition(|job| job.claim.route.matches(request));
                self.give_back(&others).await?;
                claimed = own;
            }
            Sabotage::ReturnsBatchesOutOfOrder => claimed.reverse(),
            Sabotage::MergesOneChunkOfEachStream => claimed = Self::merged_once(claimed),
            Sabotage::LetsPermitsHoldOthersUp if self.wait_for_permits().await? => {
                let (some, others): (Vec<ClaimedJob>, Vec<ClaimedJob>) = claimed
                    .into_iter()
                    .partition(|job| job.claim.route.permit.is_some());
                self.give_back(&others).await?;
                claimed = some;
            }
            Sabotage::LosesCheckpoints => {
                let inputs = claimed.iter_mut().filter_map(|job| job.input.as_mut());
                inputs.for_each(|input| input.checkpoint = None);
            }
            Sabotage::HidesExpiriesFromClaims => {
                claimed
                    .iter_mut()
                    .for_each(|job| job.claim.expires_at = None);
            }
            Sabotage::SaysThatOthersWait => {
                claimed.iter_mut().for_each(|job| job.claim.awaited = true);
            }
            Sabotage::TrustsCachedRoutes => {
                let memory = self.memory();
                for kind in claimed.iter_mut().map(|job| &mut job.claim.route.kind) {
                    let id = memory.cached.get(kind);
                    if let Some(now) = id.and_then(|id| memory.routes.get(*id)) {
                        *kind = now.clone();
                    }
                }
            }
            Sabotage::ClaimsTwice => {
                let mut memory = self.memory();
                let earlier = std::mem::replace(&mut memory.claimed, claimed.clone());
                if claimed.len() < request.limit {
                    claimed.extend(earlier);
                }
            }
            _ => {}
        }
        Ok(claimed)
    }

    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        self.inner.load_inputs(tokens).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        self.miscount_permits(settlements).await?;
        let mut answers = Vec::new();
        for settlement in settlements {
            let mut settlement = settlement.clone();
            let token = settlement.token;
            if let Some(answer) = self.repeated(token).await? {
                answers.push(answer);
                continue;
            }
            match (self.how, &settlement.outcome) {
                (Sabotage::IgnoresTokensOnSettle, _) => {
                    settlement.token = self.present(token).await?;
                }
                (Sabotage::ComparesNoTimes, _) => {
                    let present = self.present(token).await?;
                    if (present.seq, present.node) == (token.seq, token.node) {
                        settlement.token = present;
                    }
                }
                (Sabotage::ComparesNoNodes, _) => {
                    let present = self.present(token).await?;
                    if present.seq == token.seq {
                        settlement.token = present;
                    }
                }
                (Sabotage::StopsAtTheFirstStaleSettlement, _)
                    if answers.contains(&Fenced::Stale) =>
                {
                    answers.push(Fenced::Stale);
                    continue;
                }
                (Sabotage::AnswersRepeatsAsStale, _) => {
                    if self.memory().settled.contains(&token) {
                        answers.push(Fenced::Stale);
                        continue;
                    }
                    self.memory().settled.push(token);
                }
                (Sabotage::CountsSnoozesAsAttempts, Outcome::Snoozed { delay }) => {
                    let (delay, error) = (*delay, String::new());
                    settlement = Settlement::new(token, Outcome::Retry { delay, error });
                }
                (Sabotage::ForgetsToPromoteAfterSettle, _) => {
                    let blocked = self.blocked().await?;
                    answers.extend(self.inner.settle(&[settlement]).await?);
                    self.hold_back(blocked).await?;
                    continue;
                }
                (Sabotage::CallsBackTwice, _) => {
                    let blocked = self.blocked().await?;
                    answers.extend(self.inner.settle(&[settlement]).await?);
                    self.double(&blocked).await?;
                    continue;
                }
                (Sabotage::PromotesOnRetry, Outcome::Retry { error, .. }) => {
                    let (ids, error) = (vec![token.job], error.clone());
                    let failed = Settlement::new(token, Outcome::Failed { error });
                    answers.extend(self.inner.settle(&[failed]).await?);
                    let selector = JobSelector::Ids(ids);
                    self.inner.act(&selector, JobAction::Requeue).await?;
                    continue;
                }
                (Sabotage::KeepsExpiriesOfBegunJobs, _) => settlement.ran_for = None,
                (Sabotage::BeginsEveryClaimedJob, _) => {
                    settlement = settlement.ran_for(Duration::ZERO);
                }
                (Sabotage::RecordsExpiredAsCancelled, Outcome::Expired) => {
                    settlement = Settlement::new(token, Outcome::Cancelled).without_attempt();
                }
                (Sabotage::RecordsUndeliveredAsReleased, Outcome::Undelivered) => {
                    settlement = Settlement::new(token, Outcome::Released);
                }
                (Sabotage::CountsReleasesAsAttempts, Outcome::Released) => {
                    let (delay, error) = (Duration::ZERO, String::new());
                    settlement = Settlement::new(token, Outcome::Retry { delay, error });
                }
                (Sabotage::KeepsResultsOfCancelledRuns, Outcome::Succeeded { result }) => {
                    self.memory()
                        .results
                        .extend(result.clone().map(|json| (token.job, json)));
                }
                _ => {}
            }
            answers.extend(self.inner.settle(&[settlement]).await?);
        }
        self.forget_freed(Sabotage::FreesNoPlaceBySettlements);
        Ok(answers)
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        let mut reports = reports.to_vec();
        if self.is(Sabotage::IgnoresTokensOnReport) {
            for report in &mut reports {
                report.token = self.present(report.token).await?;
            }
        }
        self.inner.report(&reports).await
    }

    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        let mut asked = request.clone();
        asked.clock = self.believed(asked.clock);
        match self.how {
            Sabotage::ReclaimsLate => asked.dead_after *= 2,
            Sabotage::HoldsSilenceAgainstAll => asked.silence_counts = true,
            Sabotage::TakesLateClaimsInAnOutage if !asked.silence_counts => {
                asked = asked.silence_counts(true).dead_after(Duration::MAX);
            }
            Sabotage::IgnoresTheCrashBudget => asked.max_crashes = u32::MAX,
            _ => {}
        }
        if let Some(given_up) = self.given_up(request.limit).await? {
            return Ok(given_up);
        }
        let blocked = self.blocked().await?;
        let mut lost = self.inner.reclaim(&asked).await?;
        self.forget_freed(Sabotage::FreesNoPlaceByReclaims);
        if self.is(Sabotage::ForgetsToReleaseAfterReclaim) {
            self.hold_back(blocked).await?;
        }
        if self.is(Sabotage::BlamesNobody) {
            lost.iter_mut().for_each(|lost| lost.crash_count = 1);
        }
        if self.is(Sabotage::ReclaimsFromLiveNodes) {
            let now = self.inner.database_time().await?;
            for job in self.everything().await? {
                let old = |at| time::add(at, request.start_timeout) < now;
                if job.claimed_at.is_some_and(old) {
                    let token = Claim::of(&job).token;
                    self.inner
                        .settle(&[Settlement::new(token, Outcome::Released)])
                        .await?;
                    lost.push(Reclaimed::new(token, ReclaimReason::OwnerLost, 1, false));
                }
            }
        }
        self.recounted(request, lost).await
    }

    async fn act(&self, jobs: &JobSelector, action: JobAction) -> Result<Vec<Acted>> {
        if let Some(acted) = self.act_wrongly(jobs, action).await? {
            return Ok(acted);
        }
        if self.is(Sabotage::ForgetsToPromoteAfterCancel) && action == JobAction::Cancel {
            let blocked = self.blocked().await?;
            let acted = self.inner.act(jobs, action).await?;
            self.hold_back(blocked).await?;
            return Ok(acted);
        }
        if self.is(Sabotage::StartsEveryPassAnew)
            && let JobSelector::Matching { after: Some(_), .. } = jobs
        {
            return self.inner.act(&jobs.clone().after(None), action).await;
        }
        if self.is(Sabotage::CountsRequeuedChildrenAgain) && action == JobAction::Requeue {
            let acted = self.inner.act(jobs, action).await?;
            for one in &acted {
                if matches!(one.outcome, ActionOutcome::Became(_)) {
                    let batch = self.find(one.job).await?.and_then(|job| job.spec.batch);
                    self.memory().requeued.extend(batch);
                }
            }
            return Ok(acted);
        }
        if let Some(acted) = self.misanswered(jobs, action).await? {
            return Ok(acted);
        }
        if let JobSelector::Ids(ids) = jobs
            && let [id] = ids[..]
            && let Some(job) = self.find(id).await?
        {
            if self.is(Sabotage::IgnoresCancels) && job.state == JobState::Running {
                let outcome = ActionOutcome::CancelRequested;
                return Ok(vec![Acted { job: id, outcome }]);
            }
            let running = job.state == JobState::Running;
            match (self.how, action) {
                (Sabotage::DeletesRunningJobs, JobAction::Delete) if running => {
                    let token = Claim::of(&job).token;
                    let end = Settlement::new(token, Outcome::Cancelled);
                    self.inner.settle(&[end]).await?;
                }
                (Sabotage::ReschedulesEndedJobs, JobAction::Reschedule(_)) => {
                    self.inner.act(jobs, JobAction::Requeue).await?;
                }
                (
                    Sabotage::TakesTurnsAway,
                    JobAction::SetPriority(_) | JobAction::Reschedule(_),
                ) => self.take_turn_away(jobs).await?,
                (Sabotage::SetsPrioritiesOfWaitingJobsOnly, JobAction::SetPriority(_))
                    if running =>
                {
                    let outcome = ActionOutcome::Changed;
                    return Ok(vec![Acted { job: id, outcome }]);
                }
                _ => {}
            }
            if self.is(Sabotage::RequeuesWithoutTheKey) && action == JobAction::Requeue {
                let outcome = ActionOutcome::Became(JobState::Pending);
                return Ok(vec![Acted { job: id, outcome }]);
            }
        }
        let acted = self.inner.act(jobs, action).await;
        self.forget_freed(Sabotage::FreesNoPlaceByActions);
        acted
    }

    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>> {
        let detail = match self.how {
            Sabotage::ShowsWholeJobsInOutlines => Detail::Whole,
            _ => detail,
        };
        let mut jobs = self.inner.get(ids, detail).await?;
        jobs.iter_mut().flatten().for_each(|job| self.haunt(job));
        if self.is(Sabotage::ForgetsWhyJobsExpired) {
            let cancelled = jobs.iter_mut().flatten();
            let cancelled = cancelled.filter(|job| job.state == JobState::Cancelled);
            cancelled.for_each(|job| job.expires_at = None);
        }
        if self.is(Sabotage::KeepsResultsOfCancelledRuns) {
            for job in jobs.iter_mut().flatten() {
                job.result = self.memory().results.get(&job.id).cloned();
            }
        }
        Ok(jobs)
    }

    async fn list(&self, filter: &JobFilter, page: &PageRequest) -> Result<JobPage> {
        if let Some(page) = self.list_wrongly(filter, page).await? {
            return Ok(page);
        }
        let mut asked = *page;
        if self.is(Sabotage::IgnoresCursors) {
            asked.after = None;
        }
        if self.is(Sabotage::ListsWholeJobsForOutlines) {
            asked.detail = Detail::Whole;
        }
        if self.is(Sabotage::SkipsOneJobPerPage) && page.after.is_some() {
            asked.limit += 1;
            let mut read = self.inner.list(filter, &asked).await?;
            if !read.jobs.is_empty() {
                read.jobs.remove(0);
            }
            return Ok(read);
        }
        if self.is(Sabotage::PagesByOffset) {
            let number = {
                let mut memory = self.memory();
                memory.pages = if page.after.is_some() {
                    memory.pages + 1
                } else {
                    0
                };
                memory.pages
            };
            let all = PageRequest::first(10_000).order(page.order);
            let mut read = self.inner.list(filter, &all).await?;
            let from = (number * page.limit).min(read.jobs.len());
            return Ok(Self::cut(read.jobs.split_off(from), page));
        }
        if self.is(Sabotage::IgnoresCaseOfTags)
            && let Some(tag) = &filter.tag
        {
            let mut without = filter.clone();
            without.tag = None;
            let all = PageRequest::first(10_000).order(page.order);
            let mut read = self.inner.list(&without, &all.after(page.after)).await?;
            read.jobs.retain(|job| {
                let mut tags = job.spec.tags.iter();
                tags.any(|other| other.as_str().eq_ignore_ascii_case(tag.as_str()))
            });
            return Ok(Self::cut(read.jobs, page));
        }
        self.inner.list(filter, &asked).await
    }

    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        let from = match self.how {
            Sabotage::ActsInWhateverState => &JobState::ALL,
            _ => from,
        };
        self.inner.act_on(jobs, from, action).await
    }

    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>> {
        let mut asked = *page;
        if self.is(Sabotage::SelectsFromTheBeginning) {
            asked.after = None;
        }
        self.inner.select(filter, &asked).await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts> {
        self.inner.count_jobs(filter).await
    }

    async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        let mut history = self.inner.history(job).await?;
        if self.is(Sabotage::KeepsOnlyTheLastAttempt) && !history.is_empty() {
            history.drain(..history.len() - 1);
        }
        self.named(&mut history);
        Ok(history)
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        let mut asked = request.clone();
        if self.is(Sabotage::PurgesTooYoung) {
            asked.older_than = Duration::ZERO;
        }
        if self.is(Sabotage::PurgesInPieces) {
            asked.limit = asked.limit.min(500);
        }
        asked.guard = self.weakened(asked.guard).await?;
        let there = self.mortal().await?;
        let purged = self.inner.purge(&asked).await?;
        self.bury(there).await?;
        Ok(purged)
    }

    async fn expire_jobs(&self, limit: usize) -> Result<Vec<JobId>> {
        match self.how {
            Sabotage::NeverExpiresJobs => Ok(Vec::new()),
            Sabotage::ExpiresTooManyJobs => self.inner.expire_jobs(limit + 1).await,
            Sabotage::ExpiresBegunJobs => self.expire_where(limit, |job| job.claim_seq > 0).await,
            Sabotage::ExpiresOnlyPendingJobs => {
                let now = self.inner.database_time().await?;
                let mut late = self.everything().await?;
                late.retain(|job| {
                    let is_late = job.expires_at.is_some_and(|expiry| expiry <= now);
                    is_late && job.state == JobState::Pending
                });
                let late: Vec<JobId> = late.iter().map(|job| job.id).collect();
                let selector = JobSelector::Ids(late.clone());
                self.inner.act(&selector, JobAction::Cancel).await?;
                Ok(late)
            }
            Sabotage::ExpiresRequeuedJobs => {
                self.expire_where(limit, |job| job.claim_seq == 1 && job.attempts == 0)
                    .await
            }
            _ => {
                let expired = self.inner.expire_jobs(limit).await;
                self.forget_freed(Sabotage::FreesNoPlaceByExpiries);
                expired
            }
        }
    }
}

impl Sabotaged {
    /// Ends the expired jobs, and cancels the pending jobs that have lost their expiry and that
    /// `also` selects.
    async fn expire_where(
        &self,
        limit: usize,
        also: impl Fn(&JobRecord) -> bool,
    ) -> Result<Vec<JobId>> {
        let mut expired = self.inner.expire_jobs(limit).await?;
        let now = time::to_millis(self.inner.database_time().await?);
        let mut late = self.everything().await?;
        late.retain(|job| {
            let expiry = self.memory().expiries.get(&job.id).copied();
            let late = expiry.is_some_and(|expiry| is_expired(expiry, now));
            late && job.state == JobState::Pending && also(job)
        });
        let late: Vec<JobId> = late.iter().map(|job| job.id).collect();
        let selector = JobSelector::Ids(late.clone());
        self.inner.act(&selector, JobAction::Cancel).await?;
        expired.extend(late);
        Ok(expired)
    }
}
