//! [`WorkflowStore`] on SQL.

use std::collections::HashMap;

use async_trait::async_trait;
use ratchet_core::model::{BatchClosed, BatchPurge, BatchRecord, Guarded, Link, Parent};
use ratchet_core::store::{Changed, WorkflowStore};
use ratchet_core::{BatchId, JobId, Result};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Run};
use crate::failure::Result as Inner;
use crate::purge;
use crate::row;
use crate::store::SqlStore;

#[async_trait]
impl<D: Dialect> WorkflowStore for SqlStore<D> {
    async fn create_batch(&self, batch: BatchId) -> Result<Changed> {
        self.call_once("create_batch", || self.make_batch(batch))
            .await
    }

    async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed> {
        self.call_once("close_batch", || self.shut(batch)).await
    }

    async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>> {
        self.call("batches", || self.read_batches(ids)).await
    }

    async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>> {
        self.call("recent_batches", || async {
            let list = self.sql().list_batches.query();
            let list = list
                .bind(before.map_or(Uuid::max(), |id| id.as_uuid()))
                .bind(i64::try_from(limit).unwrap_or(i64::MAX));
            let rows = self.lease().await?.rows(list).await?;
            rows.iter().map(row::batch_record).collect()
        })
        .await
    }

    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>> {
        self.call_once("purge_batches", || {
            let purge = self.sql().purge_batches.query();
            let purge = purge
                .bind(purge::age(request.older_than))
                .bind(i64::try_from(request.limit).unwrap_or(i64::MAX));
            self.delete_guarded(purge, request.guard.as_ref())
        })
        .await
    }

    async fn parents_of(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        self.call("parents_of", || self.read_parents(jobs)).await
    }

    async fn children_of(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        self.call("children_of", || self.read_children(parent, limit, after))
            .await
    }
}

impl<D: Dialect> SqlStore<D> {
    async fn make_batch(&self, batch: BatchId) -> Inner<Changed> {
        let create = self.sql().create_batch.query().bind(batch.as_uuid());
        let created = self.lease().await?.execute(create).await?;
        Ok(Changed::when(created > 0))
    }

    async fn shut(&self, batch: BatchId) -> Inner<BatchClosed> {
        let mut lease = self.lease().await?;
        lease.begin().await?;
        let closed = async {
            let close = self.sql().close_batch.query().bind(batch.as_uuid());
            let rows = lease.rows(close).await?;
            let closed: Inner<Vec<BatchRecord>> = rows.iter().map(row::batch_record).collect();
            let closed = closed?;
            let changed = !closed.is_empty();
            self.follow(&mut lease, &[], closed).await?;
            Ok(changed)
        }
        .await;
        if lease.end(closed).await? {
            return Ok(BatchClosed::Closed);
        }
        let exists = self.read_batches(&[batch]).await?.pop().flatten();
        Ok(exists.map_or(BatchClosed::NotFound, |_| BatchClosed::Already))
    }

    async fn read_batches(&self, ids: &[BatchId]) -> Inner<Vec<Option<BatchRecord>>> {
        let wanted: Vec<Uuid> = ids.iter().map(BatchId::as_uuid).collect();
        let get = self.sql().get_batches.query().bind(&wanted);
        let mut found = HashMap::new();
        for row in self.lease().await?.rows(get).await? {
            let batch = row::batch_record(&row)?;
            found.insert(batch.id, batch);
        }
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }
}
