use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::JobId;
use crate::model::{
    ArchiveFilter, ArchivePage, ArchivePurge, ArchivedJob, Guarded, PageRequest, PurgeRequest,
};

/// The archive: finished jobs that were moved out of the way, whole, as documents.
///
/// A power that a store need not have. Only the store itself knows where archived jobs are; what a
/// document says is [`ArchivedJob::encode`]'s and [`ArchivedJob::decode`]'s.
#[async_trait]
pub trait ArchiveStore: Debug + Send + Sync {
    /// Moves old finished jobs into the archive, and says how many.
    ///
    /// # Contract
    /// - **[archive.old]** Only jobs in the given terminal state that finished longer ago than
    ///   `older_than`; the longest finished first, at most `limit`. The order of jobs that finished
    ///   at the same time is unspecified.
    /// - **[archive.awaited]** None whose children have not all ended, since those may read its
    ///   result; it keeps no other.
    /// - **[archive.move]** Each is in the archive with everything known about it and its whole
    ///   history, and is deleted as by a purge, in one step: a reader that looks for it first among
    ///   the jobs and then in the archive finds it. A job archived under an id that is in the archive
    ///   already takes that place.
    /// - **[archive.race]** A job that is requeued or deleted at the same time is archived or is
    ///   what that made of it, and never both.
    /// - **[archive.keys]** Idempotency keys stay used.
    /// - **[archive.poison]** A job of which not everything can be read is archived as far as it
    ///   can. One that cannot be read at all stays where it is and keeps no other.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store; then nothing has changed.
    async fn archive(&self, request: &PurgeRequest) -> Result<Guarded<u64>>;

    /// Reads archived jobs.
    ///
    /// # Contract
    /// - **[archive.get]** One answer per id, in order; `None` for a job that is not in the
    ///   archive or whose document cannot be read.
    ///
    /// # Errors
    /// `Invalid` if there are too many, or a failure of the store.
    async fn archived(&self, ids: &[JobId]) -> Result<Vec<Option<ArchivedJob>>>;

    /// Reads one page of the archived jobs that match the filter.
    ///
    /// # Contract
    /// - **[archive.list]** Exactly those that [`ArchiveFilter::matches`], in the order asked for,
    ///   behind the given job, at most `limit`; walking by `next` until there is none visits each
    ///   once. Those whose documents cannot be read are left out.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn list_archived(
        &self,
        filter: &ArchiveFilter,
        page: &PageRequest,
    ) -> Result<ArchivePage>;

    /// Deletes archived jobs, and says how many.
    ///
    /// # Contract
    /// - **[archive.purge]** Only those that finished longer ago than `older_than`; the longest
    ///   finished first, at most `limit`; the order of jobs that finished at the same time is
    ///   unspecified. Nothing else changes, and idempotency keys stay used.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn purge_archive(&self, request: &ArchivePurge) -> Result<Guarded<u64>>;
}
