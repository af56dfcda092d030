//! Deletes old jobs and other old documents.

use std::time::Duration;

use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::JobId;
use ratchet_core::model::{Guard, Guarded, PurgeRequest};
use ratchet_core::time::duration_millis;

use crate::connection::{Rows, Side, Tx};
use crate::error::{Failure, Result};
use crate::freed::Freed;
use crate::pipelines::{self, LONGEST, any_job_id, code};
use crate::row;
use crate::store::MongoStore;

impl MongoStore {
    /// Deletes these old jobs and returns how many it deleted. Keeps each job that was requeued
    /// after it was read.
    pub(crate) async fn purge_these(
        &self,
        tx: &mut Tx<'_>,
        request: &PurgeRequest,
        old: &[RawDocumentBuf],
        before: i64,
    ) -> Result<usize> {
        if old.is_empty() {
            return Ok(0);
        }
        let still = doc! { "state": code(request.state), "finished_at": { "$lt": before } };
        let mut these = Gone::default();
        for row in old {
            these.add(row::job_id(row, "_id")?, row);
        }
        let done = self.forget(tx, &these, still).await?;
        Ok(usize::try_from(done).unwrap_or(old.len()))
    }

    /// Deletes documents whose time in the field `field` is more than `age` ago. Deletes at most
    /// `limit` documents, the oldest first. Returns how many it deleted.
    pub(crate) async fn delete_older(
        &self,
        documents: fn(&Side) -> &Rows,
        field: &str,
        age: Duration,
        limit: usize,
        guard: Option<&Guard>,
    ) -> Result<Guarded<u64>> {
        let side = self.main();
        let documents = documents(side);
        let before = self.millis(side).await?;
        let before = before.saturating_sub(duration_millis(age).min(LONGEST));
        let options = FindOptions::builder()
            .sort(doc! { field: 1, "_id": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(doc! { "_id": 1 })
            .build();
        let Some(mut guarded) = self.begin_guarded(side, guard).await? else {
            return Ok(Guarded::Stale);
        };
        let tx = &mut guarded.tx;
        let deleted = async {
            let old = doc! { "_id": any_job_id(), field: { "$lt": before } };
            let mut ids: Vec<Bson> = Vec::new();
            for row in tx.find(documents, old, options).await? {
                ids.extend(row.get("_id")?.map(Bson::try_from).transpose()?);
            }
            tx.delete_many(documents, doc! { "_id": { "$in": ids } })
                .await
        }
        .await;
        guarded.finish(self, deleted).await
    }

    /// Deletes the jobs in `these` that still match the filter `still`, together with their links
    /// and attempts. Their idempotency keys and freed entries stay. Returns how many jobs it
    /// deleted. [purge.keys]
    /// [delete.job] [link.kept]
    pub(crate) async fn forget(
        &self,
        tx: &mut Tx<'_>,
        these: &Gone,
        mut still: Document,
    ) -> Result<u64> {
        let side = self.main();
        let ids = &these.jobs;
        still.insert("_id", doc! { "$in": pipelines::ids(ids) });
        let gone = tx.delete_many(&side.jobs, still).await?;
        let all = usize::try_from(gone) == Ok(ids.len());
        if !all && self.has_transactions() {
            return Err(Failure::contention("a concurrent call changed a job"));
        }
        self.keep_freed(tx, &these.freed).await?;
        if !these.linked.is_empty() {
            let links = doc! { "child": { "$in": pipelines::ids(&these.linked) } };
            tx.delete_many(&side.links, links).await?;
        }
        if !these.parents.is_empty() {
            let met = doc! { "_id": { "$in": pipelines::ids(&these.parents) } };
            tx.delete_many(&side.parents, met).await?;
        }
        if all {
            let attempts = doc! { "job": { "$in": pipelines::ids(ids) } };
            tx.delete_many(&side.attempts, attempts).await?;
            return Ok(gone);
        }
        // Jobs that were not deleted keep their attempts.
        for id in ids {
            let this = doc! { "_id": row::id(*id) };
            if tx.find_one(&side.jobs, this).await?.is_none() {
                let its = doc! { "job": row::id(*id) };
                tx.delete_many(&side.attempts, its).await?;
            }
        }
        Ok(gone)
    }
}

/// The jobs to delete, and which of them have links.
#[derive(Default)]
pub(crate) struct Gone {
    pub(crate) jobs: Vec<JobId>,
    /// Jobs that have links to parents.
    linked: Vec<JobId>,
    /// Jobs that are parents of other jobs.
    parents: Vec<JobId>,
    /// The freed entries of fair keys that the jobs are.
    freed: Vec<Freed>,
}

impl Gone {
    /// Adds a job. `row` is the job's document.
    pub(crate) fn add(&mut self, job: JobId, row: &RawDocument) {
        let (links, children) = (row::flag(row, "links"), row::flag(row, "children"));
        self.add_one(job, (links, children), Freed::of(row));
    }

    pub(crate) fn add_one(
        &mut self,
        job: JobId,
        (has_links, has_children): (bool, bool),
        freed: Option<Freed>,
    ) {
        self.jobs.push(job);
        self.freed.extend(freed);
        self.linked.extend(has_links.then_some(job));
        self.parents.extend(has_children.then_some(job));
    }
}
