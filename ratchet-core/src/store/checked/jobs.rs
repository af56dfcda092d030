use async_trait::async_trait;

use super::gather::Gather;
use super::{Checked, Repeat, check, check_enqueue};
use crate::error::Result;
use crate::id::{ClaimToken, JobId};
use crate::limits::{MAX_BATCH, check_batch, check_limit};
use crate::model::{
    Acted, Attempt, Claim, ClaimRequest, ClaimedJob, Detail, Enqueued, Fenced, Guarded, JobFilter,
    JobInput, JobPage, JobRecord, JobSelector, NewJob, PageRequest, PurgeRequest, ReclaimRequest,
    Reclaimed, Report, Reported, Settlement, StateCounts,
};
use crate::state::{JobAction, JobState};
use crate::store::{JobStore, Store};

#[async_trait]
impl<S: Store + ?Sized> JobStore for Checked<S> {
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        check_enqueue("enqueue", &*self.store, jobs)?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        match self.store.call_policy().gathers && Gather::admits(jobs) {
            true => self.enqueue_gathered(jobs).await,
            false => self.enqueue_now(jobs).await,
        }
    }

    async fn claim_next_batch(&self, request: &ClaimRequest) -> Result<Vec<ClaimedJob>> {
        const OPERATION: &str = "claim_next_batch";
        check(OPERATION, request.validate())?;
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        self.call_and_repeat(OPERATION, Repeat::Briefly, || {
            self.store.jobs().claim_next_batch(request)
        })
        .await
    }

    async fn claim_next_batch_optimized(&self, request: &ClaimRequest) -> Result<Vec<Claim>> {
        const OPERATION: &str = "claim_next_batch_optimized";
        check(OPERATION, request.validate())?;
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        self.call_and_repeat(OPERATION, Repeat::Briefly, || {
            self.store.jobs().claim_next_batch_optimized(request)
        })
        .await
    }

    async fn load_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        check("load_inputs", check_batch("tokens", tokens.len()))?;
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        self.call("load_inputs", || self.store.jobs().load_inputs(tokens))
            .await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        check("settle", Settlement::validate_all(settlements))?;
        let repeat = match settlements {
            [] => return Ok(Vec::new()),
            [_] => Repeat::UntilDeadline,
            _ => Repeat::Briefly,
        };
        self.call_and_repeat("settle", repeat, || self.store.jobs().settle(settlements))
            .await
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        check("report", Report::validate_all(reports))?;
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        self.call("report", || self.store.jobs().report(reports))
            .await
    }

    async fn reclaim(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        check("reclaim", request.validate())?;
        self.call("reclaim", || self.store.jobs().reclaim(request))
            .await
    }

    async fn act(&self, jobs: &JobSelector, action: JobAction) -> Result<Vec<Acted>> {
        check("act", jobs.validate(action))?;
        if matches!(jobs, JobSelector::Ids(ids) if ids.is_empty()) {
            return Ok(Vec::new());
        }
        self.call("act", || self.store.jobs().act(jobs, action))
            .await
    }

    async fn act_on(
        &self,
        jobs: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        const OPERATION: &str = "act";
        check(OPERATION, check_batch("ids", jobs.len()))?;
        check(OPERATION, action.validate())?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.call(OPERATION, || self.store.jobs().act_on(jobs, from, action))
            .await
    }

    async fn get(&self, ids: &[JobId], detail: Detail) -> Result<Vec<Option<JobRecord>>> {
        check("get", check_batch("ids", ids.len()))?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.call("get", || self.store.jobs().get(ids, detail))
            .await
    }

    async fn list(&self, filter: &JobFilter, page: &PageRequest) -> Result<JobPage> {
        check("list", page.validate())?;
        self.call("list", || self.store.jobs().list(filter, page))
            .await
    }

    async fn select(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>> {
        let mut listed = *page;
        // `list` selects one job more than its page shows, so the limit may be one above the
        // maximum.
        if page.limit == MAX_BATCH + 1 {
            listed.limit = MAX_BATCH;
        }
        check("list", listed.validate())?;
        self.call("list", || self.store.jobs().select(filter, page))
            .await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<StateCounts> {
        self.call("count_jobs", || self.store.jobs().count_jobs(filter))
            .await
    }

    async fn history(&self, job: JobId) -> Result<Vec<Attempt>> {
        self.call("history", || self.store.jobs().history(job))
            .await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        check("purge", request.validate())?;
        self.call_and_repeat("purge", Repeat::Briefly, || {
            self.store.jobs().purge(request)
        })
        .await
    }

    async fn expire_jobs(&self, limit: usize) -> Result<Vec<JobId>> {
        check("expire_jobs", check_limit("limit", limit))?;
        self.call("expire_jobs", || self.store.jobs().expire_jobs(limit))
            .await
    }
}
