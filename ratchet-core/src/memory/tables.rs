use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::archive::Archived;
use super::fair::Freed;
use super::indexes::Indexes;
use super::lanes::Lanes;
use super::links::Links;
use crate::id::{JobId, NodeId};
use crate::model::{Attempt, FairLimits, NodeRecord, Pauses, RecurringRecord, StoredJob};
use crate::name::Name;
use crate::store::StoredLock;

/// All data of a memory store. The serialized form lacks what [`Tables::rebuild`] derives.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Tables {
    jobs: BTreeMap<JobId, StoredJob>,
    /// The ended claims of each job. A job without ended claims has no entry.
    history: BTreeMap<JobId, Vec<Attempt>>,
    #[serde(skip)]
    pub(super) indexes: Indexes,
    /// The first job that was enqueued with each idempotency key. Only entries in `key_expiries`
    /// are ever deleted.
    pub(super) idempotency_keys: BTreeMap<Name, JobId>,
    /// When each idempotency key with a lifetime is free again, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) key_expiries: BTreeMap<Name, i64>,
    /// The unfinished jobs of each lane, in order.
    #[serde(skip)]
    pub(super) lanes: Lanes,
    #[serde(rename = "batches")]
    pub(super) links: Links,
    pub(super) pauses: Pauses,
    pub(super) nodes: BTreeMap<NodeId, NodeRecord>,
    /// The locks by name. A released or expired lock is kept, because its fences must never repeat.
    pub(super) locks: BTreeMap<Name, StoredLock>,
    pub(super) versions: BTreeMap<Name, u64>,
    pub(super) recurring: BTreeMap<Name, RecurringRecord>,
    pub(super) archive: BTreeMap<JobId, Archived>,
    /// The maximum number of permits of each resource.
    pub(super) permits: BTreeMap<Name, u32>,
    /// The limits of fair keys.
    #[serde(default, skip_serializing_if = "FairLimits::is_empty")]
    pub(super) fair_limits: FairLimits,
    /// The freed entries of fair keys.
    #[serde(default, skip_serializing_if = "Freed::is_empty")]
    pub(super) freed: Freed,
    /// The theoretical arrival time of each rate key, in microseconds since 1970.
    pub(super) rates: BTreeMap<Name, i64>,
}

impl Tables {
    /// Derives from the jobs what the serialized form lacks: the indexes, the lanes, and the
    /// children of each parent.
    pub(super) fn rebuild(&mut self) {
        for job in self.jobs.values() {
            self.indexes.add(job);
            self.lanes.restore(job);
            self.links.link(job.record.id, &job.record.spec.after);
        }
    }

    pub(super) fn job(&self, id: JobId) -> Option<&StoredJob> {
        self.jobs.get(&id)
    }

    pub(super) fn jobs(&self) -> impl DoubleEndedIterator<Item = &StoredJob> {
        self.jobs.values()
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &StoredJob> {
        self.indexes
            .running
            .iter()
            .filter_map(|id| self.jobs.get(id))
    }

    pub(super) fn history(&self, id: JobId) -> &[Attempt] {
        self.history.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn insert(&mut self, job: StoredJob) {
        self.indexes.add(&job);
        self.jobs.insert(job.record.id, job);
    }

    /// Adds an ended claim, if there is one, to the history of its job.
    pub(super) fn record(&mut self, job: JobId, ended: Option<Attempt>) {
        if let Some(attempt) = ended {
            self.history.entry(job).or_default().push(attempt);
        }
    }

    /// Applies `change` to a job, and updates the indexes, the unique key and the lane. If the job
    /// ends, records its end, so that the jobs that wait for this end are updated later in the
    /// call. Returns `None` if the job does not exist.
    pub(super) fn change<T>(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut StoredJob) -> T,
    ) -> Option<T> {
        let (changed, next) = self.rewrite(id, change)?;
        if let Some(next) = next {
            self.rewrite(next, StoredJob::promote);
        }
        Some(changed)
    }

    /// Applies `change` to a job. If the job ends, also returns the new head of its lane.
    fn rewrite<T>(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut StoredJob) -> T,
    ) -> Option<(T, Option<JobId>)> {
        let job = self.jobs.get_mut(&id)?;
        let had_place = !self.fair_limits.is_empty() && job.has_place();
        self.indexes.remove(job);
        let unfinished = !job.record.state.is_terminal();
        let changed = change(job);
        self.indexes.add(job);
        let mut next = None;
        if unfinished && job.record.state.is_terminal() {
            self.links.ended(id);
            next = self.lanes.leave(job);
        }
        if let Some((queue, key)) = job.freed(had_place)
            && self.indexes.has_parked(queue, key)
        {
            self.freed.add(queue, key);
        }
        Some((changed, next))
    }

    pub(super) fn remove(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.indexes.remove(&job);
            self.history.remove(&id);
            self.links.forget(&job.record);
        }
    }

    /// Returns the ended jobs, each with the time at which it ended, in milliseconds since 1970.
    /// The job that ended first comes first.
    pub(super) fn finished(&self) -> impl Iterator<Item = (i64, &StoredJob)> {
        let finished = self.indexes.finished.iter();
        finished.filter_map(|(at, id)| self.jobs.get(id).map(|row| (*at, row)))
    }
}
