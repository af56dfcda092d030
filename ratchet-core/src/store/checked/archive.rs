use async_trait::async_trait;

use super::{Checked, Repeat, check, part};
use crate::error::Result;
use crate::id::JobId;
use crate::limits::check_batch;
use crate::model::{
    ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Guarded, PageRequest, PurgeRequest,
};
use crate::store::{ArchiveStore, Store};

#[async_trait]
impl<S: Store + ?Sized> ArchiveStore for Checked<S> {
    async fn archive(&self, request: &PurgeRequest) -> Result<Guarded<u64>> {
        let store = part("archive", self.store.archive())?;
        check("archive", request.validate())?;
        self.call_and_repeat("archive", Repeat::Briefly, || store.archive(request))
            .await
    }

    async fn archived(&self, ids: &[JobId]) -> Result<Vec<Option<ArchivedJob>>> {
        let store = part("archived", self.store.archive())?;
        check("archived", check_batch("ids", ids.len()))?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.call("archived", || store.archived(ids)).await
    }

    async fn list_archived(
        &self,
        filter: &ArchiveFilter,
        page: &PageRequest,
    ) -> Result<ArchivePage> {
        let store = part("list_archived", self.store.archive())?;
        check("list_archived", page.validate())?;
        self.call("list_archived", || store.list_archived(filter, page))
            .await
    }

    async fn purge_archive(&self, request: &ArchivePurge) -> Result<Guarded<u64>> {
        let store = part("purge_archive", self.store.archive())?;
        check("purge_archive", request.validate())?;
        self.call("purge_archive", || store.purge_archive(request))
            .await
    }
}
