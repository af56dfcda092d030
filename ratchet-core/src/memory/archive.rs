use async_trait::async_trait;

use serde::{Deserialize, Serialize};

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::{InvalidInput, Result};
use crate::id::JobId;
use crate::model::{
    ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Guarded, JobOrder, PageRequest,
    PurgeRequest,
};
use crate::store::ArchiveStore;
use crate::time::{duration_millis, from_millis, to_millis};

/// A row of the archive: an archived job as a document.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Archived {
    finished_at: i64,
    archived_at: i64,
    document: String,
}

impl Archived {
    fn read(&self) -> Option<ArchivedJob> {
        ArchivedJob::decode(&self.document, from_millis(self.archived_at)).ok()
    }
}

#[async_trait]
impl ArchiveStore for MemoryStore {
    async fn archive(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        self.write(Command::Archive(request.into())).await
    }

    async fn archived(&self, ids: &[JobId]) -> Result<Vec<Option<ArchivedJob>>> {
        self.read("archived", |tables, _| {
            let read = |id: &JobId| tables.archive.get(id).and_then(Archived::read);
            ids.iter().map(read).collect()
        })
        .await
    }

    async fn list_archived(
        &self,
        filter: &ArchiveFilter,
        page: &PageRequest,
    ) -> Result<ArchivePage> {
        self.read("list_archived", |tables, _| {
            let rows = tables.archive.iter();
            let behind = rows.filter(|(id, _)| match (page.after, page.order) {
                (None, _) => true,
                (Some(after), JobOrder::OldestFirst) => **id > after,
                (Some(after), JobOrder::NewestFirst) => **id < after,
            });
            let matching = behind
                .filter_map(|(_, row)| row.read())
                .filter(|archived| filter.matches(archived));
            let mut jobs: Vec<ArchivedJob> = matching.collect();
            if page.order == JobOrder::NewestFirst {
                jobs.reverse();
            }
            let next = page.cut(&mut jobs).map(|last| last.job.id);
            ArchivePage { jobs, next }
        })
        .await
    }

    async fn purge_archive(&self, request: &ArchivePurge) -> Result<Guarded<u64>> {
        self.write(Command::PurgeArchive(request.into())).await
    }
}

impl Tables {
    pub(super) fn archive(
        &mut self,
        request: &PurgeRequest,
        now: i64,
    ) -> Result<Guarded<u64>, InvalidInput> {
        if !self.is_tenure(request.guard.as_ref(), now) {
            return Ok(Guarded::Stale);
        }
        self.forget_keys(now);
        let old = self.old(request, now);
        for id in &old {
            self.put_away(*id, now)?;
        }
        Ok(Guarded::Done(old.len() as u64))
    }

    pub(super) fn purge_archive(&mut self, request: &ArchivePurge, now: i64) -> Guarded<u64> {
        if !self.is_tenure(request.guard.as_ref(), now) {
            return Guarded::Stale;
        }
        let old = self.old_archived(request, now);
        for id in &old {
            self.archive.remove(id);
        }
        Guarded::Done(old.len() as u64)
    }

    /// Returns the archived jobs that this request selects for deletion.
    pub(super) fn old_archived(&self, request: &ArchivePurge, now: i64) -> Vec<JobId> {
        let cutoff = now.saturating_sub(duration_millis(request.older_than));
        let rows = self.archive.iter();
        let mut old: Vec<(i64, JobId)> = rows
            .map(|(id, row)| (row.finished_at, *id))
            .filter(|(finished_at, _)| *finished_at < cutoff)
            .collect();
        old.sort();
        old.truncate(request.limit);
        old.into_iter().map(|(_, id)| id).collect()
    }

    /// Moves a job into the archive.
    fn put_away(&mut self, id: JobId, now: i64) -> Result<(), InvalidInput> {
        let Some(row) = self.job(id) else {
            return Ok(());
        };
        let document = ArchivedJob::encode(&row.record, self.history(id))?;
        let finished_at = row.record.finished_at.map_or(now, to_millis);
        self.remove(id);
        let archived = Archived {
            finished_at,
            archived_at: now,
            document,
        };
        self.archive.insert(id, archived);
        Ok(())
    }
}
