//! [`WorkflowStore`] on SQLite.

use async_trait::async_trait;
use ratchet_core::model::{BatchClosed, BatchPurge, BatchRecord, Guarded, Link, Parent};
use ratchet_core::store::{Changed, WorkflowStore};
use ratchet_core::time::duration_millis;
use ratchet_core::{BatchId, JobId, Result};
use rusqlite::params;

use crate::error::Result as Inner;
use crate::links::{self, read_batch};
use crate::locks::is_tenure;
use crate::queue::Urgency;
use crate::request::Work;
use crate::row;
use crate::statements::SQL;
use crate::store::SqliteStore;

#[async_trait]
impl WorkflowStore for SqliteStore {
    async fn create_batch(&self, batch: BatchId) -> Result<Changed> {
        self.write("create_batch", Urgency::Normal, move |work| {
            let created = work
                .conn
                .prepare_cached(&SQL.create_batch)?
                .execute(params![batch.as_bytes(), work.now])?;
            Ok(Changed::when(created > 0))
        })
        .await
    }

    async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed> {
        self.write("close_batch", Urgency::Normal, move |work| {
            let closed = work
                .conn
                .prepare_cached(&SQL.close_batch)?
                .execute([batch.as_bytes()])?;
            if closed == 0 {
                return Ok(match read_batch(work.conn, batch)? {
                    None => BatchClosed::NotFound,
                    Some(_) => BatchClosed::Already,
                });
            }
            work.come.borrow_mut().batch(batch);
            Ok(BatchClosed::Closed)
        })
        .await
    }

    async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>> {
        let ids = ids.to_vec();
        self.read("batches", move |work| {
            ids.iter().map(|id| read_batch(work.conn, *id)).collect()
        })
        .await
    }

    async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>> {
        /// A value that sorts after every id.
        const PAST_EVERY_ID: [u8; 17] = [0xff; 17];
        self.read("recent_batches", move |work| {
            let before = before
                .as_ref()
                .map_or(&PAST_EVERY_ID[..], |id| id.as_bytes());
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut list = work.conn.prepare_cached(&SQL.list_batches)?;
            let mut rows = list.query(params![before, limit])?;
            let mut batches = Vec::new();
            while let Some(row) = rows.next()? {
                batches.push(row::batch_record(row)?);
            }
            Ok(batches)
        })
        .await
    }

    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>> {
        let (looked, request) = (request.clone(), request.clone());
        self.write_unless(
            "purge_batches",
            move |work| nothing_to_purge(work, &looked),
            move |work| purge(work, &request),
        )
        .await
    }

    async fn parents_of(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        let jobs = jobs.to_vec();
        self.read("parents_of", move |work| {
            let read = |job: &JobId| {
                let links = links::links_of(work.conn, *job)?.into_iter();
                let link = |link: links::StoredLink| {
                    let after = link.after.ok()?;
                    Some(Link::new(*job, after, link.state))
                };
                Ok(links.filter_map(link).collect())
            };
            jobs.iter().map(read).collect()
        })
        .await
    }

    async fn children_of(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        self.read("children_of", move |work| {
            links::children_of(work.conn, parent, limit, after)
        })
        .await
    }
}

/// Deletes batches that ended more than `older_than` ago, and returns how many it deleted.
fn purge(work: &Work<'_>, request: &BatchPurge) -> Inner<Guarded<u64>> {
    if !is_tenure(work, request.guard.as_ref())? {
        return Ok(Guarded::Stale);
    }
    let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
    let gone = work
        .conn
        .prepare_cached(&SQL.purge_batches)?
        .execute(params![cutoff(work, request), limit])?;
    Ok(Guarded::Done(gone as u64))
}

/// Returns the answer of a purge if the purge would change nothing. Returns `None` if there are
/// batches to delete. The function only reads, so it needs no write lock.
fn nothing_to_purge(work: &Work<'_>, request: &BatchPurge) -> Inner<Option<Guarded<u64>>> {
    if !is_tenure(work, request.guard.as_ref())? {
        return Ok(Some(Guarded::Stale));
    }
    let some: bool = work
        .conn
        .prepare_cached(&SQL.old_batch_exists)?
        .query_row([cutoff(work, request)], |row| row.get(0))?;
    Ok((!some).then_some(Guarded::Done(0)))
}

fn cutoff(work: &Work<'_>, request: &BatchPurge) -> i64 {
    work.now.saturating_sub(duration_millis(request.older_than))
}
