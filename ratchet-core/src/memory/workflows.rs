use std::ops::Bound;

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::id::{BatchId, JobId};
use crate::model::{BatchClosed, BatchPurge, BatchRecord, Guarded, Link, Parent, StoredJob};
use crate::store::{Changed, WorkflowStore};
use crate::time::{self, duration_millis, from_millis};

#[async_trait]
impl WorkflowStore for MemoryStore {
    async fn create_batch(&self, batch: BatchId) -> Result<Changed> {
        self.call("create_batch", |tables, now| {
            let batches = &mut tables.links.batches;
            if batches.contains_key(&batch) {
                return Ok(Changed::Unchanged);
            }
            batches.insert(batch, BatchRecord::new(batch, from_millis(now)));
            Ok(Changed::Changed)
        })
        .await
    }

    async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed> {
        self.call("close_batch", |tables, _| {
            let Some(record) = tables.links.batches.get_mut(&batch) else {
                return Ok(BatchClosed::NotFound);
            };
            let closed = record.close();
            if closed == BatchClosed::Closed {
                tables.links.changed(batch);
            }
            Ok(closed)
        })
        .await
    }

    async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>> {
        self.call("batches", |tables, _| {
            let read = |id: &BatchId| tables.links.batches.get(id).cloned();
            Ok(ids.iter().map(read).collect())
        })
        .await
    }

    async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>> {
        self.call("recent_batches", |tables, _| {
            let end = before.map_or(Bound::Unbounded, Bound::Excluded);
            let older = tables.links.batches.range((Bound::Unbounded, end));
            Ok(older
                .rev()
                .map(|(_, batch)| batch.clone())
                .take(limit)
                .collect())
        })
        .await
    }

    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>> {
        self.call("purge_batches", |tables, now| {
            if !tables.is_tenure(request.guard.as_ref(), now) {
                return Ok(Guarded::Stale);
            }
            let cutoff = now.saturating_sub(duration_millis(request.older_than));
            let is_old = |batch: &&BatchRecord| {
                batch
                    .ended_at
                    .is_some_and(|at| time::to_millis(at) < cutoff)
            };
            let batches = tables.links.batches.values();
            let mut old: Vec<_> = batches
                .filter(is_old)
                .map(|batch| (batch.ended_at, batch.id))
                .collect();
            old.sort_unstable();
            old.truncate(request.limit);
            for (_, batch) in &old {
                tables.links.batches.remove(batch);
            }
            Ok(Guarded::Done(old.len() as u64))
        })
        .await
    }

    async fn parents_of(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        self.call("parents_of", |tables, _| {
            let links = |id: &JobId| tables.job(*id).into_iter().flat_map(StoredJob::links);
            Ok(jobs.iter().map(|id| links(id).collect()).collect())
        })
        .await
    }

    async fn children_of(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        self.call("children_of", |tables, _| {
            let children = tables.links.children.get(&parent).into_iter().flatten();
            let children = children.filter(|child| after.is_none_or(|after| **child > after));
            let children = children.filter_map(|child| tables.job(*child));
            let links = children.flat_map(StoredJob::links);
            let on_parent = links.filter(|link| link.after.parent() == parent);
            Ok(on_parent.take(limit).collect())
        })
        .await
    }
}
