use std::collections::{BTreeMap, BTreeSet};

use crate::id::JobId;
use crate::model::JobRecord;
use crate::name::Name;
use crate::priority::Priority;
use crate::route::Route;
use crate::state::JobState;
use crate::time;

/// Indexes of the jobs, by the properties for which store calls search.
#[derive(Clone, Default)]
pub(super) struct Indexes {
    /// The pending jobs of each route and priority. The jobs of one priority are in claim order.
    pending: BTreeMap<Route, [Level; Priority::ALL.len()]>,
    pub(super) running: BTreeSet<JobId>,
    /// The ended jobs, by the time at which they ended, in milliseconds since 1970.
    pub(super) finished: BTreeSet<(i64, JobId)>,
    /// The unfinished job that holds each unique key.
    pub(super) unique_keys: BTreeMap<Name, JobId>,
}

/// The pending jobs of one route and priority, in claim order: due time in milliseconds, and id.
type Level = BTreeSet<(i64, JobId)>;

impl Indexes {
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

    /// Adds a job to the indexes.
    pub(super) fn add(&mut self, job: &JobRecord) {
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

    /// Removes a job from the indexes. The job must not have changed since it was added.
    pub(super) fn remove(&mut self, job: &JobRecord) {
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
