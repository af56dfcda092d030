use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::archive::Archived;
use super::lanes::Lanes;
use super::links::Links;
use crate::id::{JobId, NodeId};
use crate::model::{Attempt, JobRecord, NodeRecord, RecurringRecord, StoredJob};
use crate::name::Name;
use crate::priority::Priority;
use crate::route::Route;
use crate::state::JobState;
use crate::store::StoredLock;
use crate::time;

/// All data of a memory store.
#[derive(Clone, Default)]
pub(super) struct Tables {
    jobs: BTreeMap<JobId, StoredJob>,
    /// The ended claims of each job that has any.
    history: HashMap<JobId, Vec<Attempt>>,
    /// The pending jobs of each route and priority. The jobs of one priority are in claim order.
    pending: HashMap<Route, [Level; Priority::ALL.len()]>,
    running: BTreeSet<JobId>,
    finished: BTreeSet<(i64, JobId)>,
    /// The unfinished job that holds each unique key.
    pub(super) unique_keys: HashMap<Name, JobId>,
    /// The first job that was enqueued with each idempotency key. Entries are never deleted.
    pub(super) idempotency_keys: HashMap<Name, JobId>,
    /// The unfinished jobs of each lane, in order.
    pub(super) lanes: Lanes,
    pub(super) links: Links,
    pub(super) paused_queues: BTreeSet<Name>,
    pub(super) nodes: BTreeMap<NodeId, NodeRecord>,
    /// The locks by name. A released or expired lock is kept, because its fences must never repeat.
    pub(super) locks: BTreeMap<Name, StoredLock>,
    pub(super) versions: HashMap<Name, u64>,
    pub(super) recurring: BTreeMap<Name, RecurringRecord>,
    pub(super) archive: BTreeMap<JobId, Archived>,
    /// The maximum number of permits of each resource.
    pub(super) permits: BTreeMap<Name, u32>,
    /// The theoretical arrival time of each rate key, in microseconds since 1970.
    pub(super) rates: BTreeMap<Name, i64>,
}

/// The pending jobs of one route and priority, in claim order: due time in milliseconds, and id.
type Level = BTreeSet<(i64, JobId)>;

impl Tables {
    pub(super) fn job(&self, id: JobId) -> Option<&StoredJob> {
        self.jobs.get(&id)
    }

    pub(super) fn jobs(&self) -> impl DoubleEndedIterator<Item = &StoredJob> {
        self.jobs.values()
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &StoredJob> {
        self.running.iter().filter_map(|id| self.jobs.get(id))
    }

    pub(super) fn history(&self, id: JobId) -> &[Attempt] {
        self.history.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn insert(&mut self, job: StoredJob) {
        self.index(&job.record);
        self.jobs.insert(job.record.id, job);
    }

    /// Adds an ended claim, if there is one, to the history of its job.
    pub(super) fn record(&mut self, job: JobId, ended: Option<Attempt>) {
        if let Some(attempt) = ended {
            self.history.entry(job).or_default().push(attempt);
        }
    }

    /// Applies `change` to a job, and updates the indexes, the unique key and the lane. If the job
    /// ends, records it, so that the jobs that wait for it are updated. Returns `None` if the job
    /// does not exist.
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
        let mut job = self.jobs.remove(&id)?;
        self.unindex(&job.record);
        let unfinished = !job.record.state.is_terminal();
        let changed = change(&mut job);
        self.index(&job.record);
        let mut next = None;
        if unfinished && job.record.state.is_terminal() {
            self.links.ended(id);
            next = self.lanes.leave(&mut job);
        }
        self.jobs.insert(id, job);
        Some((changed, next))
    }

    pub(super) fn remove(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.unindex(&job.record);
            self.history.remove(&id);
            self.links.forget(&job.record);
        }
    }

    /// Returns the pending jobs of the routes for which `matches` returns true. There is one entry
    /// for each route and priority, with its jobs in claim order.
    pub(super) fn pending_levels(
        &self,
        matches: impl Fn(&Route) -> bool,
    ) -> Vec<(&Route, Priority, &Level)> {
        let of_route = |(route, levels)| {
            let levels = Priority::ALL.into_iter().zip(levels);
            levels.map(move |(priority, jobs)| (route, priority, jobs))
        };
        self.pending
            .iter()
            .filter(|(route, _)| matches(route))
            .flat_map(of_route)
            .collect()
    }

    /// Returns the ended jobs in the order of the times at which they ended, oldest first. Each has
    /// this time in milliseconds since 1970.
    pub(super) fn finished(&self) -> impl Iterator<Item = (i64, &StoredJob)> {
        self.finished
            .iter()
            .filter_map(|(at, id)| self.jobs.get(id).map(|row| (*at, row)))
    }

    fn index(&mut self, job: &JobRecord) {
        match job.state {
            JobState::Pending => {
                let levels = self.pending.entry(job.spec.route.clone()).or_default();
                let level = usize::from(job.spec.priority.level());
                levels[level].insert((time::to_millis(job.run_at), job.id));
            }
            JobState::Running => {
                self.running.insert(job.id);
            }
            JobState::Succeeded | JobState::Failed | JobState::Cancelled => {
                self.finished.insert((finished_millis(job), job.id));
            }
            JobState::Blocked | JobState::Paused => {}
        }
        if let Some(key) = job
            .spec
            .unique_key
            .as_ref()
            .filter(|_| !job.state.is_terminal())
        {
            self.unique_keys.insert(key.clone(), job.id);
        }
    }

    fn unindex(&mut self, job: &JobRecord) {
        match job.state {
            JobState::Pending => {
                if let Some(levels) = self.pending.get_mut(&job.spec.route) {
                    let level = usize::from(job.spec.priority.level());
                    levels[level].remove(&(time::to_millis(job.run_at), job.id));
                }
            }
            JobState::Running => {
                self.running.remove(&job.id);
            }
            JobState::Succeeded | JobState::Failed | JobState::Cancelled => {
                self.finished.remove(&(finished_millis(job), job.id));
            }
            JobState::Blocked | JobState::Paused => {}
        }
        if let Some(key) = job
            .spec
            .unique_key
            .as_ref()
            .filter(|_| !job.state.is_terminal())
        {
            self.unique_keys.remove(key);
        }
    }
}

fn finished_millis(job: &JobRecord) -> i64 {
    job.finished_at.map_or(0, time::to_millis)
}
