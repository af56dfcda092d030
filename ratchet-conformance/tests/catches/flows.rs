//! Stores with a defect in links, batches or signals.

use async_trait::async_trait;
use ratchet_core::model::*;
use ratchet_core::store::{Changed, JobStore, SignalStore, WorkflowStore};
use ratchet_core::{BatchId, JobId, JobState, Json, NewJob, Result};

use crate::sabotage::{Sabotage, Sabotaged};

impl Sabotaged {
    /// Stores a second job for each job in `blocked` that is now pending.
    pub(crate) async fn double(&self, blocked: &[JobId]) -> Result<()> {
        for job in self
            .inner
            .get(blocked, Detail::Whole)
            .await?
            .into_iter()
            .flatten()
        {
            if job.state == JobState::Pending {
                let again = NewJob::new("again", &());
                self.inner.enqueue(&[again]).await?;
            }
        }
        Ok(())
    }

    /// Returns the job with twice the timeout for its signal.
    pub(crate) fn patient(job: &NewJob) -> NewJob {
        match &job.spec().signal {
            Some(wait) => job.clone().wait_for(wait.key.as_str(), wait.timeout * 2),
            None => job.clone(),
        }
    }

    /// Returns the job, moved to a new batch if its batch is closed.
    pub(crate) async fn squeezed_in(&self, job: &NewJob) -> Result<NewJob> {
        let Some(batch) = job.spec().batch else {
            return Ok(job.clone());
        };
        let record = self.inner.batches(&[batch]).await?.remove(0);
        if record.is_none_or(|batch| !batch.closed) {
            return Ok(job.clone());
        }
        let other = BatchId::new();
        self.inner.create_batch(other).await?;
        Ok(job.clone().in_batch(other))
    }

    fn falsified(&self, mut batch: BatchRecord) -> BatchRecord {
        if self.is(Sabotage::LosesCancelledChildren) {
            batch.cancelled = 0;
        }
        if self.is(Sabotage::CountsRequeuedChildrenAgain) {
            let memory = self.memory();
            let again = memory.requeued.iter().filter(|of| **of == batch.id);
            batch.succeeded += again.count() as u64;
        }
        batch
    }
}

#[async_trait]
impl WorkflowStore for Sabotaged {
    async fn create_batch(&self, batch: BatchId) -> Result<Changed> {
        self.inner.create_batch(batch).await
    }

    async fn close_batch(&self, batch: BatchId) -> Result<BatchClosed> {
        let blocked = self.blocked().await?;
        let closed = self.inner.close_batch(batch).await?;
        if self.is(Sabotage::ForgetsToDecideAtTheClose) {
            self.hold_back(blocked).await?;
        }
        Ok(closed)
    }

    async fn batches(&self, ids: &[BatchId]) -> Result<Vec<Option<BatchRecord>>> {
        let batches = self.inner.batches(ids).await?.into_iter();
        Ok(batches.map(|batch| Some(self.falsified(batch?))).collect())
    }

    async fn recent_batches(
        &self,
        limit: usize,
        before: Option<BatchId>,
    ) -> Result<Vec<BatchRecord>> {
        let batches = self.inner.recent_batches(limit, before).await?.into_iter();
        Ok(batches.map(|batch| self.falsified(batch)).collect())
    }

    async fn purge_batches(&self, request: &BatchPurge) -> Result<Guarded<u64>> {
        let mut asked = request.clone();
        asked.guard = self.weakened(asked.guard).await?;
        if self.is(Sabotage::PurgesOneBatchLess) {
            asked.limit = (asked.limit - 1).max(1);
        }
        self.inner.purge_batches(&asked).await
    }

    async fn parents_of(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        let mut all = self.inner.parents_of(jobs).await?;
        if self.is(Sabotage::DecidesOneConditionPerParent) {
            all.iter_mut().for_each(|links| Self::decide_once(links));
        }
        if self.is(Sabotage::LosesLinksOfPurgedParents) {
            for links in &mut all {
                let mut kept = Vec::new();
                for link in links.drain(..) {
                    let there = match link.after.parent() {
                        Parent::Job(job) => {
                            self.inner.get(&[job], Detail::Whole).await?[0].is_some()
                        }
                        Parent::Batch(_) => true,
                    };
                    kept.extend(there.then_some(link));
                }
                *links = kept;
            }
        }
        Ok(all)
    }

    async fn children_of(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        self.inner.children_of(parent, limit, after).await
    }
}

#[async_trait]
impl SignalStore for Sabotaged {
    async fn deliver(&self, signal: &Signal) -> Result<Delivered> {
        let mut asked = signal.clone();
        if self.is(Sabotage::LosesSignalPayloads) {
            asked.payload = Json::from_stored("null");
        }
        let answer = self.inner.deliver(&asked).await?;
        if self.is(Sabotage::AnswersRepeatedSignalsAsDelivered)
            && answer == Delivered::Already
            && let SignalTarget::Job(job) = signal.target
        {
            return Ok(Delivered::To(vec![job]));
        }
        Ok(answer)
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        if self.is(Sabotage::ForgetsDeadlines) {
            return Ok(Vec::new());
        }
        self.inner.expire(limit).await
    }
}
