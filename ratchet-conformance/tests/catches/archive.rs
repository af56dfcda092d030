//! Stores with a defect in the archive.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{
    ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Guarded, PageRequest, PurgeRequest,
};
use ratchet_core::store::ArchiveStore;
use ratchet_core::{JobId, Result};

use crate::sabotage::{Sabotage, Sabotaged};

#[async_trait]
impl ArchiveStore for Sabotaged {
    async fn archive(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        let mut asked = request.clone();
        if self.is(Sabotage::ArchivesTooYoung) {
            asked.older_than = Duration::ZERO;
        }
        asked.guard = self.weakened(asked.guard).await?;
        let passes_over = self.is(Sabotage::PassesOverWholeMilliseconds);
        if passes_over && self.memory().spoiled_jobs >= asked.limit {
            return Ok(Guarded::Done(0));
        }
        let there = self.mortal().await?;
        let archived = self.inner.archive(&asked).await?;
        self.bury(there).await?;
        if self.is(Sabotage::ArchivesParentsOfRunningChildren) {
            let parents = self.running(|job| !job.spec.after.is_empty()).await?;
            return Ok(match archived {
                Guarded::Done(archived) => Guarded::Done(archived + parents),
                Guarded::Stale => Guarded::Stale,
            });
        }
        if self.is(Sabotage::LosesArchivedJobs) {
            let all = ArchivePurge::new(Duration::ZERO, 10_000);
            self.inner.purge_archive(&all).await?;
        }
        Ok(archived)
    }

    async fn archived(&self, ids: &[JobId]) -> Result<Vec<Option<ArchivedJob>>> {
        let mut found = self.inner.archived(ids).await?;
        if self.is(Sabotage::ArchivesWithoutHistory) {
            for archived in found.iter_mut().flatten() {
                archived.history.clear();
            }
        }
        Ok(found)
    }

    async fn list_archived(
        &self,
        filter: &ArchiveFilter,
        page: &PageRequest,
    ) -> Result<ArchivePage> {
        if self.is(Sabotage::ListsTheArchiveByTheEnds) {
            let all = PageRequest::first(10_000);
            let mut jobs = self.inner.list_archived(filter, &all).await?.jobs;
            jobs.sort_by_key(|one| one.job.finished_at);
            let mut jobs = Self::page_of(jobs, page, |one| one.job.id);
            let more = jobs.len() > page.limit;
            jobs.truncate(page.limit);
            let next = jobs.last().filter(|_| more).map(|last| last.job.id);
            return Ok(ArchivePage { jobs, next });
        }
        let mut asked = *page;
        if self.is(Sabotage::IgnoresCursors) {
            asked.after = None;
        }
        self.inner.list_archived(filter, &asked).await
    }

    async fn purge_archive(&self, request: &ArchivePurge) -> Result<Guarded<u64>> {
        let mut asked = request.clone();
        if self.is(Sabotage::PurgesTheArchiveTooYoung) {
            asked.older_than = Duration::ZERO;
        }
        asked.guard = self.weakened(asked.guard).await?;
        self.inner.purge_archive(&asked).await
    }
}
