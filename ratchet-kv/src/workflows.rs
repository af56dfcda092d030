//! Batches, links and signals.

use async_trait::async_trait;
use ratchet_core::model::{
    BatchClosed, BatchPurge, BatchRecord, Delivered, Guarded, Link, Parent, Signal, SignalTarget,
    StoredJob,
};
use ratchet_core::store::{Changed, SignalStore, WorkflowStore};
use ratchet_core::time::{duration_millis, from_millis, to_millis};
use ratchet_core::{BatchId, InvalidInput, JobId, Json, Name, Result};

use crate::call::{Call, decoded};
use crate::engine::{Engine, Order, Transaction};
use crate::keys::{self, Key, Table};
use crate::store::KvStore;

#[async_trait]
impl<E: Engine> WorkflowStore for KvStore<E> {
    async fn create_batch(&self, batch: BatchId) -> Result<Changed> {
        let mut call = self.write("create_batch").await?;
        if call.batch(batch).await?.is_some() {
            return Ok(Changed::Unchanged);
        }
        let record = BatchRecord::new(batch, from_millis(call.now));
        call.put_batch(&record).await?;
        call.commit().await?;
        Ok(Changed::Changed)
    }

    async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed> {
        let mut call = self.write("close_batch").await?;
        let Some(mut record) = call.batch(batch).await? else {
            return Ok(BatchClosed::NotFound);
        };
        let closed = record.close();
        if closed == BatchClosed::Closed {
            call.put_batch(&record).await?;
            call.batch_changed(batch);
        }
        call.commit().await?;
        Ok(closed)
    }

    async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>> {
        let mut call = self.read("batches").await?;
        let mut batches = Vec::with_capacity(ids.len());
        for id in ids {
            batches.push(call.batch(*id).await?);
        }
        Ok(batches)
    }

    async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>> {
        let mut call = self.read("recent_batches").await?;
        let all = || Key::new(Table::Batch);
        let keys = match before {
            Some(before) => all().before(all().batch(before).bytes()),
            None => all().all(),
        };
        let entries = call.range(keys, Order::Descending, limit).await?;
        let read = |(_, value): &(_, Vec<u8>)| decoded(value, BatchRecord::decode);
        Ok(entries.iter().filter_map(read).collect())
    }

    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>> {
        let mut call = self.write("purge_batches").await?;
        if !call.allows(request.guard.as_ref()).await? {
            return Ok(Guarded::Stale);
        }
        let cutoff = call.now.saturating_sub(duration_millis(request.older_than));
        let rows = call.all(Key::new(Table::Batch).all()).await?;
        let batches = rows
            .iter()
            .filter_map(|(_, value)| decoded(value, BatchRecord::decode));
        let old = batches.filter_map(|batch| {
            let ended_at = batch.ended_at.filter(|at| to_millis(*at) < cutoff)?;
            Some((ended_at, batch.id))
        });
        let mut old: Vec<_> = old.collect();
        old.sort_unstable();
        old.truncate(request.limit);
        for (_, batch) in &old {
            call.remove(Key::new(Table::Batch).batch(*batch).bytes())
                .await?;
        }
        call.commit().await?;
        Ok(Guarded::Done(old.len() as u64))
    }

    async fn parents_of(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        let mut call = self.read("parents_of").await?;
        let mut parents = Vec::with_capacity(jobs.len());
        for id in jobs {
            let job = call.job(*id).await?;
            parents.push(job.iter().flat_map(StoredJob::links).collect());
        }
        Ok(parents)
    }

    async fn children_of(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        let mut call = self.read("children_of").await?;
        let of_parent = || Key::new(Table::Child).parent(parent);
        let keys = match after {
            Some(after) => of_parent().from(keys::after(of_parent().job(after).bytes())),
            None => of_parent().all(),
        };
        let entries = call.range(keys, Order::Ascending, limit).await?;
        let children = call.jobs_of(&entries).await?;
        let links = children.iter().flat_map(StoredJob::links);
        let links = links.filter(|link| link.after.parent() == parent);
        Ok(links.take(limit).collect())
    }
}

#[async_trait]
impl<E: Engine> SignalStore for KvStore<E> {
    async fn deliver(&self, signal: &Signal) -> Result<Delivered> {
        let mut call = self.write("deliver").await?;
        let delivered = match &signal.target {
            SignalTarget::Key(key) => call.signal_all(key, &signal.payload).await?,
            SignalTarget::Job(job) => call.signal_one(*job, &signal.payload).await?,
            // A newer version of the crate added this kind of target. This version does not know
            // the kind.
            _ => Delivered::NotFound,
        };
        call.commit().await?;
        Ok(delivered)
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        let mut call = self.write("expire").await?;
        let now = call.now;
        let waiting = Key::new(Table::Deadline);
        let overdue = waiting.clone().before(waiting.number(now).end());
        let entries = call.range(overdue, Order::Ascending, limit).await?;
        let mut failed = Vec::new();
        for id in entries.iter().filter_map(|(key, _)| keys::job_of(key)) {
            let Some(found) = call.find(id).await? else {
                call.set_aside(id).await?;
                continue;
            };
            // The job was found by its deadline in the index. The deadline in a damaged job may be
            // unreadable, so such a job counts as overdue.
            if found.problem.is_some() || found.job.is_signal_overdue(now) {
                let miss = |job: &mut StoredJob, problem: Option<&InvalidInput>| match problem {
                    Some(problem) => job.fail_damaged(problem, now),
                    None => job.miss_signal(now),
                };
                call.change_found(found, miss).await?;
                failed.push(id);
            }
        }
        failed.sort_unstable();
        call.commit().await?;
        Ok(failed)
    }
}

impl<T: Transaction> Call<T> {
    async fn signal_one(&mut self, id: JobId, payload: &Json) -> Result<Delivered> {
        let now = self.now;
        let Some(job) = self.job(id).await? else {
            return Ok(Delivered::NotFound);
        };
        if job.takes_signal(now) {
            self.change(id, |job| job.deliver(payload, now)).await?;
            return Ok(Delivered::To(vec![id]));
        }
        Ok(match job.has_signal() {
            true => Delivered::Already,
            false => Delivered::NotWaiting(job.record.state),
        })
    }

    async fn signal_all(&mut self, key: &Name, payload: &Json) -> Result<Delivered> {
        let now = self.now;
        let entries = self
            .all(Key::new(Table::Signal).name(key.as_str()).all())
            .await?;
        let jobs = self.jobs_of(&entries).await?;
        let waiting = jobs.iter().filter(|job| job.takes_signal(now));
        let waiting: Vec<JobId> = waiting.map(|job| job.record.id).collect();
        if waiting.is_empty() {
            return Ok(match jobs.iter().any(StoredJob::has_signal) {
                true => Delivered::Already,
                false => Delivered::NotFound,
            });
        }
        for id in &waiting {
            self.change(*id, |job| job.deliver(payload, now)).await?;
        }
        Ok(Delivered::To(waiting))
    }
}
