//! The store's archive of ended jobs.

use async_trait::async_trait;
use ratchet_core::model::{
    ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Attempt, Guarded, JobOrder, PageRequest,
    PurgeRequest,
};
use ratchet_core::store::ArchiveStore;
use ratchet_core::time::{duration_millis, from_millis, to_millis};
use ratchet_core::{InvalidInput, JobId, Result};

use crate::call::{Call, Found, decoded};
use crate::engine::{Engine, Order, Transaction};
use crate::keys::{self, Key, Table};
use crate::store::KvStore;

/// Decodes a row of the archive. The row contains the time at which the job was archived, a line
/// break, and the document with the job and its history.
fn archived(row: &str) -> Result<ArchivedJob, InvalidInput> {
    let malformed = || InvalidInput::new("archive", "has no time");
    let (at, document) = row.split_once('\n').ok_or_else(malformed)?;
    ArchivedJob::decode(document, from_millis(at.parse().map_err(|_| malformed())?))
}

#[async_trait]
impl<E: Engine> ArchiveStore for KvStore<E> {
    async fn archive(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        let mut call = self.write("archive").await?;
        if !call.allows(request.guard.as_ref()).await? {
            return Ok(Guarded::Stale);
        }
        call.forget_keys(request.limit).await?;
        let old = call.old(request, false).await?;
        for found in &old {
            call.put_away(found).await?;
        }
        call.commit().await?;
        Ok(Guarded::Done(old.len() as u64))
    }

    async fn archived(&self, ids: &[JobId]) -> Result<Vec<Option<ArchivedJob>>> {
        let mut call = self.read("archived").await?;
        let mut jobs = Vec::with_capacity(ids.len());
        for id in ids {
            jobs.push(
                call.read(Key::new(Table::Archive).job(*id), archived)
                    .await?,
            );
        }
        Ok(jobs)
    }

    async fn list_archived(
        &self,
        filter: &ArchiveFilter,
        page: &PageRequest,
    ) -> Result<ArchivePage> {
        let mut call = self.read("list_archived").await?;
        let all = || Key::new(Table::Archive);
        let (mut keys, order) = match (page.order, page.after) {
            (JobOrder::OldestFirst, Some(job)) => {
                let start = keys::after(all().job(job).bytes());
                (all().from(start), Order::Ascending)
            }
            (JobOrder::OldestFirst, None) => (all().all(), Order::Ascending),
            (JobOrder::NewestFirst, Some(job)) => {
                (all().before(all().job(job).bytes()), Order::Descending)
            }
            (JobOrder::NewestFirst, None) => (all().all(), Order::Descending),
        };
        let mut rows = Vec::new();
        loop {
            let entries = call.page(&mut keys, order).await?;
            let is_last = entries.is_empty();
            let jobs = entries
                .iter()
                .filter_map(|(_, value)| decoded(value, archived));
            let matching = jobs.filter(|archived| filter.matches(archived));
            rows.extend(matching.map(|archived| (archived.job.id, Some(archived))));
            if is_last || rows.len() >= page.read_limit() {
                rows.truncate(page.read_limit());
                return Ok(ArchivePage::cut(rows, page));
            }
        }
    }

    async fn purge_archive(&self, request: &ArchivePurge) -> Result<Guarded<u64>> {
        let mut call = self.write("purge_archive").await?;
        if !call.allows(request.guard.as_ref()).await? {
            return Ok(Guarded::Stale);
        }
        let cutoff = call.now.saturating_sub(duration_millis(request.older_than));
        let by_end = Key::new(Table::ArchivedBy);
        let old = by_end.clone().before(by_end.number(cutoff).bytes());
        let old = call.range(old, Order::Ascending, request.limit).await?;
        for (key, _) in &old {
            if let Some(job) = keys::job_of(key) {
                call.remove(Key::new(Table::Archive).job(job).bytes())
                    .await?;
            }
            call.remove(key.clone()).await?;
        }
        call.commit().await?;
        Ok(Guarded::Done(old.len() as u64))
    }
}

impl<T: Transaction> Call<T> {
    /// Moves a job into the archive.
    async fn put_away(&mut self, found: &Found) -> Result<()> {
        let job = &found.job;
        let id = job.record.id;
        let entries = self.all(Key::new(Table::History).job(id).all()).await?;
        let read = |(_, value): &(_, Vec<u8>)| decoded(value, Attempt::decode);
        let history: Vec<Attempt> = entries.iter().filter_map(read).collect();
        let document = ArchivedJob::encode(&job.record, &history);
        let now = self.now;
        let row = document.map(|document| format!("{now}\n{document}"));
        self.write(Key::new(Table::Archive).job(id), row).await?;
        let ended = job.record.finished_at.map_or(now, to_millis);
        let by_end = Key::new(Table::ArchivedBy).number(ended).job(id);
        self.put(by_end, "").await?;
        self.delete(found).await
    }
}
