//! Stores with a defect in permits.

use async_trait::async_trait;
use ratchet_core::model::*;
use ratchet_core::store::{Changed, IfKnown, JobStore, PermitStore};
use ratchet_core::{JobRecord, JobState, Name, NewJob, Result};

use crate::sabotage::{Sabotage, Sabotaged};

#[async_trait]
impl PermitStore for Sabotaged {
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed> {
        let known = self.memory().permits.contains_key(resource);
        if known && if_known == IfKnown::Keep && !self.is(Sabotage::ChangesDeclaredPermits) {
            return Ok(Changed::Unchanged);
        }
        let before = self.memory().permits.insert(resource.clone(), max);
        match self.how {
            Sabotage::IgnoresPermits => {
                self.inner
                    .set_permits(resource, u32::MAX, IfKnown::Change)
                    .await?;
            }
            // The defect: a lower number is reported as set, but the inner store keeps the higher
            // one.
            Sabotage::ChangesPermitsLate if before.is_some_and(|before| before > max) => {}
            _ => return self.inner.set_permits(resource, max, IfKnown::Change).await,
        }
        Ok(if before == Some(max) {
            Changed::Unchanged
        } else {
            Changed::Changed
        })
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        let mut listed = self.inner.permits().await?;
        let memory = self.memory();
        for info in &mut listed {
            info.max = memory
                .permits
                .get(&info.resource)
                .copied()
                .unwrap_or(info.max);
        }
        Ok(listed)
    }
}

impl Sabotaged {
    /// Lets the inner store reject jobs with unknown resources, or creates these resources if that
    /// is the sabotage's defect.
    pub(crate) async fn look_at_permits(&self, jobs: &[NewJob]) -> Result<()> {
        let known = self.inner.permits().await?;
        let is_unknown = |resource: &&Name| known.iter().all(|info| info.resource != **resource);
        let resources = jobs
            .iter()
            .filter_map(|job| job.spec().route.permit.as_ref());
        let unknown: Vec<&Name> = resources.filter(is_unknown).collect();
        let mut needless = self.is(Sabotage::TakesUnknownPermitsOfDuplicates);
        for job in jobs {
            let needs = job.spec().route.permit.is_some();
            needless = needless && (!needs || self.is_duplicate(job).await?);
        }
        if needless || self.is(Sabotage::TakesUnknownPermits) {
            for resource in unknown {
                self.inner.set_permits(resource, 1, IfKnown::Change).await?;
            }
        } else if !unknown.is_empty() {
            self.inner.enqueue(jobs).await?;
        }
        Ok(())
    }

    /// Counts the holders of each permit, lets a concurrent call claim, and then claims by the
    /// outdated count.
    pub(crate) async fn claim_after_counting(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<ClaimedJob>> {
        let counted = self.inner.permits().await?;
        for info in &counted {
            self.let_another_look(&info.resource).await;
        }
        let _turn = self.turn.lock().await;
        let now = self.inner.permits().await?;
        for (before, now) in counted.iter().zip(&now) {
            let rest = u64::from(before.max).saturating_sub(before.held);
            let max = u32::try_from(now.held + rest).unwrap_or(u32::MAX);
            self.inner
                .set_permits(&now.resource, max, IfKnown::Change)
                .await?;
        }
        let claimed = self.inner.claim_next_batch(request).await?;
        let asked_for = self.memory().permits.clone();
        for (resource, max) in asked_for {
            self.inner
                .set_permits(&resource, max, IfKnown::Change)
                .await?;
        }
        Ok(claimed)
    }

    /// Returns whether any pending job needs a permit.
    pub(crate) async fn wait_for_permits(&self) -> Result<bool> {
        let jobs = self.everything().await?;
        let waits =
            |job: &JobRecord| job.state == JobState::Pending && job.spec.route.permit.is_some();
        Ok(jobs.iter().any(waits))
    }

    /// Loses a permit that a settlement returns, or returns a permit twice, depending on the
    /// sabotage.
    pub(crate) async fn miscount_permits(&self, settlements: &[Settlement]) -> Result<()> {
        let by = match self.how {
            Sabotage::HoldsPermitsForEver => -1,
            Sabotage::FreesPermitsTwice => 1,
            _ => return Ok(()),
        };
        for settlement in settlements {
            let Some(job) = self.find(settlement.token.job).await? else {
                continue;
            };
            let holds = job.state == JobState::Running && job.claim_seq == settlement.token.seq;
            let Some(resource) = job.spec.route.permit.filter(|_| holds == (by < 0)) else {
                continue;
            };
            let max = {
                let mut memory = self.memory();
                let extra = memory.extra.entry(resource.clone()).or_default();
                *extra += by;
                let extra = *extra;
                i64::from(memory.permits[&resource]) + extra
            };
            let max = u32::try_from(max).unwrap_or(0);
            self.inner
                .set_permits(&resource, max, IfKnown::Change)
                .await?;
        }
        Ok(())
    }
}
