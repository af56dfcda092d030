//! [`JobStore`] on SQLite: which thread runs which call.

use std::sync::Arc;

use async_trait::async_trait;
use ratchet_core::model::{
    Acted, Attempt, ClaimRequest, ClaimedJob, Detail, Enqueued, Fenced, Guarded, JobFilter,
    JobInput, JobRecord, NewJob, PageRequest, PurgeRequest, ReclaimRequest, Reclaimed, Report,
    Reported, Settlement, StateCounts,
};
use ratchet_core::store::JobStore;
use ratchet_core::{ClaimToken, JobAction, JobId, JobState, Result};

use crate::claim;
use crate::queue::Urgency;
use crate::store::SqliteStore;
use crate::{act, enqueue, expiry, read, reclaim, settle};

#[async_trait]
impl JobStore for SqliteStore {
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        let jobs = jobs.to_vec();
        self.write("enqueue", Urgency::Normal, move |work| {
            enqueue::enqueue(work, &jobs)
        })
        .await
    }

    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        let request = Arc::new(request.clone());
        let looked = Arc::clone(&request);
        self.write_unless(
            "claim_next_batch",
            move |work| Ok(claim::is_idle(work, &looked)?.then(Vec::new)),
            move |work| claim::claim(work, &request),
        )
        .await
    }

    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        let tokens = tokens.to_vec();
        self.read("load_inputs", move |work| read::load_inputs(work, &tokens))
            .await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        let settlements = settlements.to_vec();
        self.write("settle", Urgency::Normal, move |work| {
            settle::settle(work, &settlements)
        })
        .await
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        let reports = reports.to_vec();
        self.write("report", Urgency::Normal, move |work| {
            settle::report(work, &reports)
        })
        .await
    }

    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        let (looked, request) = (request.clone(), request.clone());
        self.write_unless(
            "reclaim",
            move |work| Ok(reclaim::is_idle(work, &looked)?.then(Vec::new)),
            move |work| reclaim::reclaim(work, &request),
        )
        .await
    }

    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        let (jobs, from) = (jobs.to_vec(), from.to_vec());
        self.write("act", Urgency::Normal, move |work| {
            act::act(work, &jobs, &from, action)
        })
        .await
    }

    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>> {
        let ids = ids.to_vec();
        self.read("get", move |work| read::get(work, &ids, detail))
            .await
    }

    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>> {
        let (filter, page) = (filter.clone(), *page);
        self.read("list", move |work| read::select(work, &filter, &page))
            .await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts> {
        let filter = filter.clone();
        self.read("count_jobs", move |work| read::count(work, &filter))
            .await
    }

    async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        self.read("history", move |work| read::history(work, job))
            .await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        let request = request.clone();
        let looked = request.clone();
        self.write_unless(
            "purge",
            move |work| act::nothing_to_purge(work, &looked),
            move |work| act::purge(work, &request),
        )
        .await
    }

    async fn expire_jobs(&self, limit: usize) -> Result<Vec<JobId>> {
        self.write_unless(
            "expire_jobs",
            |work| Ok(expiry::overdue(work, 1)?.is_empty().then(Vec::new)),
            move |work| expiry::expire(work, limit),
        )
        .await
    }
}
