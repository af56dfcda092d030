//! Sabotages copied from independently written mutants that no case had caught at first.

use std::collections::BTreeMap;

use ratchet_core::model::*;
use ratchet_core::rate::MICROS;
use ratchet_core::store::{JobStore, NodeStore, RateStore, RecurringStore, SignalStore};
use ratchet_core::{
    JobAction, JobId, JobRecord, JobState, Json, Name, NewJob, Priority, Result, Route, time,
};

use crate::sabotage::{Sabotage, Sabotaged};

/// The sabotages of this module, each with the case that catches it.
pub(crate) const CATCHES: &[(Sabotage, &str)] = &[
    (
        Sabotage::RequeuesWithoutTheSignal,
        "signal::a_requeued_job_waits_anew_for_a_signal_that_did_not_come",
    ),
    (
        Sabotage::MergesOneChunkOfEachStream,
        "order::many_jobs_of_two_priorities_are_claimed_in_order",
    ),
    (
        Sabotage::KeepsRefusedCallsOfGroups,
        "errors::a_refused_call_among_others_at_once_leaves_nothing",
    ),
    (
        Sabotage::LeavesNotes,
        "purge::an_id_that_is_enqueued_again_knows_nothing_of_its_former_life",
    ),
    (
        Sabotage::LeavesSignals,
        "purge::an_id_that_is_enqueued_again_has_no_links_and_no_signal_of_before",
    ),
    (
        Sabotage::ArchivesParentsOfRunningChildren,
        "archive::a_parent_is_not_archived_while_a_child_runs_or_is_to_run_again",
    ),
    (
        Sabotage::ListsEndedJobsByTheirEnds,
        "page::ended_jobs_are_listed_by_creation_whatever_the_order_of_their_ends",
    ),
    (
        Sabotage::ListsTheArchiveByTheEnds,
        "archive::the_archive_is_listed_by_creation_whatever_the_order_of_the_ends",
    ),
    (
        Sabotage::PassesOverWholeMilliseconds,
        "archive::an_unreadable_job_keeps_none_that_ended_in_the_same_millisecond",
    ),
    (
        Sabotage::DecidesOneConditionPerParent,
        "conditions::each_condition_on_one_parent_is_decided_separately",
    ),
    (
        Sabotage::DecidesOneConditionPerParent,
        "conditions::each_condition_on_one_batch_is_decided_when_it_can_be",
    ),
    (
        Sabotage::IgnoresTagsOfBatchesNewestFirst,
        "batch::a_filter_by_batch_and_tag_finds_what_has_both",
    ),
    (
        Sabotage::ForgetsOwnersOfClaimsToCancel,
        "node::a_dead_node_is_remembered_while_a_claim_of_it_is_to_be_cancelled",
    ),
    (
        Sabotage::HidesWhatComesAfterAPause,
        "recurring::the_hint_is_for_the_first_that_is_neither_paused_nor_claimed",
    ),
    (
        Sabotage::TakesTheLastSlotOfEveryFiring,
        "recurring_fire::the_last_slot_stays_when_a_firing_has_no_later_one",
    ),
    (
        Sabotage::EditsWhatItCannotRead,
        "recurring::a_put_over_an_unreadable_definition_starts_afresh",
    ),
    (
        Sabotage::ForgetsRatesEarly,
        "rate::a_key_is_kept_until_the_millisecond_it_is_as_if_unused",
    ),
    (
        Sabotage::PurgesInPieces,
        "purge::a_purge_deletes_as_many_as_asked_while_there_are_so_many",
    ),
    (
        Sabotage::PurgesOneBatchLess,
        "batch::as_many_batches_are_purged_as_asked_while_there_are_so_many",
    ),
    (
        Sabotage::LooksAtTheFrontOnly,
        "page::unfinished_jobs_with_many_ended_ones_between_are_listed",
    ),
    (
        Sabotage::LetsTheSecondOfALanePass,
        "lane::the_second_job_of_a_lane_waits_for_the_first_whatever_that_does",
    ),
    (
        Sabotage::ResumesHeadsOnCancel,
        "lane::a_cancel_in_a_lane_leaves_its_paused_head_paused",
    ),
    (
        Sabotage::LosesCancelledJobsNewestFirst,
        "page::a_filter_lists_exactly_what_it_matches",
    ),
    (
        Sabotage::TrustsCachedRoutes,
        "rewind::no_job_runs_as_another_kind_after_routes_were_lost",
    ),
    (
        Sabotage::LeavesRowsBehind,
        "purge::a_job_that_is_gone_leaves_no_row",
    ),
    (
        Sabotage::LeavesRowsBehind,
        "purge::jobs_of_lanes_and_workflows_that_are_gone_leave_no_row",
    ),
    (
        Sabotage::ForgetsAtRestart,
        "restart::jobs_remain_with_everything_that_is_known_of_them",
    ),
    (Sabotage::ForgetsAtRestart, "restart::unique_keys_remain"),
    (
        Sabotage::ForgetsAtRestart,
        "restart::idempotency_keys_remain",
    ),
    (Sabotage::ForgetsAtRestart, "restart::lanes_remain"),
    (
        Sabotage::ForgetsAtRestart,
        "restart::pauses_versions_and_locks_remain",
    ),
    (
        Sabotage::ForgetsAtRestart,
        "restart::permits_and_their_holders_remain",
    ),
    (Sabotage::ForgetsAtRestart, "restart::used_rates_remain"),
    (
        Sabotage::ForgetsAtRestart,
        "restart::definitions_and_their_claims_remain",
    ),
    (
        Sabotage::ForgetsAtRestart,
        "restart::links_batches_and_waits_remain",
    ),
    (Sabotage::ForgetsAtRestart, "restart::archived_jobs_remain"),
];

/// The number of jobs of one route and priority that the defective claim puts in order.
const CHUNK: usize = 50;

impl Sabotaged {
    /// Enqueues the jobs. If the call is refused while another call arrives, stores the valid jobs
    /// of the refused call, which is the defect.
    pub(crate) async fn enqueue_in_a_group(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        self.come();
        let answers = self.inner.enqueue(jobs).await;
        if answers.is_err() && self.another_comes().await {
            let good = jobs.iter().filter(|job| !job.spec().waits());
            let good: Vec<NewJob> = good.cloned().collect();
            self.inner.enqueue(&good).await?;
        }
        answers
    }

    /// Returns whether this job's lane has exactly one unfinished job, and that job is paused or
    /// running.
    pub(crate) async fn follows_an_idle_head(&self, job: &NewJob) -> Result<bool> {
        let spec = job.spec();
        let jobs = self.everything().await?;
        let in_lane = |other: &&JobRecord| {
            let same = other.spec.lane == spec.lane && other.spec.route.queue == spec.route.queue;
            same && !other.state.is_terminal()
        };
        let mut lane = jobs.iter().filter(in_lane);
        let head = lane.next().map(|head| head.state);
        let idle = matches!(head, Some(JobState::Paused | JobState::Running));
        Ok(spec.lane.is_some() && idle && lane.next().is_none())
    }

    /// Keeps the claim order only within the first [`CHUNK`] jobs of each route and priority, and
    /// moves the other jobs to the end.
    pub(crate) fn merged_once(claimed: Vec<ClaimedJob>) -> Vec<ClaimedJob> {
        let mut streams: BTreeMap<(Route, Priority), usize> = BTreeMap::new();
        let in_first_chunk = |job: &ClaimedJob| {
            let stream = (job.claim.route.clone(), job.claim.priority);
            let read = streams.entry(stream).or_default();
            *read += 1;
            *read <= CHUNK
        };
        let (first, rest): (Vec<_>, Vec<_>) = claimed.into_iter().partition(in_first_chunk);
        first.into_iter().chain(rest).collect()
    }

    /// Acts with the sabotage's defect, or returns `None` if the sabotage does not affect this
    /// action.
    pub(crate) async fn act_wrongly(
        &self,
        jobs: &JobSelector,
        action: JobAction,
    ) -> Result<Option<Vec<Acted>>> {
        let wrong = match action {
            JobAction::Requeue => self.is(Sabotage::RequeuesWithoutTheSignal),
            JobAction::Cancel => self.is(Sabotage::ResumesHeadsOnCancel),
            JobAction::Delete => self.leaves_something(),
            _ => false,
        };
        if !wrong {
            return Ok(None);
        }
        let there = self.mortal().await?;
        let mut acted = self.inner.act(jobs, action).await?;
        self.bury(there).await?;
        for one in &mut acted {
            let Some(job) = self.find(one.job).await? else {
                continue;
            };
            let waits = job.state == JobState::Blocked && job.spec.after.is_empty();
            if action == JobAction::Requeue && waits && job.spec.signal.is_some() {
                let signal = Signal::new(SignalTarget::Job(job.id), Json::from_stored("null"));
                self.inner.deliver(&signal).await?;
                one.outcome = ActionOutcome::Became(JobState::Pending);
            }
            if action == JobAction::Cancel && job.spec.lane.is_some() {
                let all = self.everything().await?;
                let lane = all.iter().filter(|other| other.spec.lane == job.spec.lane);
                let lane = JobSelector::Ids(lane.map(|other| other.id).collect());
                self.inner.act(&lane, JobAction::Resume).await?;
            }
        }
        Ok(Some(acted))
    }

    fn leaves_something(&self) -> bool {
        matches!(
            self.how,
            Sabotage::LeavesNotes | Sabotage::LeavesSignals | Sabotage::LeavesRowsBehind
        )
    }

    /// Returns all jobs if the sabotage keeps data of deleted jobs, and otherwise an empty list.
    pub(crate) async fn mortal(&self) -> Result<Vec<JobRecord>> {
        if self.leaves_something() {
            return self.everything().await;
        }
        Ok(Vec::new())
    }

    /// Remembers the jobs in `there` that were deleted after `there` was read.
    pub(crate) async fn bury(&self, there: Vec<JobRecord>) -> Result<()> {
        for job in there {
            if self.find(job.id).await?.is_none() {
                self.memory().former.insert(job.id, job);
            }
        }
        Ok(())
    }

    /// Adds the data that the sabotage kept of a deleted job to a new job with the same id.
    pub(crate) fn haunt(&self, job: &mut JobRecord) {
        let memory = self.memory();
        let Some(former) = memory.former.get(&job.id) else {
            return;
        };
        match self.how {
            Sabotage::LeavesNotes => job.checkpoint.clone_from(&former.checkpoint),
            Sabotage::LeavesSignals => job.signal.clone_from(&former.signal),
            _ => {}
        }
    }

    /// Returns a wrong page, or `None` if the sabotage lists this filter and order correctly.
    pub(crate) async fn list_wrongly(
        &self,
        filter: &JobFilter,
        page: &PageRequest,
    ) -> Result<Option<JobPage>> {
        let newest = page.order == JobOrder::NewestFirst;
        let mut filter = filter.clone();
        let unfinished = !filter.states.iter().any(|state| state.is_terminal());
        match self.how {
            Sabotage::IgnoresTagsOfBatchesNewestFirst if newest && filter.batch.is_some() => {
                filter.tag = None;
            }
            Sabotage::LosesCancelledJobsNewestFirst if newest && filter.kind.is_some() => {
                filter.states = filter.wanted_states();
                filter.states.retain(|state| *state != JobState::Cancelled);
                if filter.states.is_empty() {
                    return Ok(Some(Self::cut(Vec::new(), page)));
                }
            }
            Sabotage::LooksAtTheFrontOnly if unfinished && !filter.states.is_empty() => {
                let front = PageRequest::first(Among::front(page.limit + 1));
                let front = front.order(page.order).after(page.after);
                let mut front = self.inner.list(&JobFilter::all(), &front).await?.jobs;
                front.retain(|job| filter.matches(job));
                return Ok(Some(Self::cut(front, page)));
            }
            Sabotage::ListsEndedJobsByTheirEnds if !unfinished && filter.states.len() < 3 => {
                let all = PageRequest::first(10_000).order(JobOrder::OldestFirst);
                let mut jobs = self.inner.list(&filter, &all).await?.jobs;
                jobs.sort_by_key(|job| job.finished_at);
                let key = |job: &JobRecord| job.id;
                let jobs = Self::page_of(jobs, page, key);
                return Ok(Some(Self::cut(jobs, page)));
            }
            _ => return Ok(None),
        }
        self.inner.list(&filter, page).await.map(Some)
    }

    /// Returns the items after the page's cursor, in the page's order.
    pub(crate) fn page_of<T>(
        mut all: Vec<T>,
        page: &PageRequest,
        id: impl Fn(&T) -> JobId,
    ) -> Vec<T> {
        if page.order == JobOrder::NewestFirst {
            all.reverse();
        }
        let last = all.iter().position(|one| Some(id(one)) == page.after);
        all.split_off(last.map_or(0, |last| last + 1))
    }

    /// Cuts the jobs to the page's limit. A surplus job means that there is a next page.
    pub(crate) fn cut(mut jobs: Vec<JobRecord>, page: &PageRequest) -> JobPage {
        let next = page.cut(&mut jobs).map(|job| job.id);
        JobPage { jobs, next }
    }

    /// Returns how many running jobs satisfy `wanted`.
    pub(crate) async fn running(&self, wanted: impl Fn(&JobRecord) -> bool) -> Result<u64> {
        let jobs = self.everything().await?;
        let running = jobs.iter().filter(|job| job.state == JobState::Running);
        Ok(running.filter(|job| wanted(job)).count() as u64)
    }

    /// Copies to each link the state of the child's first link to the same parent.
    pub(crate) fn decide_once(links: &mut [Link]) {
        for place in 1..links.len() {
            let (before, rest) = links.split_at_mut(place);
            let parent = rest[0].after.parent();
            if let Some(first) = before.iter().find(|one| one.after.parent() == parent) {
                rest[0].state = first.state;
            }
        }
    }

    /// Puts a definition whose stored row is unreadable. A correct store replaces the row; the
    /// sabotage edits it as if it were readable.
    pub(crate) async fn put_over_spoiled(&self, put: &PutRecurring) -> Result<PutOutcome> {
        let name = put.definition.name();
        self.memory().spoiled_definitions.remove(name);
        if self.is(Sabotage::EditsWhatItCannotRead) {
            return self.inner.put(put).await;
        }
        self.inner.delete(name).await?;
        self.inner.put(put).await?;
        Ok(PutOutcome::Changed)
    }

    /// Records which definitions lose their last slot: those whose newest firing has no jobs.
    pub(crate) fn take_last_slots(&self, firings: &[RecurringFiring]) {
        let mut memory = self.memory();
        for firing in firings {
            let name = &firing.token.name;
            if firing.last_slot().is_none() {
                memory.without_slot.insert(name.clone());
            } else {
                memory.without_slot.remove(name);
            }
        }
    }

    /// Forgets rate keys that become idle only a millisecond later.
    pub(crate) async fn forget_early(&self, limit: usize) -> Result<u64> {
        self.inner.forget_idle(limit).await?;
        let soon = time::to_millis(self.inner.database_time().await?) + 1;
        let mut memory = self.memory();
        let is_idle = |(_, tat): &(&Name, &i64)| **tat <= soon * MICROS;
        let idle = memory.rates.iter().filter(is_idle);
        let idle: Vec<Name> = idle.map(|(key, _)| key.clone()).take(limit).collect();
        for key in &idle {
            memory.rates.remove(key);
        }
        Ok(idle.len() as u64)
    }
}
