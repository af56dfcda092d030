use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::client::Client;
use crate::error::Result;
use crate::id::{BatchId, JobId};
use crate::model::{BatchCondition, Condition, Enqueued, NewJob};

/// A set of linked jobs that are submitted together, such as a chain, a tree or a diamond.
///
/// All jobs are stored at once. Each becomes due when the jobs before it have ended as its
/// conditions require. If a job fails, the jobs that wait for its success are cancelled. The jobs
/// that wait for the success of a cancelled job are cancelled in turn. Jobs that wait for the
/// failure of the job, or for its end in any way, run.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
/// use std::sync::Arc;
/// use ratchet::{MemoryStore, NewJob, Ratchet, Workflow};
///
/// let flow = Workflow::new();
/// let fetch = flow.add(NewJob::new("fetch", "photo.png"));
/// let small = flow.add(NewJob::new("resize", &320)).after(&fetch);
/// let large = flow.add(NewJob::new("resize", &1280)).after(&fetch);
/// let publish = flow.add(NewJob::new("publish", &())).after_all([&small, &large]);
/// flow.add(NewJob::new("complain", &())).after_failure(&fetch);
///
/// let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// let last = publish.id();
/// client.submit(flow).await?;
/// assert!(client.job(last).await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Workflow(Arc<Mutex<Vec<NewJob>>>);

impl Workflow {
    /// Creates a workflow without steps.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job. It waits for no other job until a method of the returned step adds a condition.
    pub fn add(&self, job: NewJob) -> Step {
        let id = job.id();
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.push(job);
        Step {
            flow: self.clone(),
            place: jobs.len() - 1,
            id,
        }
    }

    /// Returns the jobs in the order in which they were added, to enqueue them by other means, such
    /// as inside a transaction.
    #[must_use]
    pub fn jobs(&self) -> Vec<NewJob> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.clone()
    }

    fn change(&self, place: usize, change: impl FnOnce(NewJob) -> NewJob) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = jobs.get_mut(place) {
            *job = change(job.clone());
        }
    }
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<JobId> = self.jobs().iter().map(NewJob::id).collect();
        f.debug_tuple("Workflow").field(&ids).finish()
    }
}

/// A job of a [`Workflow`].
///
/// ```
/// use ratchet::{NewJob, Workflow};
///
/// let flow = Workflow::new();
/// let fetch = flow.add(NewJob::new("fetch", &1));
/// let report = flow.add(NewJob::new("report", &1)).after(&fetch);
/// println!("the report is {}", report.id());
/// ```
#[derive(Clone, Debug)]
pub struct Step {
    flow: Workflow,
    place: usize,
    id: JobId,
}

impl Step {
    /// Returns the id that the job will have.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// Runs this step once `step` has succeeded. If `step` ends otherwise, this step is cancelled.
    #[expect(
        clippy::return_self_not_must_use,
        clippy::must_use_candidate,
        reason = "the method changes the workflow; callers may ignore the returned step"
    )]
    pub fn after(self, step: &Self) -> Self {
        self.when(step, Condition::Succeeded)
    }

    /// Runs this step once all of `steps` have succeeded. If one of them ends otherwise, this step
    /// is cancelled.
    #[expect(
        clippy::return_self_not_must_use,
        reason = "the method changes the workflow; callers may ignore the returned step"
    )]
    pub fn after_all<'a>(self, steps: impl IntoIterator<Item = &'a Self>) -> Self {
        steps.into_iter().fold(self, Self::after)
    }

    /// Runs this step if `step` becomes a dead letter. If `step` ends otherwise, this step is
    /// cancelled.
    #[expect(
        clippy::return_self_not_must_use,
        clippy::must_use_candidate,
        reason = "the method changes the workflow; callers may ignore the returned step"
    )]
    pub fn after_failure(self, step: &Self) -> Self {
        self.when(step, Condition::Failed)
    }

    /// Runs this step once `step` has ended, in any way.
    #[expect(
        clippy::return_self_not_must_use,
        clippy::must_use_candidate,
        reason = "the method changes the workflow; callers may ignore the returned step"
    )]
    pub fn after_end(self, step: &Self) -> Self {
        self.when(step, Condition::Ended)
    }

    /// Runs this step once `step` has ended as the condition requires. If `step` ends otherwise,
    /// this step is cancelled.
    #[expect(
        clippy::return_self_not_must_use,
        clippy::must_use_candidate,
        reason = "the method changes the workflow; callers may ignore the returned step"
    )]
    pub fn when(self, step: &Self, condition: Condition) -> Self {
        self.change(|job| job.after(step.id, condition))
    }

    /// Runs this step once `batch` meets `condition`. If the batch can no longer meet it, this step
    /// is cancelled.
    #[expect(
        clippy::return_self_not_must_use,
        clippy::must_use_candidate,
        reason = "the method changes the workflow; callers may ignore the returned step"
    )]
    pub fn after_batch(self, batch: BatchId, condition: BatchCondition) -> Self {
        self.change(|job| job.after_batch(batch, condition))
    }

    fn change(self, change: impl FnOnce(NewJob) -> NewJob) -> Self {
        self.flow.change(self.place, change);
        self
    }
}

impl Client {
    /// Enqueues the jobs of a workflow, all of them or none. The answers are in the order in which
    /// the steps were added.
    ///
    /// # Errors
    /// As for [`enqueue_all`](Self::enqueue_all). A workflow is also `Invalid`, naming `parent`, in
    /// three cases:
    ///
    /// - The steps wait for each other in a cycle.
    /// - More than [`MAX_GENERATIONS`](crate::limits::MAX_GENERATIONS) steps form a chain.
    /// - A step waits for a step of another workflow that was not submitted.
    ///
    /// # Cancel safety
    /// If the future is dropped, the jobs may or may not have been enqueued.
    pub async fn submit(&self, flow: Workflow) -> Result<Vec<Enqueued>> {
        self.enqueue_all(&flow.jobs()).await
    }
}
