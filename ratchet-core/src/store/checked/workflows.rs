use async_trait::async_trait;

use super::{Checked, check, part};
use crate::error::Result;
use crate::id::{BatchId, JobId};
use crate::limits::{check_batch, check_limit};
use crate::model::{BatchClosed, BatchPurge, BatchRecord, Guarded, Link, Parent};
use crate::store::{Changed, Store, WorkflowStore};

#[async_trait]
impl<S: Store + ?Sized> WorkflowStore for Checked<S> {
    async fn create_batch(&self, batch: BatchId) -> Result<Changed> {
        let store = part("create_batch", self.store.workflows())?;
        self.call("create_batch", || store.create_batch(batch))
            .await
    }

    async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed> {
        let store = part("close_batch", self.store.workflows())?;
        self.call("close_batch", || store.close_batch(batch)).await
    }

    async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>> {
        let store = part("batches", self.store.workflows())?;
        check("batches", check_batch("ids", ids.len()))?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.call("batches", || store.batches(ids)).await
    }

    async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>> {
        let store = part("recent_batches", self.store.workflows())?;
        check("recent_batches", check_limit("limit", limit))?;
        self.call("recent_batches", || store.recent_batches(limit, before))
            .await
    }

    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>> {
        let store = part("purge_batches", self.store.workflows())?;
        check("purge_batches", request.validate())?;
        self.call("purge_batches", || store.purge_batches(request))
            .await
    }

    async fn parents_of(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        let store = part("parents_of", self.store.workflows())?;
        check("parents_of", check_batch("ids", jobs.len()))?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.call("parents_of", || store.parents_of(jobs)).await
    }

    async fn children_of(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        let store = part("children_of", self.store.workflows())?;
        check("children_of", check_limit("limit", limit))?;
        self.call("children_of", || store.children_of(parent, limit, after))
            .await
    }
}
