use std::collections::{HashMap, HashSet};

use super::links::awaited;
use super::tables::Tables;
use crate::error::{InvalidInput, Result, StoreError};
use crate::id::JobId;
use crate::links;
use crate::model::{After, Enqueued, JobRecord, NewJob, Parent};
use crate::name::Name;
use crate::state::JobState;
use crate::time::from_millis;

impl Tables {
    /// Stores the jobs of one call; on an error nothing has changed.
    pub(super) fn enqueue(&mut self, jobs: &[NewJob], now: i64) -> Result<Vec<Enqueued>> {
        self.require_permits(jobs)?;
        let (answers, new) = self.resolve_keys(jobs);
        let refused = |problem| StoreError::from(problem).during("enqueue");
        let after = links::resolve(jobs, &answers, &new).map_err(refused)?;
        self.check_parents(jobs, &new, &after).map_err(refused)?;
        for (place, after) in new.iter().zip(&after) {
            self.store(&jobs[*place], after.clone(), now);
        }
        for (place, after) in new.into_iter().zip(after) {
            if !after.is_empty() {
                self.link(jobs[place].id(), after);
            }
        }
        Ok(answers)
    }

    /// What each job is answered, and the places of those that are to be stored.
    fn resolve_keys(&self, jobs: &[NewJob]) -> (Vec<Enqueued>, Vec<usize>) {
        let (mut first, mut holders): (HashMap<&Name, JobId>, HashMap<&Name, JobId>) =
            (HashMap::new(), HashMap::new());
        let mut new = Vec::new();
        let mut answers = Vec::with_capacity(jobs.len());
        for (place, job) in jobs.iter().enumerate() {
            let (id, spec) = (job.id(), job.spec());
            let (once, unique) = (spec.idempotency_key.as_ref(), spec.unique_key.as_ref());
            let earlier = once
                .and_then(|key| self.idempotency_keys.get(key).or_else(|| first.get(key)))
                .or_else(|| {
                    let key = unique?;
                    self.unique_keys.get(key).or_else(|| holders.get(key))
                });
            answers.push(match earlier {
                _ if self.job(id).is_some() => Enqueued::Created(id),
                Some(earlier) => Enqueued::Duplicate(*earlier),
                None => {
                    first.extend(once.map(|key| (key, id)));
                    holders.extend(unique.map(|key| (key, id)));
                    new.push(place);
                    Enqueued::Created(id)
                }
            });
        }
        (answers, new)
    }

    /// Refuses parents that do not exist, and batches that nothing can join.
    fn check_parents(
        &self,
        jobs: &[NewJob],
        new: &[usize],
        after: &[Vec<After>],
    ) -> Result<(), InvalidInput> {
        let ids: HashSet<JobId> = new.iter().map(|place| jobs[*place].id()).collect();
        let parents = || after.iter().flatten().map(After::parent);
        for parent in parents() {
            if let Parent::Job(job) = parent
                && !ids.contains(&job)
                && self.job(job).is_none()
            {
                return Err(links::missing(parent));
            }
        }
        for parent in parents() {
            if let Parent::Batch(batch) = parent
                && !self.links.batches.contains_key(&batch)
            {
                return Err(links::missing(parent));
            }
        }
        for batch in new.iter().filter_map(|place| jobs[*place].spec().batch) {
            match self.links.batches.get(&batch) {
                None => return Err(links::missing(Parent::Batch(batch))),
                Some(batch) if batch.closed => return Err(links::closed(batch.id)),
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn store(&mut self, new: &NewJob, after: Vec<After>, now: i64) {
        let spec = new.spec();
        if let Some(key) = &spec.idempotency_key {
            self.idempotency_keys.insert(key.clone(), new.id());
        }
        let run_at = from_millis(new.due().resolve(now));
        let mut job = JobRecord::new(new.id(), spec.clone(), run_at, from_millis(now));
        job.spec.after = after;
        job.state = if spec.waits() {
            JobState::Blocked
        } else {
            self.lanes.enter(&job)
        };
        let signal = spec.signal.as_ref();
        job.signal = signal.map(|wait| awaited(wait.timeout, now));
        if let Some(batch) = spec.batch.and_then(|id| self.links.batches.get_mut(&id)) {
            batch.total += 1;
        }
        self.insert(job);
    }

    /// Links a new job to its parents, and has those looked at that have ended already.
    fn link(&mut self, child: JobId, after: Vec<After>) {
        for one in &after {
            match one.parent() {
                Parent::Batch(batch) => self.links.changed(batch),
                Parent::Job(parent) => {
                    self.change(parent, |row| row.has_children = true);
                    self.links.ended(parent);
                }
            }
        }
        self.links.link(child, after);
    }
}
