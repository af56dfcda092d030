//! Checks the links between the jobs of one enqueue for cycles and long chains.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::InvalidInput;
use crate::id::JobId;
use crate::limits::MAX_GENERATIONS;
use crate::model::{After, Enqueued, NewJob, Parent};

/// Returns the parents of each new job of an enqueue. `answers` has the store's answer for each of
/// the `jobs`, and `new` has the indexes of the new jobs. If a parent is a duplicate, the result
/// has the original, stored job in its place.
///
/// # Errors
/// Returns an [`InvalidInput`] for `parent` if, after this replacement, jobs wait for each other in
/// a cycle, or a chain of waiting jobs is too long.
pub(super) fn resolve(
    jobs: &[NewJob],
    answers: &[Enqueued],
    new: &[usize],
) -> Result<Vec<Vec<After>>, InvalidInput> {
    let others: BTreeMap<JobId, JobId> = jobs
        .iter()
        .zip(answers)
        .filter(|(job, answer)| job.id() != answer.id())
        .map(|(job, answer)| (job.id(), answer.id()))
        .collect();
    let stands_for = |id: JobId| others.get(&id).copied().unwrap_or(id);
    let resolved: Vec<Vec<After>> = new
        .iter()
        .map(|place| {
            let after = jobs[*place].spec().after.iter();
            after.map(|one| one.resolved(stands_for)).collect()
        })
        .collect();
    if !others.is_empty() {
        let mut graph = Graph::default();
        for (place, after) in new.iter().zip(&resolved) {
            graph.add(&jobs[*place], after);
        }
        graph.refuse_cycles()?;
    }
    Ok(resolved)
}

/// Refuses an enqueue in which jobs wait for themselves or for each other, directly or through
/// their batches. Such jobs could never run. Also refuses a chain of more than [`MAX_GENERATIONS`]
/// jobs and batches, in which each member waits for the previous member.
pub(crate) fn refuse_cycles(jobs: &[NewJob]) -> Result<(), InvalidInput> {
    if jobs.iter().all(|job| job.spec().after.is_empty()) {
        return Ok(());
    }
    let mut graph = Graph::default();
    for job in jobs {
        graph.add(job, &job.spec().after);
    }
    graph.refuse_cycles()
}

/// The jobs and batches that each job or batch waits for. A job waits for its parents, and a batch
/// waits for its jobs.
#[derive(Default)]
struct Graph(BTreeMap<Parent, BTreeSet<Parent>>);

impl Graph {
    fn add(&mut self, job: &NewJob, after: &[After]) {
        let this = Parent::Job(job.id());
        let parents = after.iter().map(After::parent);
        self.0.entry(this).or_default().extend(parents);
        if let Some(batch) = job.spec().batch {
            self.0.entry(Parent::Batch(batch)).or_default().insert(this);
        }
    }

    fn refuse_cycles(mut self) -> Result<(), InvalidInput> {
        // Ignores parents outside of this enqueue. They wait for no job of this enqueue, so they
        // cannot be part of a cycle.
        let known: BTreeSet<Parent> = self.0.keys().copied().collect();
        let mut waiting: BTreeMap<Parent, Vec<Parent>> = BTreeMap::new();
        for (child, parents) in &mut self.0 {
            parents.retain(|parent| known.contains(parent));
            for parent in parents.iter() {
                waiting.entry(*parent).or_default().push(*child);
            }
        }
        let free =
            |(one, parents): (&Parent, &BTreeSet<Parent>)| parents.is_empty().then_some(*one);
        let mut free: Vec<Parent> = self.0.iter().filter_map(free).collect();
        let mut generations = 0;
        while !free.is_empty() {
            generations += 1;
            for one in std::mem::take(&mut free) {
                self.0.remove(&one);
                for child in waiting.remove(&one).unwrap_or_default() {
                    if let Some(parents) = self.0.get_mut(&child) {
                        parents.remove(&one);
                        if parents.is_empty() {
                            free.push(child);
                        }
                    }
                }
            }
        }
        if let Some(one) = self.on_a_cycle() {
            let problem = format!("forms a cycle: the job {one} would wait for itself");
            return Err(InvalidInput::new("parent", problem));
        }
        if generations > MAX_GENERATIONS {
            let problem = format!(
                "chain is too long: {generations} jobs wait one after the other; at most \
                 {MAX_GENERATIONS} are allowed"
            );
            return Err(InvalidInput::new("parent", problem));
        }
        Ok(())
    }

    /// Returns a job or batch that is part of a cycle. `None` if the graph is empty. The caller
    /// must have removed all entries that wait for no other entry. Then every remaining entry waits
    /// for another one, so the graph is either empty or has a cycle.
    fn on_a_cycle(&self) -> Option<Parent> {
        let mut at = *self.0.keys().next()?;
        let mut seen = BTreeSet::new();
        while seen.insert(at) {
            at = *self.0.get(&at)?.first()?;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BatchId;
    use crate::model::{BatchCondition, Condition};

    fn job() -> NewJob {
        NewJob::new("kind", &1)
    }

    fn refused(jobs: &[NewJob]) -> bool {
        match NewJob::validate_all(jobs) {
            Ok(()) => false,
            Err(error) => {
                assert_eq!(error.invalid_input().unwrap().field(), "parent");
                true
            }
        }
    }

    #[test]
    fn a_thousand_may_wait_one_after_the_other_and_no_more() {
        let mut chain = vec![job()];
        while chain.len() < MAX_GENERATIONS {
            let parent = chain[chain.len() - 1].id();
            chain.push(job().after(parent, Condition::Ended));
        }
        let first = chain[0].id();
        let beside = job().after(first, Condition::Ended);
        chain.push(beside);
        assert!(!refused(&chain));
        let last = chain[MAX_GENERATIONS - 1].id();
        chain.push(job().after(last, Condition::Ended));
        assert!(refused(&chain));
    }

    #[test]
    fn jobs_may_wait_for_each_other_but_not_in_a_circle() {
        let [a, b, c, d] = [job(), job(), job(), job()];
        let ids = [a.id(), b.id(), c.id(), d.id()];
        let after = |job: NewJob, parent: usize| job.after(ids[parent], Condition::Ended);
        let b = after(b, 0);
        let c = after(c, 0);
        let d = after(after(after(d, 1), 2), 2);
        let outside = job().after(JobId::new(), Condition::Ended);
        // The order of the jobs in the enqueue does not matter.
        assert!(!refused(&[
            d.clone(),
            c.clone(),
            outside,
            b.clone(),
            a.clone()
        ]));
        let a = after(a, 3);
        assert!(refused(&[a.clone(), b.clone(), c.clone(), d.clone()]));
        assert!(!refused(&[a, b, c]));
        let own = job();
        let id = own.id();
        assert!(refused(&[own.after(id, Condition::Ended)]));
    }

    #[test]
    fn a_child_of_a_batch_does_not_wait_for_the_batch() {
        let (batch, other) = (BatchId::new(), BatchId::new());
        let child = job().in_batch(batch);
        let callback = job().after_batch(batch, BatchCondition::Ended);
        assert!(!refused(&[child.clone(), callback.clone()]));
        assert!(refused(&[callback.clone().in_batch(batch)]));
        assert!(!refused(&[callback.clone().in_batch(other)]));
        let waits = child.after(callback.id(), Condition::Ended);
        assert!(refused(&[waits, callback]));
    }

    #[test]
    fn duplicates_hand_their_children_over_but_close_no_circle() {
        let [a, twin, b] = [job(), job(), job()];
        let earlier = JobId::new();
        let b = b.after(twin.id(), Condition::Ended);
        let jobs = [a.after(earlier, Condition::Failed), twin, b];
        let created = |job: &NewJob| Enqueued::Created(job.id());
        let answers = |twin| [created(&jobs[0]), twin, created(&jobs[2])];
        let to_a = answers(Enqueued::Duplicate(jobs[0].id()));
        let resolved = resolve(&jobs, &to_a, &[0, 2]).unwrap();
        assert_eq!(resolved[0], jobs[0].spec().after);
        assert_eq!(resolved[1][0].parent(), Parent::Job(jobs[0].id()));
        let to_b = answers(Enqueued::Duplicate(jobs[2].id()));
        let error = resolve(&jobs, &to_b, &[0, 2]).unwrap_err();
        assert_eq!(error.field(), "parent");
    }

    #[test]
    fn a_long_circle_is_called_one() {
        let mut jobs = vec![job()];
        for place in 0..crate::limits::MAX_BATCH - 1 {
            let parent = jobs[place].id();
            jobs.push(job().after(parent, Condition::Succeeded));
        }
        let last = jobs[jobs.len() - 1].id();
        jobs[0] = jobs[0].clone().after(last, Condition::Ended);
        let error = NewJob::validate_all(&jobs).unwrap_err().to_string();
        assert!(error.contains("forms a cycle"), "{error}");
    }
}
