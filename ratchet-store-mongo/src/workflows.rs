//! [`WorkflowStore`] on MongoDB servers with transactions.

use std::collections::HashMap;

use async_trait::async_trait;
use mongodb::bson::{Bson, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::model::{BatchClosed, BatchPurge, BatchRecord, Guarded, Link, Parent};
use ratchet_core::store::{Changed, WorkflowStore};
use ratchet_core::{BatchId, InvalidInput, JobId, Result};

use crate::error::Result as Inner;
use crate::links::batch_record;
use crate::row;
use crate::store::MongoStore;

#[async_trait]
impl WorkflowStore for MongoStore {
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
        self.call("recent_batches", || self.list_batches(limit, before))
            .await
    }

    /// Deletes batches that ended more than `older_than` ago. Uses index `ended`. [batch.purge]
    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>> {
        let (age, limit, guard) = (request.older_than, request.limit, request.guard.as_ref());
        self.call_once("purge_batches", || {
            self.delete_older(|side| &side.batches, "ended_at", age, limit, guard)
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

impl MongoStore {
    /// Stores an open batch. Returns `Unchanged` if the batch already exists. [batch.create]
    async fn make_batch(&self, batch: BatchId) -> Inner<Changed> {
        let side = self.main();
        let row = doc! {
            "_id": row::id(batch),
            "total": 0_i64,
            "succeeded": 0_i64,
            "failed": 0_i64,
            "cancelled": 0_i64,
            "closed": false,
            "created_at": self.millis(side).await?,
        };
        let row = RawDocumentBuf::try_from(&row)?;
        match side.plain().insert_many(&side.batches, &[row]).await {
            Ok(()) => Ok(Changed::Changed),
            Err(failure) if failure.is_duplicate() => Ok(Changed::Unchanged),
            Err(failure) => Err(failure),
        }
    }

    /// Closes an open batch and applies the consequences, such as the end of the batch.
    /// [batch.close]
    async fn shut(&self, batch: BatchId) -> Inner<BatchClosed> {
        let side = self.main();
        let mut tx = side.begin().await?;
        let closed = async {
            let open = doc! { "_id": row::id(batch), "closed": false };
            let close = doc! { "$set": { "closed": true } };
            if let Some(row) = tx.change(&side.batches, open, close, false).await? {
                let closed = batch_record(&row)?;
                self.follow(&mut tx, Vec::new(), vec![closed]).await?;
                return Ok(BatchClosed::Closed);
            }
            let this = doc! { "_id": row::id(batch) };
            Ok(match tx.find_one(&side.batches, this).await? {
                Some(_) => BatchClosed::Already,
                None => BatchClosed::NotFound,
            })
        }
        .await;
        tx.finish(closed).await
    }

    async fn read_batches(&self, ids: &[BatchId]) -> Inner<Vec<Option<BatchRecord>>> {
        let side = self.main();
        let wanted: Vec<Bson> = ids.iter().map(|id| row::id(*id)).collect();
        let these = doc! { "_id": { "$in": wanted } };
        let mut found = HashMap::new();
        for row in side
            .plain()
            .find(&side.batches, these, row::fields(doc! {}))
            .await?
        {
            let batch = batch_record(&row)?;
            found.insert(batch.id, batch);
        }
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    /// Returns up to `limit` batches, newest first. If `before` is set, returns only batches with
    /// smaller ids. [batch.list]
    async fn list_batches(&self, limit: usize, before: Option<BatchId>) -> Inner<Vec<BatchRecord>> {
        let side = self.main();
        let older = before.map_or_else(
            || doc! {},
            |before| doc! { "_id": { "$lt": row::id(before) } },
        );
        let options = FindOptions::builder()
            .sort(doc! { "_id": -1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .build();
        let rows = side.plain().find(&side.batches, older, options).await?;
        let batches = rows.iter().map(|row| batch_record(row));
        Ok(batches.collect::<std::result::Result<_, InvalidInput>>()?)
    }
}
