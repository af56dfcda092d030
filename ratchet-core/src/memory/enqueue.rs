use super::tables::Tables;
use crate::error::InvalidInput;
use crate::id::JobId;
use crate::links::{self, NewLinks};
use crate::model::{After, EnqueuePlan, Enqueued, NewJob, Parent, StoredJob, TakenKeys};

impl Tables {
    /// Stores the jobs of one enqueue call. If the call fails, nothing has changed.
    pub(super) fn enqueue(
        &mut self,
        jobs: &[NewJob],
        now: i64,
    ) -> Result<Vec<Enqueued>, InvalidInput> {
        self.require_permits(jobs)?;
        let plan = self.plan_enqueue(jobs, now);
        let links = NewLinks::of(&plan.jobs, &plan.answers, &plan.new)?;
        self.check_parents(&links, &plan.answers)?;
        for change in &plan.holders {
            self.change(change.job(), |job| job.change_as_holder(change));
        }
        for place in &plan.new {
            let job = &plan.jobs[*place];
            self.store(job, now);
            self.give_turns([job.id()], now);
        }
        for (child, after) in links.after {
            self.link(child, after);
        }
        Ok(plan.answers)
    }

    /// Looks up the ids and keys of the jobs, and decides what becomes of the jobs.
    fn plan_enqueue<'j>(&self, jobs: &'j [NewJob], now: i64) -> EnqueuePlan<'j> {
        let mut taken = TakenKeys::default();
        for job in jobs {
            if self.job(job.id()).is_some() {
                taken.stored(job.id());
            }
            if let Some(key) = &job.spec().idempotency_key
                && let Some(first) = self.idempotency_keys.get(key)
                && self.key_expiries.get(key).is_none_or(|until| *until > now)
            {
                taken.idempotency_key(key.as_str(), *first);
            }
            if let Some(key) = &job.spec().unique_key
                && let Some(holder) = self.indexes.unique_keys.get(key)
            {
                taken.unique_key(key.as_str(), *holder);
            }
        }
        for holder in taken.contested(jobs) {
            if let Some(holder) = self.job(holder).and_then(StoredJob::key_holder) {
                taken.holder(holder);
            }
        }
        taken.resolve(jobs, now)
    }

    /// Refuses the enqueue if a parent or a batch does not exist, or if a job would join a closed
    /// batch.
    fn check_parents(
        &self,
        links: &NewLinks<'_>,
        answers: &[Enqueued],
    ) -> Result<(), InvalidInput> {
        let mut parents = links.stored_parents().iter();
        if let Some(missing) = parents.find(|parent| self.job(**parent).is_none()) {
            return Err(links::missing_parent(*missing, answers));
        }
        let batches = &self.links.batches;
        links.check_batches(|batch| batches.get(&batch).map(|batch| batch.closed))
    }

    fn store(&mut self, new: &NewJob, now: i64) {
        let spec = new.spec();
        if let Some(key) = &spec.idempotency_key {
            self.idempotency_keys.insert(key.clone(), new.id());
            self.key_expiries.remove(key);
            let expiry = new.key_expiry(now);
            self.key_expiries
                .extend(expiry.map(|until| (key.clone(), until)));
        }
        let mut job = StoredJob::enqueued(new, now);
        if let Some(place) = self.lanes.enter(&job.record) {
            job.enter_lane(place);
        }
        if let Some(batch) = spec.batch.and_then(|id| self.links.batches.get_mut(&id)) {
            batch.total += 1;
        }
        self.insert(job);
    }

    /// Adds the links from a new job to its parents. If a parent has already ended, the link is
    /// decided at the end of the store call.
    fn link(&mut self, child: JobId, after: Vec<After>) {
        for one in &after {
            match one.parent() {
                Parent::Batch(batch) => self.links.changed(batch),
                Parent::Job(parent) => {
                    self.change(parent, |job| job.has_children = true);
                    self.links.ended(parent);
                }
            }
        }
        self.links.link(child, &after);
        self.change(child, |job| job.link(after));
    }
}
