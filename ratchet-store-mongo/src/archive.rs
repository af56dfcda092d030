//! [`ArchiveStore`] on MongoDB. The archive exists only on servers with transactions.

use std::collections::HashMap;

use async_trait::async_trait;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::{FindOptions, Hint};
use ratchet_core::model::{
    ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Guarded, PageRequest, PurgeRequest,
};
use ratchet_core::store::ArchiveStore;
use ratchet_core::time::from_millis;
use ratchet_core::{InvalidInput, JobId, Result};

use crate::connection::Tx;
use crate::error::Result as Inner;
use crate::passes::Fate;
use crate::pipelines::{code, ids};
use crate::purge::Gone;
use crate::read::attempts;
use crate::row;
use crate::select::{behind, order};
use crate::store::MongoStore;

/// Maximum size of an archived job's text, in bytes. The server limits a whole document to 16 MiB.
const LONGEST_TEXT: usize = 15 * 1024 * 1024;

#[async_trait]
impl ArchiveStore for MongoStore {
    async fn archive(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        const OPERATION: &str = "archive";
        self.pass(OPERATION, request, Fate::Archived).await
    }

    async fn archived(&self, ids: &[JobId]) -> Result<Vec<Option<ArchivedJob>>> {
        const OPERATION: &str = "archived";
        self.call(OPERATION, || self.read_archived(ids)).await
    }

    async fn list_archived(
        &self,
        filter: &ArchiveFilter,
        page: &PageRequest,
    ) -> Result<ArchivePage> {
        const OPERATION: &str = "list_archived";
        self.call(OPERATION, || self.read_archive_page(filter, page))
            .await
    }

    /// Deletes archived jobs that finished longer ago than `request.older_than`. Returns the number
    /// of deleted jobs. [archive.purge]
    async fn purge_archive(&self, request: &ArchivePurge) -> Result<Guarded<u64>> {
        let (age, limit, guard) = (request.older_than, request.limit, request.guard.as_ref());
        self.call_once("purge_archive", || {
            self.delete_older(|side| &side.archive, "finished_at", age, limit, guard)
        })
        .await
    }
}

impl MongoStore {
    /// Moves these jobs with their histories to the archive, and returns the number of moved jobs.
    /// Jobs that cannot be read or are too large are not moved. [archive.move] [archive.poison]
    pub(crate) async fn put_away(
        &self,
        tx: &mut Tx<'_>,
        request: &PurgeRequest,
        old: &[RawDocumentBuf],
        now: i64,
    ) -> Inner<usize> {
        let side = self.main();
        if old.is_empty() {
            return Ok(0);
        }
        let old = row::job_ids(old);
        let these = doc! { "_id": { "$in": ids(&old) } };
        let old = tx.find(&side.jobs, these, FindOptions::default()).await?;
        let rows: HashMap<JobId, &RawDocumentBuf> = old
            .iter()
            .map(|row| Ok((row::job_id(row, "_id")?, row)))
            .collect::<Result<_, InvalidInput>>()?;
        let jobs = self.shown_by(tx, &old).await?;
        let all: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let moved = doc! { "job": { "$in": ids(&all) } };
        let moved = tx
            .find(&side.attempts, moved, FindOptions::default())
            .await?;
        let (mut gone, mut documents) = (Gone::default(), Vec::new());
        for job in &jobs {
            let Some(row) = rows.get(&job.id) else {
                continue;
            };
            let of_job = |one: &&RawDocumentBuf| row::job_id(one, "job") == Ok(job.id);
            let history = attempts(row, moved.iter().filter(of_job), job.id)?;
            let text = ArchivedJob::encode(job, &history)?;
            if text.len() > LONGEST_TEXT {
                let bytes = text.len();
                tracing::warn!(job = %job.id, bytes, "a job is too large for the archive, so it is \
                    not archived");
                continue;
            }
            let archived = doc! {
                "_id": row::id(job.id),
                "state": code(job.state),
                "finished_at": row::int(row, "finished_at")?,
                "archived_at": now,
                "queue": job.spec.route.queue.as_str(),
                "kind": job.spec.route.kind.as_str(),
                "document": text,
            };
            documents.push(RawDocumentBuf::try_from(&archived)?);
            gone.add(job.id, row);
        }
        if gone.jobs.is_empty() {
            return Ok(0);
        }
        let same = doc! { "_id": { "$in": ids(&gone.jobs) } };
        tx.delete_many(&side.archive, same).await?;
        tx.insert_many(&side.archive, &documents).await?;
        let still = doc! { "state": code(request.state) };
        self.forget(tx, &gone, still).await?;
        Ok(gone.jobs.len())
    }

    async fn read_archived(&self, jobs: &[JobId]) -> Inner<Vec<Option<ArchivedJob>>> {
        let side = self.main();
        let wanted = doc! { "_id": { "$in": ids(jobs) } };
        let mut on = side.plain();
        let rows = on.find(&side.archive, wanted, shown_fields()).await?;
        let found: Inner<HashMap<_, _>> = rows.iter().map(|row| archived(row)).collect();
        let found = found?;
        let found = |id| found.get(id).cloned().flatten();
        Ok(jobs.iter().map(found).collect())
    }

    /// Returns one page of the archived jobs that match the filter. [archive.list]
    async fn read_archive_page(
        &self,
        filter: &ArchiveFilter,
        page: &PageRequest,
    ) -> Inner<ArchivePage> {
        let side = self.main();
        let mut wanted = Document::new();
        if !filter.states.is_empty() {
            let states: Vec<i32> = filter.states.iter().map(|state| code(*state)).collect();
            wanted.insert("state", doc! { "$in": states });
        }
        for (field, name) in [("queue", &filter.queue), ("kind", &filter.kind)] {
            if let Some(name) = name {
                wanted.insert(field, name.as_str());
            }
        }
        wanted.extend(behind(page));
        let mut options = shown_fields();
        options.sort = Some(doc! { "_id": order(page) });
        options.limit = Some(i64::try_from(page.read_limit()).unwrap_or(i64::MAX));
        options.hint = Some(Hint::Name("_id_".to_owned()));
        let rows = side.plain().find(&side.archive, wanted, options).await?;
        let jobs: Inner<_> = rows.iter().map(|row| archived(row)).collect();
        Ok(ArchivePage::cut(jobs?, page))
    }
}

fn shown_fields() -> FindOptions {
    let fields = doc! { "archived_at": 1, "document": 1 };
    row::fields(fields)
}

/// Reads the job's id and the archived job from a document of the collection `archive`. The
/// archived job is `None` if its text cannot be read.
fn archived(row: &RawDocument) -> Inner<(JobId, Option<ArchivedJob>)> {
    let id = row::job_id(row, "_id")?;
    let read = || {
        let text = row::text(row, "document")?.unwrap_or_default();
        ArchivedJob::decode(text, from_millis(row::int(row, "archived_at")?))
    };
    let unreadable =
        |error: &InvalidInput| tracing::warn!(job = %id, %error, "an archived job cannot be read");
    Ok((id, read().inspect_err(unreadable).ok()))
}
