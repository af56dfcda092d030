//! [`ArchiveStore`] on SQL.

use std::collections::HashMap;

use async_trait::async_trait;
use ratchet_core::model::{
    ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Attempt, Detail, Guarded, JobOrder,
    PageRequest, PurgeRequest,
};
use ratchet_core::store::ArchiveStore;
use ratchet_core::time::from_millis;
use ratchet_core::{InvalidInput, JobId, Name, Result};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result as Inner;
use crate::purge::{self, OldJobs};
use crate::read::beginning;
use crate::row;
use crate::store::SqlStore;

#[async_trait]
impl<D: Dialect> ArchiveStore for SqlStore<D> {
    async fn archive(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        const OPERATION: &str = "archive";
        // A repeat after a lost reply would archive other jobs, and would count only these.
        self.call_once(OPERATION, || self.archive_jobs(request))
            .await
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
        self.call(OPERATION, || self.read_archive(filter, page))
            .await
    }

    async fn purge_archive(&self, request: &ArchivePurge) -> Result<Guarded<u64>> {
        self.call_once("purge_archive", || {
            let purge = self.sql().purge_archive.query();
            let purge = purge
                .bind(purge::age(request.older_than))
                .bind(i64::try_from(request.limit).unwrap_or(i64::MAX));
            self.delete_guarded(purge, request.guard.as_ref())
        })
        .await
    }
}

/// Values for the statement `archive_jobs`: one list per column, with one element per finished job.
#[derive(Default)]
struct Documents {
    ids: Vec<Uuid>,
    states: Vec<i16>,
    finished_at: Vec<i64>,
    queues: Vec<String>,
    kinds: Vec<String>,
    documents: Vec<String>,
    /// The jobs that have an expiry.
    expiring: Vec<Uuid>,
}

impl<D: Dialect> SqlStore<D> {
    async fn archive_jobs(&self, request: &PurgeRequest) -> Inner<Guarded<u64>> {
        let Some(mut lease) = self
            .begin_guarded(self.lease().await?, request.guard.as_ref())
            .await?
        else {
            return Ok(Guarded::Stale);
        };
        let archived = self.archive_inside(&mut lease, request).await;
        lease.end(archived.map(Guarded::Done)).await
    }

    /// Moves old finished jobs into the archive, and returns the number of moved jobs. Locks each
    /// job first. Skips jobs that cannot be read. Must run in a transaction.
    async fn archive_inside(&self, lease: &mut D::Lease, request: &PurgeRequest) -> Inner<u64> {
        self.forget_keys(lease, request.limit).await?;
        let (mut old, mut done) = (OldJobs::new(request), 0);
        while done < request.limit && !old.is_over() {
            let jobs = self.lock_old(lease, &mut old, request.limit - done).await?;
            if !jobs.is_empty() {
                done += self.put_away(lease, &jobs).await?;
            }
        }
        Ok(done as u64)
    }

    /// Moves these jobs into the archive, and returns the number of moved jobs. Skips jobs that
    /// cannot be read.
    async fn put_away(&self, lease: &mut D::Lease, old: &[(JobId, i64)]) -> Inner<usize> {
        let ids: Vec<JobId> = old.iter().map(|(id, _)| *id).collect();
        let jobs = self.read_jobs_on(lease, &ids, Detail::Whole).await?;
        let mut histories = self.read_histories(lease, &ids).await?;
        let mut found = Documents::default();
        for ((id, finished_at), job) in old.iter().zip(jobs) {
            let Some(job) = job else {
                continue;
            };
            let history = histories.remove(id).unwrap_or_default();
            found.documents.push(ArchivedJob::encode(&job, &history)?);
            found.ids.push(id.as_uuid());
            (found.expiring).extend(job.expires_at.map(|_| id.as_uuid()));
            found.states.push(job.state.code().into());
            found.finished_at.push(*finished_at);
            found.queues.push(job.spec.route.queue.to_string());
            found.kinds.push(job.spec.route.kind.to_string());
        }
        let count = found.ids.len();
        let archive = self.sql().archive_jobs.query();
        let archive = archive.table(&[
            ("id", &found.ids),
            ("state", &found.states),
            ("finished_at", &found.finished_at),
            ("queue", &found.queues),
            ("kind", &found.kinds),
            ("document", &found.documents),
        ]);
        lease.execute(archive).await?;
        for some in found.ids.chunks(D::DELETES_AT_ONCE) {
            lease
                .rows(self.sql().delete_jobs.query().bind(some))
                .await?;
        }
        self.drop_expiries(lease, &found.expiring).await?;
        Ok(count)
    }

    async fn read_histories(
        &self,
        lease: &mut D::Lease,
        jobs: &[JobId],
    ) -> Inner<HashMap<JobId, Vec<Attempt>>> {
        let wanted: Vec<Uuid> = jobs.iter().map(JobId::as_uuid).collect();
        let mut histories: HashMap<JobId, Vec<Attempt>> = HashMap::new();
        let rows = lease
            .rows(self.sql().histories.query().bind(&wanted))
            .await?;
        for row in &rows {
            let job = row::job_id(row, 7)?;
            match row::attempt(row) {
                Ok(attempt) => histories.entry(job).or_default().push(attempt),
                Err(error) => tracing::warn!(%job, %error, "skipped a stored attempt that cannot \
                    be read"),
            }
        }
        Ok(histories)
    }

    async fn read_archived(&self, ids: &[JobId]) -> Inner<Vec<Option<ArchivedJob>>> {
        let wanted: Vec<Uuid> = ids.iter().map(JobId::as_uuid).collect();
        let get = self.sql().get_archived.query().bind(&wanted);
        let rows = self.lease().await?.rows(get).await?;
        let found: Inner<HashMap<_, _>> = rows.iter().map(archived).collect();
        let found = found?;
        let found = |id| found.get(id).cloned().flatten();
        Ok(ids.iter().map(found).collect())
    }

    async fn read_archive(&self, filter: &ArchiveFilter, page: &PageRequest) -> Inner<ArchivePage> {
        let sql = self.sql();
        let list = match page.order {
            JobOrder::OldestFirst => &sql.list_archived_oldest,
            JobOrder::NewestFirst => &sql.list_archived_newest,
        };
        let mut list = list.query().states(filter.wanted_states());
        for name in [&filter.queue, &filter.kind] {
            let text = name.as_ref().map(Name::as_str);
            list = list.bind(text.is_some()).bind(text.unwrap_or_default());
        }
        let list = list
            .bind(beginning(page))
            .bind(i64::try_from(page.read_limit()).unwrap_or(i64::MAX));
        let rows = self.lease().await?.rows(list).await?;
        let jobs: Inner<_> = rows.iter().map(archived).collect();
        Ok(ArchivePage::cut(jobs?, page))
    }
}

/// Decodes a row of the archive: the id of the job, and the archived job. The job is `None` if its
/// document cannot be read.
fn archived(row: &impl Row) -> Inner<(JobId, Option<ArchivedJob>)> {
    let id = row::job_id(row, 0)?;
    let read = || {
        let document = row::text(row, 2, "document")?.unwrap_or_default();
        let at = row
            .try_get(1)
            .map_err(|_| InvalidInput::new("archived_at", "is not a whole number"))?;
        ArchivedJob::decode(document, from_millis(at))
    };
    let unreadable =
        |error: &InvalidInput| tracing::warn!(job = %id, %error, "an archived job cannot be read");
    Ok((id, read().inspect_err(unreadable).ok()))
}
