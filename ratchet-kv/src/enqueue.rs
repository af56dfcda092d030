//! Stores new jobs.

use ratchet_core::links::{self, NewLinks};
use ratchet_core::model::{After, EnqueuePlan, Enqueued, NewJob, Parent, StoredJob, TakenKeys};
use ratchet_core::{JobId, Name, Result};

use crate::call::Call;
use crate::engine::{Order, Transaction};
use crate::keys::{Key, Table};

impl<T: Transaction> Call<T> {
    /// Stores the jobs of one enqueue call.
    pub(crate) async fn enqueue(&mut self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        for job in jobs {
            self.require_permit(&job.spec().route).await?;
        }
        let plan = self.plan_enqueue(jobs).await?;
        let links = NewLinks::of(&plan.jobs, &plan.answers, &plan.new);
        let links = links.map_err(|problem| self.refused(problem))?;
        self.check_parents(&links, &plan.answers).await?;
        for change in &plan.holders {
            self.change(change.job(), |job| job.change_as_holder(change))
                .await?;
        }
        for place in &plan.new {
            self.store(&plan.jobs[*place]).await?;
        }
        for (child, after) in links.after {
            self.link(child, after).await?;
        }
        Ok(plan.answers)
    }

    /// Looks up which ids and keys of the jobs are already in use, and decides what becomes of the
    /// jobs.
    async fn plan_enqueue<'j>(&mut self, jobs: &'j [NewJob]) -> Result<EnqueuePlan<'j>> {
        let mut taken = TakenKeys::default();
        for job in jobs {
            if self.is_stored(job.id()).await? {
                taken.stored(job.id());
            }
            if let Some(key) = &job.spec().idempotency_key {
                let first = self
                    .get(Key::new(Table::Idempotency).name(key.as_str()))
                    .await?;
                if let Some((first, expiry)) = first.as_deref().and_then(used_key)
                    && expiry.is_none_or(|until| until > self.now)
                {
                    taken.idempotency_key(key.as_str(), first);
                }
            }
            if let Some(key) = &job.spec().unique_key
                && let Some(holder) = self.unique_holder(key).await?
            {
                taken.unique_key(key.as_str(), holder);
            }
        }
        for holder in taken.contested(jobs) {
            let found = self.find(holder).await?;
            let whole = found.filter(|found| found.problem.is_none());
            if let Some(holder) = whole.and_then(|found| found.job.key_holder()) {
                taken.holder(holder);
            }
        }
        Ok(taken.resolve(jobs, self.now))
    }

    async fn is_stored(&mut self, job: JobId) -> Result<bool> {
        Ok(self.get(Key::new(Table::Job).job(job)).await?.is_some())
    }

    /// Refuses the enqueue if a parent or a batch does not exist, or if a job would join a closed
    /// batch.
    async fn check_parents(&mut self, links: &NewLinks<'_>, answers: &[Enqueued]) -> Result<()> {
        for parent in links.stored_parents() {
            if !self.is_stored(*parent).await? {
                return Err(self.refused(links::missing_parent(*parent, answers)));
            }
        }
        let mut closed = std::collections::BTreeMap::new();
        for id in links.batches() {
            let batch = self.batch(id).await?;
            closed.extend(batch.map(|batch| (id, batch.closed)));
        }
        let checked = links.check_batches(|batch| closed.get(&batch).copied());
        checked.map_err(|problem| self.refused(problem))
    }

    async fn store(&mut self, new: &NewJob) -> Result<()> {
        if let Some(name) = &new.spec().idempotency_key {
            self.use_key(name, new).await?;
        }
        let mut job = StoredJob::enqueued(new, self.now);
        if let Some(place) = self.lane_place(&job).await? {
            job.enter_lane(place);
        }
        if let Some(id) = new.spec().batch
            && let Some(mut batch) = self.batch(id).await?
        {
            batch.total += 1;
            self.put_batch(&batch).await?;
        }
        job.turn = self.turn(&job).await?;
        self.insert(&job).await
    }

    /// Stores the idempotency key of a new job. If another job has used the key, the key is free.
    async fn use_key(&mut self, name: &Name, new: &NewJob) -> Result<()> {
        let key = || Key::new(Table::Idempotency).name(name.as_str());
        let by_expiry = |until| Key::new(Table::KeyExpiry).number(until).name(name.as_str());
        let earlier = self.get(key()).await?;
        if let Some((_, Some(until))) = earlier.as_deref().and_then(used_key) {
            self.remove(by_expiry(until).bytes()).await?;
        }
        let mut value = new.id().as_bytes().to_vec();
        if let Some(until) = new.key_expiry(self.now) {
            value.extend(until.to_be_bytes());
            self.put(by_expiry(until), Vec::<u8>::new()).await?;
        }
        self.put(key(), value).await
    }

    /// Deletes up to `limit` idempotency keys that are free again.
    pub(crate) async fn forget_keys(&mut self, limit: usize) -> Result<()> {
        let begin = Key::new(Table::KeyExpiry).bytes();
        let end = Key::new(Table::KeyExpiry).number(self.now.saturating_add(1));
        let free = self.range(begin.clone()..end.bytes(), Order::Ascending, limit);
        for (by_expiry, _) in free.await? {
            // After the table and the time comes the name, as in the other key.
            if let Some(name) = by_expiry.get(begin.len() + size_of::<i64>()..) {
                let mut key = Key::new(Table::Idempotency).bytes();
                key.extend(name);
                self.remove(key).await?;
            }
            self.remove(by_expiry).await?;
        }
        Ok(())
    }

    /// Links the new job `child` to its parents, so that it waits for them. If a parent has already
    /// ended, the commit of the call decides whether the child may run.
    async fn link(&mut self, child: JobId, after: Vec<After>) -> Result<()> {
        for one in &after {
            match one.parent() {
                Parent::Batch(batch) => self.batch_changed(batch),
                Parent::Job(parent) => {
                    self.change(parent, |job| job.has_children = true).await?;
                    self.ended(parent);
                }
            }
        }
        self.change(child, |job| job.link(after)).await?;
        Ok(())
    }
}

/// Reads the row of an idempotency key: the first job that used the key, and when the key is free
/// again.
fn used_key(row: &[u8]) -> Option<(JobId, Option<i64>)> {
    let (job, expiry) = row.split_at_checked(16)?;
    let job = JobId::from_bytes(job.try_into().ok()?);
    match expiry {
        [] => Some((job, None)),
        expiry => Some((job, Some(i64::from_be_bytes(expiry.try_into().ok()?)))),
    }
}
