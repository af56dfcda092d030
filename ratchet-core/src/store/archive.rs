use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::JobId;
use crate::model::{
    ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Guarded, PageRequest, PurgeRequest,
};

/// The archive. It contains finished jobs that were moved out of the job tables, each as one
/// document.
///
/// A store may lack this part. The store decides where it keeps the documents.
/// [`ArchivedJob::encode`] and [`ArchivedJob::decode`] define their content.
#[async_trait]
pub trait ArchiveStore: Debug + Send + Sync {
    /// Moves old finished jobs into the archive, and returns how many.
    ///
    /// # Contract
    /// - **[archive.old]** The call archives only jobs in the given terminal state that finished
    ///   more than `older_than` ago: at most `limit` jobs, the earliest end first. The order of
    ///   jobs that finished at the same time is unspecified.
    /// - **[archive.awaited]** The call does not archive a job before all its children have ended,
    ///   because the children may read the job's result. The call archives other jobs nevertheless.
    /// - **[archive.move]** In one step, the call stores the job in the archive, with all its data
    ///   and its whole history, and deletes the job as a purge does. So a reader that searches the
    ///   jobs first and then the archive always finds the job. If the archive already has a job
    ///   with this id, the call replaces the archived job.
    /// - **[archive.race]** If a job is requeued or deleted while the call runs, either the job is
    ///   archived or the other action takes effect, never both.
    /// - **[archive.keys]** The idempotency keys of archived jobs stay used.
    /// - **[archive.poison]** A job that can be read only in part is archived with the part that
    ///   can be read. A job that cannot be read at all is not archived, and the call archives other
    ///   jobs nevertheless.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store. After an error, nothing has changed.
    async fn archive(&self, request: &PurgeRequest) -> Result<Guarded<u64>>;

    /// Reads archived jobs.
    ///
    /// # Contract
    /// - **[archive.get]** The call returns one answer per id, in order: the archived job, or
    ///   `None` if the job is not in the archive or its document cannot be read.
    ///
    /// # Errors
    /// `Invalid` if there are too many ids, or a failure of the store.
    async fn archived(&self, ids: &[JobId]) -> Result<Vec<Option<ArchivedJob>>>;

    /// Reads one page of the archived jobs that match the filter.
    ///
    /// # Contract
    /// - **[archive.list]** A page has at most `limit` archived jobs that match the filter
    ///   ([`ArchiveFilter::matches`]) and come after the job `after`, in the requested order. A
    ///   caller that reads page after page, until `next` is `None`, gets each matching job exactly
    ///   once. Jobs whose documents cannot be read are left out.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn list_archived(
        &self,
        filter: &ArchiveFilter,
        page: &PageRequest,
    ) -> Result<ArchivePage>;

    /// Deletes archived jobs, and returns how many.
    ///
    /// # Contract
    /// - **[archive.purge]** The call deletes only archived jobs that finished more than
    ///   `older_than` ago: at most `limit` jobs, the earliest end first. The order of jobs that
    ///   finished at the same time is unspecified. Nothing else changes, and idempotency keys stay
    ///   used.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn purge_archive(&self, request: &ArchivePurge) -> Result<Guarded<u64>>;
}
