//! Stores with a defect in the expiries of jobs.

use ratchet_core::model::*;
use ratchet_core::store::{JobStore, NodeStore};
use ratchet_core::{JobAction, JobId, JobRecord, JobState, Result, time};

use crate::sabotage::{Sabotage, Sabotaged};

/// Each sabotage of this module, with a case that catches it.
pub(crate) const CATCHES: &[(Sabotage, &str)] = &[
    (
        Sabotage::NeverExpiresJobs,
        "expiry::a_job_that_has_not_begun_ends_at_its_expiry_and_not_before",
    ),
    (
        Sabotage::ExpiresJobsEarly,
        "expiry::a_job_that_has_not_begun_ends_at_its_expiry_and_not_before",
    ),
    (
        Sabotage::ExpiresBegunJobs,
        "expiry::a_job_that_has_begun_never_expires",
    ),
    (
        Sabotage::ExpiresBegunJobs,
        "expiry::a_job_whose_body_was_lost_never_expires",
    ),
    (
        Sabotage::KeepsExpiriesOfBegunJobs,
        "expiry::a_job_that_has_begun_never_expires",
    ),
    (
        Sabotage::BeginsEveryClaimedJob,
        "expiry::a_claim_that_comes_back_without_a_body_leaves_the_expiry",
    ),
    (
        Sabotage::BeginsEveryClaimedJob,
        "expiry::a_claim_that_was_lost_before_its_body_began_leaves_the_expiry",
    ),
    (
        Sabotage::ExpiresOnlyPendingJobs,
        "expiry::a_job_expires_whatever_it_waits_for",
    ),
    (
        Sabotage::ForgetsWhyJobsExpired,
        "expiry::a_job_that_has_not_begun_ends_at_its_expiry_and_not_before",
    ),
    (
        Sabotage::RecordsExpiredAsCancelled,
        "expiry::a_job_that_is_claimed_after_its_expiry_has_not_begun",
    ),
    (
        Sabotage::ExpiresTooManyJobs,
        "expiry::a_pass_ends_the_longest_overdue_jobs_up_to_its_limit",
    ),
    (
        Sabotage::HidesExpiriesFromClaims,
        "expiry::a_job_that_is_claimed_after_its_expiry_has_not_begun",
    ),
    (
        Sabotage::KeepsExpiriesOfHolders,
        "expiry::a_waiting_holder_gets_the_expiry_of_the_new_job",
    ),
    (
        Sabotage::KeepsExpiriesOfHolders,
        "expiry::a_holder_that_has_begun_gets_the_expiry_of_the_new_job",
    ),
    (
        Sabotage::ExpiresRequeuedJobs,
        "expiry::a_requeued_job_does_not_expire",
    ),
];

impl Sabotaged {
    pub(crate) async fn expire_wrongly(&self, limit: usize) -> Result<Vec<JobId>> {
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

    /// Removes the expiries of claimed jobs.
    pub(crate) async fn begin_expiring(&self, claimed: &[ClaimedJob]) -> Result<()> {
        let expiring = claimed.iter().map(|job| &job.claim);
        let expiring = expiring.filter(|claim| claim.expires_at.is_some());
        let begun = expiring.map(|claim| Report::new(claim.token, ReportKind::Alive));
        let begun: Vec<Report> = begun.collect();
        self.inner.report(&begun).await.map(drop)
    }

    /// Answers reports without storing them.
    pub(crate) async fn answer_reports(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        let mut answers = Vec::with_capacity(reports.len());
        for report in reports {
            let job = self.find(report.token.job).await?;
            let job = job.filter(|job| job.state == JobState::Running);
            let job = job.filter(|job| Claim::of(job).token == report.token);
            answers.push(job.map_or(Reported::Stale, |job| Reported::Applied {
                cancel_requested: job.cancel_requested,
            }));
        }
        Ok(answers)
    }
}
