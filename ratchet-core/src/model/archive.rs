//! The archive: archived jobs, and requests to read or delete them.

mod document;

use std::time::Duration;

use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::limits;
use crate::model::{Attempt, Guard, JobRecord, PageRequest};
use crate::name::Name;
use crate::state::JobState;
use crate::time::Timestamp;

/// A job in the archive.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::{ArchiveFilter, PageRequest};
///
/// if let Some(archive) = client.archive() {
///     let page = archive.list(&ArchiveFilter::all(), &PageRequest::first(100)).await?;
///     for archived in &page.jobs {
///         println!("{} {}", archived.job.id, archived.archived_at);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchivedJob {
    /// The job as it was when the store archived it.
    pub job: JobRecord,
    /// The ended claims of the job, first to last.
    pub history: Vec<Attempt>,
    /// When the job was archived, by the database's clock.
    pub archived_at: Timestamp,
}

impl ArchivedJob {
    /// Returns the document in which stores keep a finished job and its history.
    ///
    /// The document is a JSON object:
    /// - `v` is the version of the format, 1.
    /// - The job has the fields `id`, `queue`, `kind`, `capability`, `permit`, `payload`,
    ///   `payload_version`, `priority`, `retry`, `timeout`, `stall_timeout`, `unique_key`,
    ///   `idempotency_key`, `lane`, `traceparent`, `tracestate`, `tags`, `state`, `run_at`,
    ///   `created_at`, `finished_at`, `attempts`, `crash_count`, `claim_seq`, `progress`,
    ///   `checkpoint`, `result`, `last_error`, `recurring` (`name` of the definition and `slot`),
    ///   `after` (links, each with the `kind` of the parent, 0 for a job and 1 for a batch, its id
    ///   as `parent`, and `condition`), `batch`, `signal` (`key` and `timeout`), `signal_deadline`
    ///   and `delivered` (`at` and `payload`).
    /// - `history` is a list of objects with `seq`, `node`, `claimed_at`, `ended_at`, `ran_for_us`,
    ///   `outcome` and `error`.
    ///
    /// Times are milliseconds since 1970, durations are milliseconds, and states, priorities and
    /// outcomes are their stored numbers. Payload, checkpoint and result are strings that contain
    /// JSON text, because the text of a damaged job may not be valid JSON. A field may be left out
    /// if its value is absent or the default. A reader ignores unknown fields.
    ///
    /// # Errors
    /// [`InvalidInput`] if the document cannot be serialized.
    pub fn encode(job: &JobRecord, history: &[Attempt]) -> Result<String, InvalidInput> {
        document::encode(job, history)
    }

    /// Reads a document that [`encode`](Self::encode) returned in this version or an earlier one.
    ///
    /// # Errors
    /// [`InvalidInput`] on `document` if it is not such a document.
    pub fn decode(document: &str, archived_at: Timestamp) -> Result<Self, InvalidInput> {
        let (job, history) = document::decode(document)?;
        Ok(Self {
            job,
            history,
            archived_at,
        })
    }
}

/// A filter for archived jobs. A job matches if it matches every part that is set.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::{ArchiveFilter, PageRequest};
///
/// if let Some(archive) = client.archive() {
///     let page = archive.list(&ArchiveFilter::all(), &PageRequest::first(100)).await?;
///     for archived in &page.jobs {
///         println!("{} {}", archived.job.id, archived.archived_at);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveFilter {
    /// Only jobs that ended in one of these states; empty means any.
    pub states: Vec<JobState>,
    /// Only jobs that were in this queue; `None` for any.
    pub queue: Option<Name>,
    /// Only jobs of this kind; `None` for any.
    pub kind: Option<Name>,
}

impl ArchiveFilter {
    /// Creates a filter that every archived job matches.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects only jobs that ended in this state. Several calls select jobs in any of the given
    /// states.
    #[must_use]
    pub fn state(mut self, state: JobState) -> Self {
        self.states.push(state);
        self
    }

    /// Selects only jobs that were in this queue.
    #[must_use]
    pub fn queue(mut self, queue: Name) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Selects only jobs of this kind.
    #[must_use]
    pub fn kind(mut self, kind: Name) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Returns the states that match.
    #[must_use]
    pub fn wanted_states(&self) -> &[JobState] {
        if self.states.is_empty() {
            &JobState::ALL
        } else {
            &self.states
        }
    }

    /// Returns whether the archived job matches.
    #[must_use]
    pub fn matches(&self, archived: &ArchivedJob) -> bool {
        let (job, route) = (&archived.job, &archived.job.spec.route);
        self.wanted_states().contains(&job.state)
            && (self.queue.as_ref()).is_none_or(|queue| *queue == route.queue)
            && self.kind.as_ref().is_none_or(|kind| *kind == route.kind)
    }
}

/// A page of archived jobs.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::{ArchiveFilter, PageRequest};
///
/// if let Some(archive) = client.archive() {
///     let page = archive.list(&ArchiveFilter::all(), &PageRequest::first(100)).await?;
///     for archived in &page.jobs {
///         println!("{} {}", archived.job.id, archived.archived_at);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivePage {
    /// The jobs, in order.
    pub jobs: Vec<ArchivedJob>,
    /// The last job of this page, after which the next page begins. `None` on the last page.
    pub next: Option<JobId>,
}

impl ArchivePage {
    /// Creates a page from the rows that [`PageRequest::read_limit`] asked for. Each row has the id
    /// of a job, and the job itself unless its document cannot be read.
    #[must_use]
    pub fn cut(mut rows: Vec<(JobId, Option<ArchivedJob>)>, page: &PageRequest) -> Self {
        let next = page.cut(&mut rows).map(|(id, _)| *id);
        let jobs = rows.into_iter().filter_map(|(_, job)| job).collect();
        Self { jobs, next }
    }
}

/// A request to delete archived jobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ArchivePurge {
    /// Only jobs that finished longer ago than this, by the database's clock.
    pub older_than: Duration,
    /// The maximum number of jobs in one pass; at least 1.
    pub limit: usize,
    /// The tenure of the caller; the pass takes effect only while it lasts. `None` if any caller
    /// may run the pass.
    pub guard: Option<Guard>,
}

impl ArchivePurge {
    /// Selects up to `limit` archived jobs that finished more than `older_than` ago.
    #[must_use]
    pub const fn new(older_than: Duration, limit: usize) -> Self {
        Self {
            older_than,
            limit,
            guard: None,
        }
    }

    /// Lets the pass take effect only while this tenure lasts.
    #[must_use]
    pub fn guarded(mut self, guard: Option<Guard>) -> Self {
        self.guard = guard;
        self
    }

    /// Refuses a limit of 0 or above [`limits::MAX_BATCH`].
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`].
    pub fn validate(&self) -> Result<(), StoreError> {
        limits::check_limit("limit", self.limit).map_err(|problem| {
            StoreError::new(StoreErrorKind::Invalid, "purge_archive").with_source(problem)
        })
    }
}
