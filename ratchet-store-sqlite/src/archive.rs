//! [`ArchiveStore`] on SQLite.

use async_trait::async_trait;
use ratchet_core::model::{
    ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Detail, Guarded, JobFlags, JobOrder,
    JobRecord, PageRequest, PurgeRequest,
};
use ratchet_core::store::ArchiveStore;
use ratchet_core::time::{duration_millis, from_millis};
use ratchet_core::{JobId, JobState, Name, Result};
use rusqlite::{Row, params};

use crate::enqueue::forget_keys;
use crate::error::Result as Inner;
use crate::locks::is_tenure;
use crate::queue::Urgency;
use crate::read::{beginning, mask_of};
use crate::request::Work;
use crate::statements::SQL;
use crate::store::SqliteStore;
use crate::{act, read, row};

#[async_trait]
impl ArchiveStore for SqliteStore {
    async fn archive(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        const OPERATION: &str = "archive";
        let (looked, request) = (request.clone(), request.clone());
        self.write_unless(
            OPERATION,
            move |work| act::nothing_to_purge(work, &looked),
            move |work| archive(work, &request),
        )
        .await
    }

    async fn archived(&self, ids: &[JobId]) -> Result<Vec<Option<ArchivedJob>>> {
        const OPERATION: &str = "archived";
        let ids = ids.to_vec();
        self.read(OPERATION, move |work| get(work, &ids)).await
    }

    async fn list_archived(
        &self,
        filter: &ArchiveFilter,
        page: &PageRequest,
    ) -> Result<ArchivePage> {
        const OPERATION: &str = "list_archived";
        let (filter, page) = (filter.clone(), *page);
        self.read(OPERATION, move |work| list(work, &filter, &page))
            .await
    }

    async fn purge_archive(&self, request: &ArchivePurge) -> Result<Guarded<u64>> {
        let request = request.clone();
        self.write("purge_archive", Urgency::Normal, move |work| {
            purge(work, &request)
        })
        .await
    }
}

/// A finished job that is old enough to be archived.
struct Old {
    id: JobId,
    data: i64,
    flags: JobFlags,
    finished_at: i64,
}

/// Moves old finished jobs into the archive, and returns how many it moved. Skips jobs that cannot
/// be read.
fn archive(work: &mut Work<'_>, request: &PurgeRequest) -> Inner<Guarded<u64>> {
    if !is_tenure(work, request.guard.as_ref())? {
        return Ok(Guarded::Stale);
    }
    forget_keys(work, request.limit)?;
    let cutoff = work.now.saturating_sub(duration_millis(request.older_than));
    let (mut done, mut behind) = (0, (i64::MIN, JobId::from_bytes([0; 16])));
    while done < request.limit {
        let wanted = request.limit - done;
        let old = old_jobs(work, request.state, cutoff, behind, wanted)?;
        for one in &old {
            if let Some(job) = read::get(work, &[one.id], Detail::Whole)?.pop().flatten() {
                put_away(work, one, &job)?;
                done += 1;
            }
            behind = (one.finished_at, one.id);
        }
        if old.len() < wanted {
            break;
        }
    }
    Ok(Guarded::Done(done as u64))
}

fn old_jobs(
    work: &Work<'_>,
    state: JobState,
    cutoff: i64,
    behind: (i64, JobId),
    limit: usize,
) -> Inner<Vec<Old>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = work.conn.prepare_cached(&SQL.archive_due)?;
    let behind_id = behind.1.as_bytes();
    let found = statement.query_map(
        params![state.code(), cutoff, behind.0, behind_id, limit],
        |row| {
            Ok(Old {
                id: row::job_id(row, 0)?,
                data: row.get(1)?,
                finished_at: row.get(2)?,
                flags: row::flags(row, 3)?,
            })
        },
    )?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

fn put_away(work: &Work<'_>, old: &Old, job: &JobRecord) -> Inner<()> {
    let document = ArchivedJob::encode(job, &read::history(work, old.id)?)?;
    let route = &job.spec.route;
    work.conn
        .prepare_cached(&SQL.archive_job)?
        .execute(params![
            old.id.as_bytes(),
            job.state.code(),
            old.finished_at,
            work.now,
            route.queue.as_str(),
            route.kind.as_str(),
            document,
        ])?;
    act::forget(work, &[(old.id, old.data, old.flags)])
}

fn get(work: &Work<'_>, ids: &[JobId]) -> Inner<Vec<Option<ArchivedJob>>> {
    let mut statement = work.conn.prepare_cached(&SQL.get_archived)?;
    ids.iter()
        .map(|id| {
            let mut rows = statement.query([id.as_bytes()])?;
            Ok(rows.next()?.and_then(archived))
        })
        .collect()
}

fn list(work: &Work<'_>, filter: &ArchiveFilter, page: &PageRequest) -> Inner<ArchivePage> {
    let mut statement = work.conn.prepare_cached(match page.order {
        JobOrder::OldestFirst => &SQL.list_archived_oldest,
        JobOrder::NewestFirst => &SQL.list_archived_newest,
    })?;
    let limit = i64::try_from(page.read_limit()).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![
        mask_of(filter.wanted_states()),
        filter.queue.as_ref().map(Name::as_str),
        filter.kind.as_ref().map(Name::as_str),
        beginning(page),
        limit,
    ])?;
    let mut read = Vec::new();
    while let Some(row) = rows.next()? {
        read.push((row::job_id(row, 0)?, archived(row)));
    }
    Ok(ArchivePage::cut(read, page))
}

/// Reads an archived job from a row. Returns `None` if the document of the job cannot be read.
fn archived(row: &Row<'_>) -> Option<ArchivedJob> {
    let id = row::job_id(row, 0).ok()?;
    let read = || {
        let document = row::text(row, 2, "document")?.unwrap_or_default();
        ArchivedJob::decode(document, from_millis(row::number(row, 1, "archived_at")?))
    };
    read()
        .map_err(|error| tracing::warn!(job = %id, %error, "an archived job cannot be read"))
        .ok()
}

fn purge(work: &Work<'_>, request: &ArchivePurge) -> Inner<Guarded<u64>> {
    if !is_tenure(work, request.guard.as_ref())? {
        return Ok(Guarded::Stale);
    }
    let cutoff = work.now.saturating_sub(duration_millis(request.older_than));
    let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
    let purged = work
        .conn
        .prepare_cached(&SQL.purge_archive)?
        .execute(params![cutoff, limit])?;
    Ok(Guarded::Done(purged as u64))
}
