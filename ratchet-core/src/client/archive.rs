use super::Client;
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::model::{ArchiveFilter, ArchivePage, ArchivedJob, PageRequest};
use crate::store::{ArchiveStore, Store};

impl Client {
    /// Returns a client for the archive, or `None` if the store has no archive.
    #[must_use]
    pub fn archive(&self) -> Option<ArchiveClient> {
        self.store().archive()?;
        Some(ArchiveClient(self.clone()))
    }
}

/// A client that reads archived jobs. Cloning it is cheap.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{ArchiveFilter, PageRequest, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// if let Some(archive) = client.archive() {
///     let page = archive.list(&ArchiveFilter::default(), &PageRequest::first(50)).await?;
///     assert!(page.jobs.is_empty());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ArchiveClient(Client);

impl ArchiveClient {
    /// Returns the archived job with this id. Returns `None` if the archive does not contain the
    /// job or if the job cannot be read.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn job(&self, id: JobId) -> Result<Option<ArchivedJob>> {
        let ids = [id];
        let calls = &self.0.0.calls;
        let read = calls.call("archived", |store| async {
            archive(store)?.archived(&ids).await
        });
        Ok(read.await?.pop().flatten())
    }

    /// Returns one page of the archived jobs that match `filter`.
    ///
    /// # Errors
    /// `Invalid` if the limit of `page` is 0, or a failure of the store.
    pub async fn list(&self, filter: &ArchiveFilter, page: &PageRequest) -> Result<ArchivePage> {
        let calls = &self.0.0.calls;
        let list = calls.call("list_archived", |store| async {
            archive(store)?.list_archived(filter, page).await
        });
        list.await
    }
}

/// Returns the archive of the store, or an error if the store has no archive.
pub(crate) fn archive(store: &dyn Store) -> Result<&dyn ArchiveStore> {
    store.archive().ok_or_else(|| {
        StoreError::new(StoreErrorKind::Misconfigured, "archive")
            .with_source("the store has no archive")
    })
}
