//! Stores that give wrong answers in rare situations: repeated calls, given-up claims, and jobs
//! that are duplicates by two keys.

use std::collections::HashMap;
use std::time::Duration;

use ratchet_core::model::*;
use ratchet_core::store::{JobStore, NodeStore};
use ratchet_core::{ClaimToken, JobAction, JobId, JobRecord, JobState, NewJob, NodeId, Result};

use crate::sabotage::{Sabotage, Sabotaged};

/// The sabotages of this module, each with the case that catches it.
pub(crate) const CATCHES: &[(Sabotage, &str)] = &[
    (
        Sabotage::LooksAtUniqueKeysFirst,
        "keys::the_idempotency_key_is_looked_at_before_the_unique_key",
    ),
    (
        Sabotage::StoresWhatIsWithheld,
        "keys::a_duplicate_that_asks_for_all_or_nothing_keeps_the_others_away",
    ),
    (
        Sabotage::StoresWhatIsWithheld,
        "keys::a_withheld_job_takes_no_place_in_its_lane",
    ),
    (
        Sabotage::KeepsKeysForEver,
        "keys::an_idempotency_key_with_a_lifetime_is_free_at_its_end",
    ),
    (
        Sabotage::KeepsKeysForEver,
        "keys::of_many_racers_with_a_key_that_is_free_again_one_creates",
    ),
    (
        Sabotage::FreesKeysEarly,
        "keys::an_idempotency_key_with_a_lifetime_is_free_at_its_end",
    ),
    (
        Sabotage::KeepsPayloads,
        "conflict::a_waiting_job_gets_the_new_payload_and_keeps_everything_else",
    ),
    (
        Sabotage::KeepsPayloads,
        "conflict::a_claim_has_the_new_payload_and_no_notes_of_the_old_one",
    ),
    (
        Sabotage::DebouncesWithoutEnd,
        "conflict::a_debounced_job_is_due_after_the_last_enqueue_up_to_its_maximum",
    ),
    (
        Sabotage::ForgetsToRestart,
        "conflict::a_restart_cancels_the_running_job_and_then_the_new_one_runs",
    ),
    (
        Sabotage::RestartsOnReplace,
        "conflict::after_a_running_job_the_new_one_runs",
    ),
    (
        Sabotage::ReplacesOnce,
        "conflict::a_repeated_enqueue_that_replaced_a_payload_replaces_it_again",
    ),
    (
        Sabotage::ForgetsIdempotencyKeysOnPurge,
        "keys::a_purged_job_that_is_enqueued_again_is_a_duplicate_of_itself",
    ),
    (
        Sabotage::TakesUnknownPermitsOfDuplicates,
        "permit::an_unknown_permit_is_refused_even_if_its_job_is_a_duplicate",
    ),
    (
        Sabotage::ForgetsEndsAtTheNextClaim,
        "token::an_end_told_again_is_applied_until_the_next_claim_is_settled",
    ),
    (
        Sabotage::RemembersEveryEnd,
        "token::an_end_told_again_is_applied_until_the_next_claim_is_settled",
    ),
    (
        Sabotage::RevivesGivenUpJobs,
        "given_up::a_claim_that_was_given_up_stays_so_if_a_later_pass_allows_more_crashes",
    ),
    (
        Sabotage::SparesReportedClaims,
        "given_up::a_report_on_a_claim_that_was_given_up_is_kept_and_saves_it_from_no_pass",
    ),
    (
        Sabotage::NamesSomeNode,
        "given_up::the_history_of_a_claim_that_was_given_up_names_no_node",
    ),
    (
        Sabotage::ReturnsGivenUpClaimsFirst,
        "given_up::claims_that_were_given_up_keep_no_others_waiting",
    ),
    (
        Sabotage::ReturnsLostClaimsAsTheyCome,
        "reclaim::lost_claims_are_returned_in_order_of_their_tokens",
    ),
    (
        Sabotage::ActsOnEachIdOnce,
        "act::an_id_that_is_given_twice_is_acted_on_twice",
    ),
    (
        Sabotage::ActsOnEachIdOnce,
        "act::a_dead_letter_that_is_given_twice_takes_its_key_once",
    ),
    (
        Sabotage::HidesTakenKeys,
        "act::jobs_whose_key_is_taken_count_and_hold_no_pass_up",
    ),
    (
        Sabotage::KeepsTheNewlyDead,
        "node::a_node_that_was_silent_for_long_dies_and_is_forgotten_in_one_pass",
    ),
    (
        Sabotage::ListsTheDeadAsTheyCome,
        "node::nodes_that_die_in_one_pass_are_listed_in_order_of_their_ids",
    ),
    (
        Sabotage::ListsClaimsAsTheyCome,
        "cancel::one_heartbeat_tells_of_many_cancels",
    ),
];

impl Sabotaged {
    /// Returns the unfinished job that has this job's unique key, or `None` if the sabotage does
    /// not check unique keys first.
    pub(crate) async fn unique_holder(&self, job: &NewJob) -> Result<Option<JobId>> {
        let key = job.spec().unique_key.as_ref();
        let Some(key) = key.filter(|_| self.is(Sabotage::LooksAtUniqueKeysFirst)) else {
            return Ok(None);
        };
        let jobs = self.everything().await?;
        let holds = |job: &&JobRecord| {
            !job.state.is_terminal() && job.spec.unique_key.as_ref() == Some(key)
        };
        Ok(jobs.iter().find(holds).map(|job| job.id))
    }

    /// Returns whether a stored job has one of this job's keys.
    pub(crate) async fn is_duplicate(&self, job: &NewJob) -> Result<bool> {
        let (once, unique) = (&job.spec().idempotency_key, &job.spec().unique_key);
        let jobs = self.everything().await?;
        Ok(jobs.iter().any(|stored| {
            let spec = &stored.spec;
            once.is_some() && spec.idempotency_key == *once
                || unique.is_some() && spec.unique_key == *unique
        }))
    }

    /// Returns the sabotage's answer to a settlement that was sent before, or `None` if the inner
    /// store is to answer.
    pub(crate) async fn repeated(&self, token: ClaimToken) -> Result<Option<Fenced>> {
        let answer = match self.how {
            Sabotage::ForgetsEndsAtTheNextClaim => Fenced::Stale,
            Sabotage::RemembersEveryEnd => Fenced::Applied,
            _ => return Ok(None),
        };
        let job = self.find(token.job).await?;
        let running = job.filter(|job| job.state == JobState::Running);
        let present = running.map(|job| Claim::of(&job).token);
        let known = self.memory().settled.contains(&token);
        self.memory().settled.push(token);
        let late = answer == Fenced::Applied || present.is_some_and(|present| present != token);
        Ok((known && late).then_some(answer))
    }

    /// Returns `limit` given-up claims, those of running jobs without a node. `None` if there are
    /// fewer, or if the sabotage does not return given-up claims before other lost claims.
    pub(crate) async fn given_up(&self, limit: usize) -> Result<Option<Vec<Reclaimed>>> {
        if !self.is(Sabotage::ReturnsGivenUpClaimsFirst) {
            return Ok(None);
        }
        let mut jobs = self.everything().await?;
        jobs.retain(|job| job.state == JobState::Running && job.node.is_none());
        let given_up = |job: &JobRecord| {
            let token = Claim::of(job).token;
            Reclaimed::new(token, ReclaimReason::OwnerLost, job.crash_count, true)
        };
        let some: Vec<Reclaimed> = jobs.iter().take(limit).map(given_up).collect();
        Ok((some.len() == limit).then_some(some))
    }

    /// Applies the sabotage's defect to the lost claims that the inner store reported.
    pub(crate) async fn recounted(
        &self,
        request: &ReclaimRequest,
        lost: Vec<Reclaimed>,
    ) -> Result<Vec<Reclaimed>> {
        let mut told = Vec::with_capacity(lost.len());
        for mut one in lost {
            if self.is(Sabotage::RevivesGivenUpJobs)
                && one.exhausted
                && one.crash_count <= request.max_crashes
            {
                let back = Settlement::new(one.token, Outcome::Released);
                self.inner.settle(&[back]).await?;
                one.exhausted = false;
            }
            let reported = self.find(one.token.job).await?;
            let reported = reported.is_some_and(|job| job.progress.is_some());
            if !(self.is(Sabotage::SparesReportedClaims) && one.exhausted && reported) {
                told.push(one);
            }
        }
        if self.is(Sabotage::ReturnsLostClaimsAsTheyCome) {
            told.reverse();
        }
        Ok(told)
    }

    /// Fills in a random node for attempts that have none, if the sabotage does that.
    pub(crate) fn named(&self, history: &mut [Attempt]) {
        if self.is(Sabotage::NamesSomeNode) {
            for attempt in history {
                attempt.node = attempt.node.or_else(|| Some(NodeId::new()));
            }
        }
    }

    /// Acts on jobs and returns the sabotage's wrong answers, or `None` if the sabotage does not
    /// affect this action.
    pub(crate) async fn misanswered(
        &self,
        jobs: &JobSelector,
        action: JobAction,
    ) -> Result<Option<Vec<Acted>>> {
        match (self.how, jobs) {
            (Sabotage::ActsOnEachIdOnce, JobSelector::Ids(ids)) => {
                let mut once = ids.clone();
                once.sort();
                once.dedup();
                let acted = self.inner.act(&JobSelector::Ids(once), action).await?;
                let acted: HashMap<JobId, Acted> =
                    acted.into_iter().map(|one| (one.job, one)).collect();
                Ok(Some(ids.iter().map(|id| acted[id]).collect()))
            }
            (Sabotage::HidesTakenKeys, JobSelector::Matching { .. }) => {
                let mut acted = self.inner.act(jobs, action).await?;
                acted.retain(|one| !matches!(one.outcome, ActionOutcome::KeyTaken(_)));
                Ok(Some(acted))
            }
            _ => Ok(None),
        }
    }

    /// Sweeps the nodes, with the defect of the sabotage.
    pub(crate) async fn sweep(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        if self.is(Sabotage::KeepsTheNewlyDead) {
            let mut marks = sweep.clone();
            marks.forget_after = Duration::MAX;
            let marked = self.inner.sweep_nodes(&marks).await?;
            if marked != Guarded::Done(SweptNodes::default()) {
                return Ok(marked);
            }
        }
        let mut swept = self.inner.sweep_nodes(sweep).await?;
        if let Guarded::Done(swept) = &mut swept
            && self.is(Sabotage::ListsTheDeadAsTheyCome)
        {
            swept.died.reverse();
        }
        Ok(swept)
    }
}
