use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::tables::{Row, Tables};
use crate::id::{BatchId, JobId};
use crate::links::{Ask, Cascade, Changes, EndedJob, OpenLink, WaitingJob};
use crate::model::{After, BatchRecord, LinkState, Parent, SignalRecord, Tally};
use crate::state::JobState;
use crate::time::{self, Timestamp, from_millis};

/// The links and batches of a memory store. Also records the jobs and batches that the current call
/// has changed, because their children are updated at the end of the call.
#[derive(Clone, Default)]
pub(super) struct Links {
    /// The links of each child, in the order in which the enqueue listed them.
    pub(super) parents: BTreeMap<JobId, Vec<(After, LinkState)>>,
    /// The children of each parent.
    pub(super) children: HashMap<Parent, BTreeSet<JobId>>,
    pub(super) batches: BTreeMap<BatchId, BatchRecord>,
    /// The jobs that were already counted in their batches.
    counted: BTreeSet<JobId>,
    /// The jobs that ended in the current call, and the jobs that got a new child.
    ended: BTreeSet<JobId>,
    /// The batches that were closed in the current call, and those that got a new child.
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

    /// Adds open links from a child to its parents.
    pub(super) fn link(&mut self, child: JobId, after: Vec<After>) {
        for one in &after {
            let children = self.children.entry(one.parent()).or_default();
            children.insert(child);
        }
        let open = after.into_iter().map(|one| (one, LinkState::Open));
        self.parents.insert(child, open.collect());
    }

    /// Removes the links from a deleted job to its parents. The links from its children to it
    /// remain.
    pub(super) fn forget(&mut self, job: JobId) {
        for (after, _) in self.parents.remove(&job).unwrap_or_default() {
            if let Some(children) = self.children.get_mut(&after.parent()) {
                children.remove(&job);
                if children.is_empty() {
                    self.children.remove(&after.parent());
                }
            }
        }
        self.counted.remove(&job);
    }

    pub(super) fn has_open(&self, child: JobId) -> bool {
        let links = self.parents.get(&child);
        links.is_some_and(|links| links.iter().any(|(_, state)| *state == LinkState::Open))
    }
}

impl Tables {
    /// Returns whether this job has a child that has not ended.
    pub(super) fn is_awaited(&self, job: JobId) -> bool {
        let children = self.links.children.get(&Parent::Job(job));
        let unfinished = |row: &Row| !row.job.state.is_terminal();
        children.is_some_and(|children| {
            let mut rows = children.iter().filter_map(|child| self.job(*child));
            rows.any(unfinished)
        })
    }

    /// Updates the jobs and batches that depend on jobs that ended in this call: decides links,
    /// releases or cancels children, and counts batches. Every store call runs this at its end.
    pub(super) fn follow_ends(&mut self, now: i64) {
        let mut cascade = Cascade::new();
        for id in std::mem::take(&mut self.links.ended) {
            if let Some(row) = self.job(id).filter(|row| row.job.state.is_terminal()) {
                cascade.ended(EndedJob {
                    job: id,
                    state: row.job.state,
                    result: row.job.result.clone(),
                    has_children: row.has_children,
                    in_batch: row.job.spec.batch.is_some(),
                });
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
        let waiting = |child: JobId| {
            let row = self.job(child)?;
            let links = self.links.parents.get(&child)?.iter();
            let open = (0..)
                .zip(links)
                .filter(|(_, (_, state))| *state == LinkState::Open)
                .map(|(place, (after, _))| OpenLink {
                    place,
                    parent: after.parent(),
                    after: Some(after.clone()),
                });
            Some(WaitingJob {
                job: child,
                state: row.job.state,
                awaits_signal: row.awaits_signal(),
                has_children: row.has_children,
                in_batch: row.job.spec.batch.is_some(),
                open: open.collect(),
            })
        };
        children.into_iter().filter_map(waiting).collect()
    }

    fn count(&mut self, ended: &[(JobId, JobState)]) -> Vec<BatchRecord> {
        let mut tallies: BTreeMap<BatchId, Tally> = BTreeMap::new();
        for (job, state) in ended {
            let batch = self.job(*job).and_then(|row| row.job.spec.batch);
            if let Some(batch) = batch
                && self.links.counted.insert(*job)
            {
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
            let links = self.links.parents.get_mut(child);
            if let Some((_, state)) = links.and_then(|links| links.get_mut(*place as usize)) {
                *state = *decided;
            }
        }
        for id in &changes.cancelled {
            self.change(*id, |row| row.enter(JobState::Cancelled, from_millis(now)));
        }
        for id in &changes.released {
            self.release(*id, now);
        }
        for batch in &changes.ended {
            if let Some(batch) = self.links.batches.get_mut(batch) {
                batch.ended_at = Some(from_millis(now));
            }
        }
    }

    /// Makes a job pending, because it no longer waits for anything.
    pub(super) fn release(&mut self, id: JobId, now: i64) {
        self.change(id, |row| {
            row.enter(JobState::Pending, from_millis(now));
            row.job.run_at = row.job.run_at.max(from_millis(now));
        });
    }
}

/// Creates the record of a job that begins to wait for a signal. The deadline is `now`, in
/// milliseconds since 1970, plus `timeout`.
pub(super) fn awaited(timeout: std::time::Duration, now: i64) -> SignalRecord {
    let deadline: Timestamp = from_millis(now.saturating_add(time::duration_millis(timeout)));
    SignalRecord::new(deadline)
}
