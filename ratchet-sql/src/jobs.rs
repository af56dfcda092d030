//! [`JobStore`] on SQL: what is checked here; the other files do the rest.

use async_trait::async_trait;
use ratchet_core::model::{
    Acted, Attempt, Claim, ClaimRequest, ClaimedJob, Detail, Enqueued, Fenced, Guarded, JobFilter,
    JobInput, JobPage, JobRecord, JobSelector, NewJob, PageRequest, PurgeRequest, ReclaimRequest,
    Reclaimed, Report, Reported, Settlement,
};
use ratchet_core::store::JobStore;
use ratchet_core::{ClaimToken, InvalidInput, JobAction, JobId, Result, StoreError, limits, time};

use crate::claim::Depth;
use crate::dialect::Dialect;
use crate::failure::Loss;
use crate::store::SqlStore;

#[async_trait]
impl<D: Dialect> JobStore for SqlStore<D> {
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        NewJob::validate_all(jobs)?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.call("enqueue", || self.enqueue_jobs(jobs)).await
    }

    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        self.claim("claim_next_batch", request, Depth::Whole).await
    }

    async fn claim_next_batch_optimized(&self, request: &ClaimRequest) -> Result<Vec<Claim>> {
        let jobs = self
            .claim("claim_next_batch_optimized", request, Depth::WithoutInput)
            .await?;
        Ok(jobs.into_iter().map(|job| job.claim).collect())
    }

    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        limits::check_batch("tokens", tokens.len()).map_err(refused("load_inputs"))?;
        self.call("load_inputs", || self.read_inputs(tokens)).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        Settlement::validate_all(settlements)?;
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        self.call("settle", || self.settle_jobs(settlements)).await
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        Report::validate_all(reports)?;
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        self.call("report", || self.keep_reports(reports)).await
    }

    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        request.validate()?;
        self.call("reclaim", || self.reclaim_jobs(request)).await
    }

    async fn act(&self, jobs: &JobSelector, action: JobAction) -> Result<Vec<Acted>> {
        jobs.validate(action)?;
        // An action whose answer was lost may have been done, and again would be to other jobs.
        self.call_again_after(
            "act",
            |loss| loss == Loss::Told,
            || self.act_on_jobs(jobs, action),
        )
        .await
    }

    async fn get(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        limits::check_batch("ids", ids.len()).map_err(refused("get"))?;
        self.call("get", || self.read_jobs(ids, Detail::Whole))
            .await
    }

    async fn outlines(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        limits::check_batch("ids", ids.len()).map_err(refused("outlines"))?;
        self.call("outlines", || self.read_jobs(ids, Detail::Outline))
            .await
    }

    async fn list(&self, filter: &JobFilter, page: &PageRequest) -> Result<JobPage> {
        page.validate()?;
        self.call("list", || self.read_page(filter, page)).await
    }

    async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        self.call("history", || self.read_history(job)).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        request.validate()?;
        // As for actions: again it would be to other jobs, and their number alone be told.
        self.call_again_after(
            "purge",
            |loss| loss == Loss::Told,
            || self.purge_jobs(request),
        )
        .await
    }
}

impl<D: Dialect> SqlStore<D> {
    async fn claim(
        &self,
        operation: &'static str,
        request: &ClaimRequest,
        depth: Depth,
    ) -> Result<Vec<ClaimedJob>> {
        request.validate()?;
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        let until = self.nearly_too_late(time::monotonic());
        // A claim whose answer was lost may have been made, and another on top of it would be more
        // than was asked for. One that the server says it ended was not made.
        self.call_again_after(
            operation,
            |loss| loss == Loss::Told,
            || self.claim_jobs(request, depth, until),
        )
        .await
    }
}

fn refused(operation: &'static str) -> impl Fn(InvalidInput) -> StoreError {
    move |problem| StoreError::from(problem).during(operation)
}
