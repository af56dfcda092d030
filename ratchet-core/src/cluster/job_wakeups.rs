use std::collections::HashSet;

use super::Wakeup;
use crate::model::{Enqueued, NewJob};

/// The wakeups of jobs that are enqueued together: one for each job, or none for a job that wakes
/// no node.
#[derive(Clone, Debug, Default)]
pub struct JobWakeups(Vec<Option<Wakeup>>);

impl JobWakeups {
    /// Returns wakeups that wake no node.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Returns wakeups that wake every node for the jobs that are due at once.
    #[must_use]
    pub fn of_every_node(jobs: &[NewJob]) -> Self {
        let wakeup = |job: &NewJob| {
            let queue = &job.spec().route.queue;
            job.is_due_at_once().then(|| Wakeup::queue(queue.clone()))
        };
        jobs.iter().map(wakeup).collect()
    }

    /// Returns the distinct wakeups of the jobs that were created.
    #[must_use]
    pub fn of_created(self, answers: &[Enqueued]) -> HashSet<Wakeup> {
        let wakeups = self.0.into_iter().zip(answers);
        let created = wakeups.filter(|(_, answer)| matches!(answer, Enqueued::Created(_)));
        created.filter_map(|(wakeup, _)| wakeup).collect()
    }
}

impl FromIterator<Option<Wakeup>> for JobWakeups {
    fn from_iter<I: IntoIterator<Item = Option<Wakeup>>>(wakeups: I) -> Self {
        Self(wakeups.into_iter().collect())
    }
}
