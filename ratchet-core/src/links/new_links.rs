//! Collects the links and the batches of the new jobs of one enqueue.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::resolve;
use crate::error::InvalidInput;
use crate::id::{BatchId, JobId};
use crate::model::{After, Enqueued, NewJob, Parent, SignalWait};

/// The links of the new jobs of one enqueue, and the batches they join.
///
/// A store reads these parents and batches, and refuses the enqueue if one of them is missing. Then
/// it stores the links, the signals and the batch members.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct NewLinks<'a> {
    /// The new jobs that wait for other jobs or for batches. Each entry has the id of the job, and
    /// the parents and conditions of its links, in the order of the links.
    pub after: Vec<(JobId, Vec<After>)>,
    /// The new jobs that wait for a signal, each with this signal.
    pub signals: Vec<(JobId, &'a SignalWait)>,
    /// The new jobs that join a batch, each with this batch.
    pub members: Vec<(JobId, BatchId)>,
    /// All jobs that new jobs wait for.
    parents: BTreeSet<JobId>,
    /// The jobs in `parents` that this enqueue does not create. They must already be stored.
    stored_parents: BTreeSet<JobId>,
}

impl<'a> NewLinks<'a> {
    /// Collects the links of an enqueue. `answers` has the store's answer for each of the `jobs`,
    /// and `new` has the indexes of the new jobs. If a parent is a duplicate, the result has the
    /// original, stored job in its place.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `parent` if, after this replacement, jobs wait for each
    /// other in a cycle, or a chain of waiting jobs is too long.
    pub fn of(
        jobs: &'a [NewJob],
        answers: &[Enqueued],
        new: &[usize],
    ) -> Result<Self, InvalidInput> {
        let mut links = Self::default();
        if !new.iter().any(|place| jobs[*place].spec().is_linked()) {
            return Ok(links);
        }
        for (place, after) in new.iter().zip(resolve(jobs, answers, new)?) {
            let (id, spec) = (jobs[*place].id(), jobs[*place].spec());
            links
                .signals
                .extend(spec.signal.as_ref().map(|wait| (id, wait)));
            links.members.extend(spec.batch.map(|batch| (id, batch)));
            links.parents.extend(after.iter().filter_map(parent_job));
            if !after.is_empty() {
                links.after.push((id, after));
            }
        }
        links.stored_parents.clone_from(&links.parents);
        for place in new {
            links.stored_parents.remove(&jobs[*place].id());
        }
        Ok(links)
    }

    /// Returns whether a new job waits for `job`.
    #[must_use]
    pub fn is_parent(&self, job: JobId) -> bool {
        self.parents.contains(&job)
    }

    /// Returns the jobs that new jobs wait for and that this enqueue does not create.
    #[must_use]
    pub const fn stored_parents(&self) -> &BTreeSet<JobId> {
        &self.stored_parents
    }

    /// Returns the batches that new jobs wait for.
    #[must_use]
    pub fn awaited(&self) -> BTreeSet<BatchId> {
        let after = self.after.iter().flat_map(|(_, after)| after);
        let batch = |after: &After| match after.parent() {
            Parent::Batch(batch) => Some(batch),
            Parent::Job(_) => None,
        };
        after.filter_map(batch).collect()
    }

    /// Returns the number of new jobs that join each batch.
    #[must_use]
    pub fn joined(&self) -> BTreeMap<BatchId, u64> {
        let mut joined = BTreeMap::new();
        for (_, batch) in &self.members {
            *joined.entry(*batch).or_default() += 1;
        }
        joined
    }

    /// Returns the batches that new jobs join or wait for.
    #[must_use]
    pub fn batches(&self) -> BTreeSet<BatchId> {
        let mut batches = self.awaited();
        batches.extend(self.members.iter().map(|(_, batch)| *batch));
        batches
    }

    /// Checks that all batches of the enqueue are stored, and that no job joins a closed batch.
    /// `closed` returns whether a batch is closed, or `None` if the batch is not stored.
    /// `[batch.join]` `[link.missing]`
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `batch` if a batch is missing or closed.
    pub fn check_batches(
        &self,
        closed: impl Fn(BatchId) -> Option<bool>,
    ) -> Result<(), InvalidInput> {
        let joined = self.joined();
        for batch in self.batches() {
            match closed(batch) {
                None => return Err(super::missing(Parent::Batch(batch))),
                Some(true) if joined.contains_key(&batch) => {
                    let problem = format!("{batch} is closed");
                    return Err(InvalidInput::new("batch", problem));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

fn parent_job(after: &After) -> Option<JobId> {
    match after.parent() {
        Parent::Job(job) => Some(job),
        Parent::Batch(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{BatchCondition, Condition};

    fn job() -> NewJob {
        NewJob::new("kind", &1)
    }

    fn created(jobs: &[NewJob]) -> Vec<Enqueued> {
        jobs.iter().map(|job| Enqueued::Created(job.id())).collect()
    }

    #[test]
    fn jobs_without_links_have_none() {
        let jobs = [job(), job().lane("l")];
        let links = NewLinks::of(&jobs, &created(&jobs), &[0, 1]).unwrap();
        assert!(links.after.is_empty() && links.signals.is_empty() && links.members.is_empty());
        assert!(links.stored_parents().is_empty() && links.batches().is_empty());
    }

    #[test]
    fn a_parent_is_new_or_must_be_stored() {
        let (stored, parent) = (JobId::new(), job());
        let child = job()
            .after(parent.id(), Condition::Ended)
            .after(stored, Condition::Ended);
        let jobs = [parent, child];
        let links = NewLinks::of(&jobs, &created(&jobs), &[0, 1]).unwrap();
        assert_eq!(links.after, [(jobs[1].id(), jobs[1].spec().after.clone())]);
        assert!(links.is_parent(jobs[0].id()) && links.is_parent(stored));
        assert!(!links.is_parent(jobs[1].id()));
        assert_eq!(*links.stored_parents(), BTreeSet::from([stored]));
        // If an earlier attempt of the same call stored the parent, the parent is not a new job.
        let links = NewLinks::of(&jobs, &created(&jobs), &[1]).unwrap();
        let both = BTreeSet::from([stored, jobs[0].id()]);
        assert_eq!(*links.stored_parents(), both);
    }

    #[test]
    fn the_job_that_stands_for_a_duplicate_is_the_parent() {
        let (earlier, parent) = (JobId::new(), job());
        let child = job().after(parent.id(), Condition::Ended);
        let jobs = [parent, child];
        let answers = [
            Enqueued::Duplicate(earlier),
            Enqueued::Created(jobs[1].id()),
        ];
        let links = NewLinks::of(&jobs, &answers, &[1]).unwrap();
        assert_eq!(*links.stored_parents(), BTreeSet::from([earlier]));
        assert!(!links.is_parent(jobs[0].id()));
    }

    #[test]
    fn only_new_jobs_wait_and_join() {
        let (a, b) = (BatchId::new(), BatchId::new());
        let jobs = [
            job().in_batch(a).wait_for("s", Duration::from_secs(1)),
            job().in_batch(a),
            job().in_batch(a),
            job().after_batch(b, BatchCondition::Ended),
        ];
        let links = NewLinks::of(&jobs, &created(&jobs), &[0, 2, 3]).unwrap();
        let wait = jobs[0].spec().signal.as_ref().unwrap();
        assert_eq!(links.signals, [(jobs[0].id(), wait)]);
        assert_eq!(links.members, [(jobs[0].id(), a), (jobs[2].id(), a)]);
        assert_eq!(links.joined(), BTreeMap::from([(a, 2)]));
        assert_eq!(links.awaited(), BTreeSet::from([b]));
        assert_eq!(links.batches(), BTreeSet::from([a, b]));
    }

    #[test]
    fn a_batch_is_joined_while_it_is_open_and_awaited_while_it_is_stored() {
        let (joined, awaited) = (BatchId::new(), BatchId::new());
        let jobs = [
            job().in_batch(joined),
            job().after_batch(awaited, BatchCondition::Ended),
        ];
        let links = NewLinks::of(&jobs, &created(&jobs), &[0, 1]).unwrap();
        let check = |of_joined, of_awaited| {
            let closed = |batch| {
                if batch == joined {
                    of_joined
                } else {
                    of_awaited
                }
            };
            links
                .check_batches(closed)
                .map_err(|problem| problem.to_string())
        };
        assert_eq!(check(Some(false), Some(false)), Ok(()));
        assert_eq!(check(Some(false), Some(true)), Ok(()));
        assert!(
            check(Some(true), Some(false))
                .unwrap_err()
                .contains("is closed")
        );
        assert!(
            check(None, Some(false))
                .unwrap_err()
                .contains("is not stored")
        );
        assert!(
            check(Some(false), None)
                .unwrap_err()
                .contains("is not stored")
        );
    }
}
