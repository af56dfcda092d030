use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::tables::Tables;
use crate::id::{BatchId, JobId};
use crate::links::{Ask, Cascade, Changes, WaitingJob};
use crate::model::{After, BatchRecord, JobRecord, Parent, StoredJob, Tally};
use crate::state::JobState;
use crate::time::from_millis;

/// The links and batches of a memory store. Also records the jobs and batches that the current call
/// has changed, because their children are updated at the end of the call.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Links {
    /// The children of each parent.
    #[serde(skip)]
    pub(super) children: BTreeMap<Parent, BTreeSet<JobId>>,
    pub(super) batches: BTreeMap<BatchId, BatchRecord>,
    /// The jobs that ended in the current call, and the jobs that got a new child.
    #[serde(skip)]
    ended: BTreeSet<JobId>,
    /// The batches that were closed in the current call, and those that got a new child.
    #[serde(skip)]
    changed: BTreeSet<BatchId>,
}

impl Links {
    /// Records a job that has ended, or that got a new child.
    pub(super) fn ended(&mut self, job: JobId) {
        self.ended.insert(job);
    }

    /// Records a batch that was closed, or for which a new job waits.
    pub(super) fn changed(&mut self, batch: BatchId) {
        self.changed.insert(batch);
    }

    /// Records that a child waits for these parents.
    pub(super) fn link(&mut self, child: JobId, after: &[After]) {
        for one in after {
            let children = self.children.entry(one.parent()).or_default();
            children.insert(child);
        }
    }

    /// Removes the links from a deleted job to its parents. The links from its children to the
    /// deleted job remain.
    pub(super) fn forget(&mut self, job: &JobRecord) {
        for after in &job.spec.after {
            if let Some(children) = self.children.get_mut(&after.parent()) {
                children.remove(&job.id);
                if children.is_empty() {
                    self.children.remove(&after.parent());
                }
            }
        }
    }
}

impl Tables {
    /// Returns whether this job has a child that has not ended.
    pub(super) fn is_awaited(&self, job: JobId) -> bool {
        let children = self.links.children.get(&Parent::Job(job));
        let unfinished = |job: &StoredJob| !job.record.state.is_terminal();
        children.is_some_and(|children| {
            let mut rows = children.iter().filter_map(|child| self.job(*child));
            rows.any(unfinished)
        })
    }

    /// Updates the jobs and batches that depend on jobs that ended in this call: decides links,
    /// releases or cancels children, and counts ended jobs in their batches. Every store call calls
    /// this method at its end.
    pub(super) fn follow_ends(&mut self, now: i64) {
        let mut cascade = Cascade::new();
        for id in std::mem::take(&mut self.links.ended) {
            if let Some(ended) = self.job(id).and_then(StoredJob::ended) {
                cascade.ended(ended);
            }
        }
        for batch in std::mem::take(&mut self.links.changed) {
            if let Some(batch) = self.links.batches.get(&batch) {
                cascade.batch(batch.clone());
            }
        }
        while let Some(ask) = cascade.next() {
            match ask {
                Ask::Write(changes) => self.write_links(&changes, now),
                Ask::Children(parents) => cascade.children(self.waiting_for(&parents)),
                Ask::Count(ended) => cascade.counted(self.count(&ended)),
            }
        }
        // The cascade has already handled the jobs that it ended itself.
        self.links.ended.clear();
    }

    fn waiting_for(&self, parents: &[Parent]) -> Vec<WaitingJob> {
        let children = parents
            .iter()
            .filter_map(|parent| self.links.children.get(parent));
        let children: BTreeSet<JobId> = children.flatten().copied().collect();
        let waiting = |child: JobId| self.job(child).map(StoredJob::waiting);
        children.into_iter().filter_map(waiting).collect()
    }

    fn count(&mut self, ended: &[(JobId, JobState)]) -> Vec<BatchRecord> {
        let mut tallies: BTreeMap<BatchId, Tally> = BTreeMap::new();
        for (job, state) in ended {
            let batch = self.change(*job, StoredJob::count_in_batch);
            if let Some(batch) = batch.flatten() {
                tallies.entry(batch).or_default().count(*state);
            }
        }
        let mut counted = Vec::with_capacity(tallies.len());
        for (batch, tally) in tallies {
            if let Some(batch) = self.links.batches.get_mut(&batch) {
                batch.add(tally);
                counted.push(batch.clone());
            }
        }
        counted
    }

    fn write_links(&mut self, changes: &Changes, now: i64) {
        for (child, place, decided) in &changes.links {
            self.change(*child, |job| job.decide(*place, *decided));
        }
        for id in &changes.cancelled {
            self.change(*id, |job| job.cancel(now));
        }
        for id in &changes.released {
            self.change(*id, |job| job.release(now));
        }
        for batch in &changes.ended {
            if let Some(batch) = self.links.batches.get_mut(batch) {
                batch.ended_at = Some(from_millis(now));
            }
        }
    }
}
