//! The archive: archived jobs, and requests to read or delete them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::id::JobId;
use crate::limits;
use crate::model::job_document::{self, Live};
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
    /// The record of the job at the time when it was archived.
    pub job: JobRecord,
    /// The ended claims of the job, from the first to the last.
    pub history: Vec<Attempt>,
    /// When the job was archived, by the database's clock.
    pub archived_at: Timestamp,
}

impl ArchivedJob {
    /// Encodes a finished job and its history as the document that stores keep in the archive.
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
    /// Times are milliseconds since 1970. Durations are milliseconds, except `ran_for_us`, which is
    /// in microseconds. States, priorities and outcomes are their stored numbers. Payload,
    /// checkpoint and result are strings that contain JSON text, because the text of a damaged job
    /// may not be valid JSON. A field may be left out if its value is absent or the default. A
    /// reader ignores unknown fields.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the document cannot be serialized.
    pub fn encode(job: &JobRecord, history: &[Attempt]) -> Result<String, InvalidInput> {
        job_document::encode(job, history, Live::default())
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `document` if the text is not such a document.
    pub fn decode(document: &str, archived_at: Timestamp) -> Result<Self, InvalidInput> {
        let (job, history, _) = job_document::decode(document)?;
        Ok(Self {
            job,
            history,
            archived_at,
        })
    }
}

/// A filter for archived jobs. A job matches if it fits all fields that are set.
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
    /// The states in which matching jobs ended. Empty for all states.
    pub states: Vec<JobState>,
    /// The queue of matching jobs. `None` for all queues.
    pub queue: Option<Name>,
    /// The kind of matching jobs. `None` for all kinds.
    pub kind: Option<Name>,
}

impl ArchiveFilter {
    /// Creates a filter that every archived job matches.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Adds a state in which matching jobs may have ended. After several calls, a job matches if it
    /// ended in any of the added states.
    #[must_use]
    pub fn state(mut self, state: JobState) -> Self {
        self.states.push(state);
        self
    }

    /// Selects only jobs of this queue.
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

    /// Returns the states that match: the added states, or all states if none was added.
    #[must_use]
    pub fn wanted_states(&self) -> &[JobState] {
        if self.states.is_empty() {
            &JobState::ALL
        } else {
            &self.states
        }
    }

    /// Returns whether the archived job matches this filter.
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
    /// The jobs of the page, in the requested order.
    pub jobs: Vec<ArchivedJob>,
    /// The id of the last job of this page. The next page begins after this job. `None` on the last
    /// page.
    pub next: Option<JobId>,
}

impl ArchivePage {
    /// Creates a page from the rows that the store read, at most [`PageRequest::read_limit`] rows.
    /// Each row has a job's id, and the job itself unless its document cannot be read.
    #[must_use]
    pub fn cut(mut rows: Vec<(JobId, Option<ArchivedJob>)>, page: &PageRequest) -> Self {
        let next = page.cut(&mut rows).map(|(id, _)| *id);
        let jobs = rows.into_iter().filter_map(|(_, job)| job).collect();
        Self { jobs, next }
    }
}

/// A request to delete archived jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ArchivePurge {
    /// The time that must have passed since a job finished, by the database's clock.
    pub older_than: Duration,
    /// The maximum number of jobs that one call deletes; at least 1.
    pub limit: usize,
    /// The guard that names the caller's term as leader. If this term has ended, the store deletes
    /// nothing. `None` if the caller need not be the leader.
    pub guard: Option<Guard>,
}

impl ArchivePurge {
    /// Creates a request to delete up to `limit` archived jobs that finished more than `older_than`
    /// ago.
    #[must_use]
    pub const fn new(older_than: Duration, limit: usize) -> Self {
        Self {
            older_than,
            limit,
            guard: None,
        }
    }

    /// Sets the guard, which names the caller's term as leader. If this term has ended, the store
    /// deletes nothing.
    #[must_use]
    pub fn guarded(mut self, guard: Option<Guard>) -> Self {
        self.guard = guard;
        self
    }

    /// Checks that the limit is at least 1 and at most [`limits::MAX_BATCH`].
    ///
    /// # Errors
    /// Fails with [`StoreErrorKind::Invalid`] if the limit is out of range.
    pub fn validate(&self) -> Result<(), StoreError> {
        limits::check_limit("limit", self.limit).map_err(|problem| {
            StoreError::new(StoreErrorKind::Invalid, "purge_archive").with_source(problem)
        })
    }
}
