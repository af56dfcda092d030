//! Stores new jobs.

use ratchet_core::links::{self, NewLinks};
use ratchet_core::model::{After, Enqueued, NewJob, Parent, StoredJob, TakenKeys};
use ratchet_core::{JobId, Result};

use crate::call::Call;
use crate::engine::Transaction;
use crate::keys::{Key, Table};

impl<T: Transaction> Call<T> {
    /// Stores the jobs of one enqueue call.
    pub(crate) async fn enqueue(&mut self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        for job in jobs {
            self.require_permit(&job.spec().route).await?;
        }
        let (answers, new) = self.resolve_keys(jobs).await?;
        let links = NewLinks::of(jobs, &answers, &new);
        let links = links.map_err(|problem| self.refused(problem))?;
        self.check_parents(&links, &answers).await?;
        for place in new {
            self.store(&jobs[place]).await?;
        }
        for (child, after) in links.after {
            self.link(child, after).await?;
        }
        Ok(answers)
    }

    /// Looks up which ids and keys of the jobs are already in use. Returns the result for each
    /// job, and the positions in `jobs` of the jobs that must be stored.
    async fn resolve_keys(&mut self, jobs: &[NewJob]) -> Result<(Vec<Enqueued>, Vec<usize>)> {
        let mut taken = TakenKeys::default();
        for job in jobs {
            if self.is_stored(job.id()).await? {
                taken.stored(job.id());
            }
            if let Some(key) = &job.spec().idempotency_key {
                let first = self
                    .get(Key::new(Table::Idempotency).name(key.as_str()))
                    .await?;
                if let Some(first) = first.and_then(|id| id.try_into().ok()) {
                    taken.idempotency_key(key.as_str(), JobId::from_bytes(first));
                }
            }
            if let Some(key) = &job.spec().unique_key
                && let Some(holder) = self.unique_holder(key).await?
            {
                taken.unique_key(key.as_str(), holder);
            }
        }
        Ok(taken.resolve(jobs))
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
        if let Some(key) = &new.spec().idempotency_key {
            let key = Key::new(Table::Idempotency).name(key.as_str());
            self.put(key, *new.id().as_bytes()).await?;
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
