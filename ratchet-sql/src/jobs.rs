//! [`JobStore`] on SQL: decides which calls are repeated after a lost connection. The other modules
//! do the work.

use async_trait::async_trait;
use ratchet_core::model::{
    Acted, Attempt, ClaimRequest, ClaimedJob, Detail, Enqueued, Fenced, Guarded, JobFilter,
    JobInput, JobRecord, NewJob, PageRequest, PurgeRequest, ReclaimRequest, Reclaimed, Report,
    Reported, Settlement, StateCounts,
};
use ratchet_core::store::JobStore;
use ratchet_core::{ClaimToken, JobAction, JobId, JobState, Result, time};

use crate::dialect::Dialect;
use crate::store::SqlStore;

#[async_trait]
impl<D: Dialect> JobStore for SqlStore<D> {
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        self.call("enqueue", || self.enqueue_jobs(jobs)).await
    }

    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        let until = self.call_policy().timely_end(time::monotonic());
        // A claim whose reply was lost may have taken effect. A repeated claim could then exceed
        // the limit. If the server reported that it is closing the connection, the claim was rolled
        // back and can be repeated.
        self.call_once("claim_next_batch", || self.claim_jobs(request, until))
            .await
    }

    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        self.call("load_inputs", || self.read_inputs(tokens)).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        self.call("settle", || self.settle_jobs(settlements)).await
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        self.call("report", || self.keep_reports(reports)).await
    }

    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        self.call("reclaim", || self.reclaim_jobs(request)).await
    }

    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        // An action whose reply was lost may have taken effect. A repeated action could then be
        // refused, because the job is already in another state.
        self.call_once("act", || self.act_on_jobs(jobs, from, action))
            .await
    }

    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>> {
        self.call("get", || self.read_jobs(ids, detail)).await
    }

    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>> {
        self.call("list", || self.select_jobs(filter, page)).await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts> {
        self.call("count_jobs", || self.count_matching(filter))
            .await
    }

    async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        self.call("history", || self.read_history(job)).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        // A repeat after a lost reply would delete further jobs, and would count only these.
        self.call_once("purge", || self.purge_jobs(request)).await
    }

    async fn expire_jobs(&self, limit: usize) -> Result<Vec<JobId>> {
        self.call_once("expire_jobs", || self.cancel_expired(limit))
            .await
    }
}
