//! Deleting old finished jobs, and writes that only land in a tenure.

use mongodb::bson::{Document, RawDocument, doc};
use mongodb::options::FindOptions;
use ratchet_core::JobId;
use ratchet_core::model::{Guard, Guarded, PurgeRequest};
use ratchet_core::time::duration_millis;

use crate::connection::{Side, Tx};
use crate::error::{Failure, Result};
use crate::pipelines::{self, LONGEST, code};
use crate::row;
use crate::store::MongoStore;

impl MongoStore {
    /// Whether the tenure lasts that a write is made in; without a guard, always. In the same
    /// transaction, and as a write to the lock: whoever takes the lock over meets it, and either
    /// waits for the end of this transaction or makes it begin again. [guard.write]
    pub(crate) async fn is_tenure(
        &self,
        tx: &mut Tx<'_>,
        side: &Side,
        guard: Option<&Guard>,
    ) -> Result<bool> {
        let Some(guard) = guard else {
            return Ok(true);
        };
        let now = self.now(side).await?;
        let (name, owner) = (guard.lock.as_str(), guard.owner.as_str());
        let held = pipelines::held_lock(name, owner, guard.fence.0, now);
        let touch = doc! { "$inc": { "guarded": 1_i64 } };
        Ok(tx.update_one(&side.locks, held, touch).await? > 0)
    }

    /// Calls for a write with this guard: a transaction if there is one.
    pub(crate) async fn begin_guarded<'a>(
        &self,
        side: &'a Side,
        guard: Option<&Guard>,
    ) -> Result<Tx<'a>> {
        if guard.is_some() {
            self.need_transactions("a guarded write")?;
        }
        self.begin(side).await
    }

    /// Deletes old finished jobs.
    pub(crate) async fn purge_jobs(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        let side = self.main();
        let now = self.millis(side).await?;
        let mut tx = self.begin_guarded(side, request.guard.as_ref()).await?;
        let purged = async {
            if !self
                .is_tenure(&mut tx, side, request.guard.as_ref())
                .await?
            {
                return Ok(Guarded::Stale);
            }
            let gone = self.purge_inside(&mut tx, request, now).await?;
            Ok(Guarded::Done(gone))
        }
        .await;
        tx.finish(purged).await
    }

    /// Goes on behind those that were left for their children. [purge.old] [purge.awaited] Index
    /// `finished`.
    async fn purge_inside(&self, tx: &mut Tx<'_>, request: &PurgeRequest, now: i64) -> Result<u64> {
        let side = self.main();
        // Longer ago than the clock can say is never.
        let before = now.saturating_sub(duration_millis(request.older_than).min(LONGEST));
        let state = code(request.state);
        let fields = doc! { "finished_at": 1, "children": 1, "links": 1 };
        // One that was requeued meanwhile stays.
        let still = doc! { "state": state, "finished_at": { "$lt": before } };
        let (mut gone, mut behind) = (0, None);
        while gone < request.limit {
            let wanted = request.limit - gone;
            let options = FindOptions::builder()
                .sort(doc! { "finished_at": 1, "_id": 1 })
                .limit(i64::try_from(wanted).unwrap_or(i64::MAX))
                .projection(fields.clone())
                .build();
            let mut old = tx
                .find(&side.jobs, finished_before(state, before, behind), options)
                .await?;
            let more = old.len() == wanted;
            if let Some(last) = old.last() {
                behind = Some((row::int(last, "finished_at")?, row::job_id(last, "_id")?));
            }
            let awaited = self.awaited(tx, &old).await?;
            old.retain(|row| row::job_id(row, "_id").is_ok_and(|id| !awaited.contains(&id)));
            if !old.is_empty() {
                let mut these = Gone::default();
                for row in &old {
                    these.add(row::job_id(row, "_id")?, row);
                }
                let done = self.forget(tx, &these, still.clone()).await?;
                gone += usize::try_from(done).unwrap_or(wanted);
            }
            if !more || awaited.is_empty() {
                break;
            }
        }
        Ok(u64::try_from(gone).unwrap_or(u64::MAX))
    }

    /// Deletes those of these jobs that are still as the filter says, and all that they left but
    /// their idempotency keys; how many there were. [purge.keys] [delete.job] [link.kept]
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
            return Err(Failure::contention("a job was changed meanwhile"));
        }
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
        // A job that stayed keeps its own.
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

/// Jobs that are to be deleted.
#[derive(Default)]
pub(crate) struct Gone {
    pub(crate) jobs: Vec<JobId>,
    /// Those of them that have links.
    linked: Vec<JobId>,
    /// Those of them that others are linked to.
    parents: Vec<JobId>,
}

impl Gone {
    /// Adds the job of a document.
    pub(crate) fn add(&mut self, job: JobId, row: &RawDocument) {
        self.add_one(job, row::flag(row, "links"), row::flag(row, "children"));
    }

    pub(crate) fn add_one(&mut self, job: JobId, has_links: bool, has_children: bool) {
        self.jobs.push(job);
        self.linked.extend(has_links.then_some(job));
        self.parents.extend(has_children.then_some(job));
    }
}

/// The jobs of a terminal state that finished before this time, behind one that was looked at.
pub(crate) fn finished_before(state: i32, before: i64, behind: Option<(i64, JobId)>) -> Document {
    let mut old = doc! { "state": state, "finished_at": { "$lt": before } };
    if let Some((at, id)) = behind {
        old.insert("finished_at", doc! { "$gte": at, "$lt": before });
        let later = doc! { "finished_at": { "$gt": at } };
        old.insert("$or", vec![later, doc! { "_id": { "$gt": row::id(id) } }]);
    }
    old
}
