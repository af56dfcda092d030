//! Requests that read jobs (filters, pages, counts) or purge them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{StoreError, StoreErrorKind};
use crate::id::{BatchId, JobId};
use crate::limits;
use crate::model::{Guard, JobRecord, Pauses};
use crate::name::Name;
use crate::route::Route;
use crate::state::JobState;

/// A filter for jobs. A job matches if it matches every part that is set.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{JobFilter, JobState, Name, PageRequest, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let dead = JobFilter::all()
///     .state(JobState::Failed)
///     .queue(Name::new("queue", "mail")?);
/// let page = client.list(&dead, &PageRequest::first(50)).await?;
/// assert!(page.jobs.is_empty() && page.next.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobFilter {
    /// The states that the job may have; empty for any state.
    pub states: Vec<JobState>,
    /// The queue that the job must be in; `None` for any queue.
    pub queue: Option<Name>,
    /// The kind that the job must have; `None` for any kind.
    pub kind: Option<Name>,
    /// A tag that the job must have; `None` for any job.
    pub tag: Option<Name>,
    /// The batch that the job must be in; `None` for any job.
    pub batch: Option<BatchId>,
}

impl JobFilter {
    /// Creates a filter that every job matches.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects only jobs in this state. After several calls, the filter selects jobs in any of the
    /// given states.
    #[must_use]
    pub fn state(mut self, state: JobState) -> Self {
        self.states.push(state);
        self
    }

    /// Selects only jobs in this queue.
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

    /// Selects only jobs with this tag.
    #[must_use]
    pub fn tag(mut self, tag: Name) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Selects only jobs in this batch.
    #[must_use]
    pub const fn batch(mut self, batch: BatchId) -> Self {
        self.batch = Some(batch);
        self
    }

    /// Returns the states whose jobs can match: every state if [`states`](Self::states) is empty.
    #[must_use]
    pub fn wanted_states(&self) -> Vec<JobState> {
        if self.states.is_empty() {
            JobState::ALL.to_vec()
        } else {
            self.states.clone()
        }
    }

    /// Returns whether a job of this route can match.
    #[must_use]
    pub fn matches_route(&self, route: &Route) -> bool {
        let queue = self.queue.as_ref();
        queue.is_none_or(|queue| *queue == route.queue)
            && self.kind.as_ref().is_none_or(|kind| *kind == route.kind)
    }

    /// Returns whether the job matches.
    #[must_use]
    pub fn matches(&self, job: &JobRecord) -> bool {
        (self.states.is_empty() || self.states.contains(&job.state))
            && self.matches_route(&job.spec.route)
            && (self.tag.as_ref()).is_none_or(|tag| job.spec.tags.contains(tag))
            && self.batch.is_none_or(|batch| job.spec.batch == Some(batch))
    }
}

/// The order of a listing. Jobs are sorted by id. This is the order of their creation for jobs that
/// one process created, and approximately for other jobs. The id of a recurring job sorts by the
/// time of its slot.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::{JobFilter, JobOrder, PageRequest};
///
/// let mut page = PageRequest::first(100);
/// page.order = JobOrder::OldestFirst;
/// let listed = client.list(&JobFilter::all(), &page).await?;
/// println!("{} jobs, more: {}", listed.jobs.len(), listed.next.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobOrder {
    /// The highest id, and so the newest job, first.
    #[default]
    NewestFirst,
    /// The lowest id, and so the oldest job, first.
    OldestFirst,
}

/// The amount of data to read of each job.
///
/// ```
/// # async fn example(client: &ratchet::Client, job: ratchet::JobId) -> Result<(), ratchet::BoxError> {
/// use ratchet::Detail;
///
/// // Without payload, checkpoint and result: cheap for many jobs.
/// let found = client.jobs(&[job], Detail::Outline).await?;
/// # drop(found);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// All data.
    #[default]
    Whole,
    /// All data except the parts that may be large; see [`JobRecord::outline`]. This is enough for
    /// lists.
    Outline,
}

/// A request for one page of a listing.
///
/// The cursor of the next page is a job, not an offset. So a caller that reads all pages gets every
/// job that is stored and matches the filter during the whole time exactly once, even if other jobs
/// are added or removed between the pages.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{JobFilter, JobOrder, PageRequest, Ratchet};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let mut request = PageRequest::first(100).order(JobOrder::OldestFirst);
/// loop {
///     let page = client.list(&JobFilter::all(), &request).await?;
///     for job in &page.jobs {
///         println!("{} {}", job.id, job.state);
///     }
///     match page.next {
///         Some(last) => request = request.after(Some(last)),
///         None => break,
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PageRequest {
    /// The maximum number of jobs on the page, from 1 to [`limits::MAX_BATCH`].
    pub limit: usize,
    /// The job after which the page begins: [`JobPage::next`] of the previous page. `None` for the
    /// first page.
    pub after: Option<JobId>,
    /// The order of the jobs.
    pub order: JobOrder,
    /// The amount of data to read of each job. Has no effect on archived jobs, which are always
    /// read whole.
    pub detail: Detail,
}

impl PageRequest {
    /// Creates a request for the first `limit` jobs, newest first, with all their data.
    #[must_use]
    pub const fn first(limit: usize) -> Self {
        Self {
            limit,
            after: None,
            order: JobOrder::NewestFirst,
            detail: Detail::Whole,
        }
    }

    /// Sets the job after which the page begins. `None` requests the first page.
    #[must_use]
    pub const fn after(mut self, job: Option<JobId>) -> Self {
        self.after = job;
        self
    }

    /// Sets the order.
    #[must_use]
    pub const fn order(mut self, order: JobOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets the amount of data to read of each job; all data by default.
    #[must_use]
    pub const fn detail(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// Returns how many rows a store reads for the page: one more than the limit. The extra row
    /// shows whether there is a next page.
    #[must_use]
    pub const fn read_limit(&self) -> usize {
        self.limit.saturating_add(1)
    }

    /// Removes the rows beyond the limit. If there were any, there is a next page, and this method
    /// returns the last row of this page, after which the next page begins.
    pub fn cut<'r, T>(&self, rows: &'r mut Vec<T>) -> Option<&'r T> {
        let more = rows.len() > self.limit;
        rows.truncate(self.limit);
        rows.last().filter(|_| more)
    }

    /// Refuses a limit of 0 or above [`limits::MAX_BATCH`].
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`].
    pub fn validate(&self) -> Result<(), StoreError> {
        limits::check_limit("limit", self.limit).map_err(|problem| {
            StoreError::new(StoreErrorKind::Invalid, "list").with_source(problem)
        })
    }
}

/// A page of jobs.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::{JobFilter, JobOrder, PageRequest};
///
/// let mut page = PageRequest::first(100);
/// page.order = JobOrder::OldestFirst;
/// let listed = client.list(&JobFilter::all(), &page).await?;
/// println!("{} jobs, more: {}", listed.jobs.len(), listed.next.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct JobPage {
    /// The jobs, in order.
    pub jobs: Vec<JobRecord>,
    /// The last job of this page, after which the next page begins. `None` on the last page.
    pub next: Option<JobId>,
}

/// The number of jobs in each state; states without jobs are absent.
pub type StateCounts = BTreeMap<JobState, u64>;

/// A queue, whether it is paused, and the number of its jobs in each state.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::JobState;
///
/// for queue in client.queues().await? {
///     let pending = queue.counts.get(&JobState::Pending).copied().unwrap_or(0);
///     println!("{}: {pending} pending, paused: {}", queue.name, queue.paused);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// The name of the queue.
    pub name: Name,
    /// Whether the queue is paused. Nodes claim no jobs of a paused queue.
    pub paused: bool,
    /// The number of the queue's jobs in each state.
    pub counts: StateCounts,
}

impl QueueInfo {
    /// Collects the queues that are paused or have counts, in the order of their names. If `counts`
    /// has several counts for one queue and state, adds them up.
    #[must_use]
    pub fn collect(
        pauses: &Pauses,
        counts: impl IntoIterator<Item = (Name, JobState, u64)>,
    ) -> Vec<Self> {
        let empty = |queue: &Name| (queue.clone(), StateCounts::new());
        let mut queues: BTreeMap<Name, StateCounts> = pauses.queues().map(empty).collect();
        for (queue, state, count) in counts {
            let counts = queues.entry(queue).or_default();
            *counts.entry(state).or_default() += count;
        }
        let info = |(name, counts)| Self {
            paused: pauses.of_queue(&name).is_some(),
            name,
            counts,
        };
        queues.into_iter().map(info).collect()
    }
}

/// A request to delete finished jobs, or to move them into the archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PurgeRequest {
    /// The state of the jobs. It must be terminal.
    pub state: JobState,
    /// Only jobs that finished more than this long ago, by the database's clock.
    pub older_than: Duration,
    /// The maximum number of jobs in one pass, from 1 to [`limits::MAX_BATCH`].
    pub limit: usize,
    /// The tenure of the caller. The pass takes effect only while the tenure lasts. `None` if the
    /// pass requires no tenure.
    pub guard: Option<Guard>,
}

impl PurgeRequest {
    /// Creates a request for up to `limit` jobs that reached `state` more than `older_than` ago.
    #[must_use]
    pub const fn new(state: JobState, older_than: Duration, limit: usize) -> Self {
        Self {
            state,
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

    /// Refuses a limit of 0 or above [`limits::MAX_BATCH`], and a state that is not terminal.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`].
    pub fn validate(&self) -> Result<(), StoreError> {
        let invalid = |problem: crate::error::InvalidInput| {
            StoreError::new(StoreErrorKind::Invalid, "purge").with_source(problem)
        };
        if !self.state.is_terminal() {
            let problem = format!("is {}, which is not terminal", self.state);
            return Err(invalid(crate::error::InvalidInput::new("state", problem)));
        }
        limits::check_limit("limit", self.limit).map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PauseInfo, PauseScope};
    use crate::time::from_millis;

    fn name(text: &str) -> Name {
        Name::new("queue", text).unwrap()
    }

    #[test]
    fn a_row_more_than_the_page_shows_that_there_is_a_next_one() {
        let page = PageRequest::first(2);
        assert_eq!(page.read_limit(), 3);
        let cut = |mut rows: Vec<u8>| (page.cut(&mut rows).copied(), rows);
        assert_eq!(cut(vec![7, 8, 9]), (Some(8), vec![7, 8]));
        assert_eq!(cut(vec![7, 8]), (None, vec![7, 8]));
        assert_eq!(cut(vec![7]), (None, vec![7]));
        assert_eq!(cut(vec![]), (None, vec![]));
    }

    #[test]
    fn queues_are_those_with_jobs_and_the_paused_ones() {
        let pause = |queue| PauseInfo::new(PauseScope::Queue(name(queue)), from_millis(0));
        let mut pauses: Pauses = ["b", "d"].map(pause).into_iter().collect();
        pauses.add(PauseInfo::new(PauseScope::Kind(name("c")), from_millis(0)));
        let counts = [
            (name("c"), JobState::Pending, 1),
            (name("b"), JobState::Running, 2),
            (name("c"), JobState::Pending, 3),
            (name("c"), JobState::Failed, 4),
        ];
        let info = |queue, paused, counts: &[(JobState, u64)]| QueueInfo {
            name: name(queue),
            paused,
            counts: counts.iter().copied().collect(),
        };
        let expected = [
            info("b", true, &[(JobState::Running, 2)]),
            info("c", false, &[(JobState::Pending, 4), (JobState::Failed, 4)]),
            info("d", true, &[]),
        ];
        assert_eq!(QueueInfo::collect(&pauses, counts), expected);
    }
}
