use std::ops::Bound;

use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::Result;
use crate::id::{BatchId, JobId};
use crate::model::{BatchClosed, BatchPurge, BatchRecord, Guarded, Link, Parent, StoredJob};
use crate::store::{Changed, WorkflowStore};
use crate::time::{self, duration_millis, from_millis};

#[async_trait]
impl WorkflowStore for MemoryStore {
    async fn create_batch(&self, batch: BatchId) -> Result<Changed> {
        self.write(Command::CreateBatch(batch)).await
    }

    async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed> {
        self.write(Command::CloseBatch(batch)).await
    }

    async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>> {
        self.read("batches", |tables, _| {
            let read = |id: &BatchId| tables.links.batches.get(id).cloned();
            ids.iter().map(read).collect()
        })
        .await
    }

    async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>> {
        self.read("recent_batches", |tables, _| {
            let end = before.map_or(Bound::Unbounded, Bound::Excluded);
            let older = tables.links.batches.range((Bound::Unbounded, end));
            let older = older.rev().map(|(_, batch)| batch.clone());
            older.take(limit).collect()
        })
        .await
    }

    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>> {
        self.write(Command::PurgeBatches(request.into())).await
    }

    async fn parents_of(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        self.read("parents_of", |tables, _| {
            let links = |id: &JobId| tables.job(*id).into_iter().flat_map(StoredJob::links);
            jobs.iter().map(|id| links(id).collect()).collect()
        })
        .await
    }

    async fn children_of(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        self.read("children_of", |tables, _| {
            let children = tables.links.children.get(&parent).into_iter().flatten();
            let children = children.filter(|child| after.is_none_or(|after| **child > after));
            let children = children.filter_map(|child| tables.job(*child));
            let links = children.flat_map(StoredJob::links);
            let on_parent = links.filter(|link| link.after.parent() == parent);
            on_parent.take(limit).collect()
        })
        .await
    }
}

impl Tables {
    pub(super) fn create_batch(&mut self, batch: BatchId, now: i64) -> Changed {
        let batches = &mut self.links.batches;
        if batches.contains_key(&batch) {
            return Changed::Unchanged;
        }
        batches.insert(batch, BatchRecord::new(batch, from_millis(now)));
        Changed::Changed
    }

    pub(super) fn close_batch(&mut self, batch: BatchId) -> BatchClosed {
        let Some(record) = self.links.batches.get_mut(&batch) else {
            return BatchClosed::NotFound;
        };
        let closed = record.close();
        if closed == BatchClosed::Closed {
            self.links.changed(batch);
        }
        closed
    }

    pub(super) fn purge_batches(&mut self, request: &BatchPurge, now: i64) -> Guarded<u64> {
        if !self.is_tenure(request.guard.as_ref(), now) {
            return Guarded::Stale;
        }
        let old = self.old_batches(request, now);
        for batch in &old {
            self.links.batches.remove(batch);
        }
        Guarded::Done(old.len() as u64)
    }

    /// Returns the ended batches that this request selects for deletion.
    pub(super) fn old_batches(&self, request: &BatchPurge, now: i64) -> Vec<BatchId> {
        let cutoff = now.saturating_sub(duration_millis(request.older_than));
        let is_old = |batch: &&BatchRecord| {
            batch
                .ended_at
                .is_some_and(|at| time::to_millis(at) < cutoff)
        };
        let batches = self.links.batches.values();
        let mut old: Vec<_> = batches
            .filter(is_old)
            .map(|batch| (batch.ended_at, batch.id))
            .collect();
        old.sort_unstable();
        old.truncate(request.limit);
        old.into_iter().map(|(_, batch)| batch).collect()
    }
}
