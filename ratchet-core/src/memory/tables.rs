use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::archive::Archived;
use super::lanes::Lanes;
use super::links::Links;
use crate::id::{ClaimToken, JobId, NodeId};
use crate::model::{Attempt, AttemptOutcome, JobRecord, NodeRecord, RecurringRecord};
use crate::name::Name;
use crate::priority::Priority;
use crate::route::Route;
use crate::state::JobState;
use crate::store::StoredLock;
use crate::time::{self, Timestamp};

/// All data of a memory store.
#[derive(Clone, Default)]
pub(super) struct Tables {
    jobs: BTreeMap<JobId, Row>,
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

/// A stored job, with data that only the store needs.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) job: JobRecord,
    /// When the body of the current claim last reported, in milliseconds since 1970. `None` if it
    /// has not reported yet.
    pub(super) last_report: Option<i64>,
    /// The token of the claim that was settled last.
    pub(super) settled: Option<ClaimToken>,
    /// Whether any job was ever enqueued with a link to this job.
    pub(super) has_children: bool,
    pub(super) history: Vec<Attempt>,
}

impl Row {
    /// Returns the token of the job's current claim.
    pub(super) fn token(&self) -> ClaimToken {
        let job = &self.job;
        let claimed_at = job.claimed_at.unwrap_or(Timestamp::UNIX_EPOCH);
        ClaimToken::new(job.id, job.claim_seq, job.node, claimed_at)
    }

    /// Returns whether `token` is the token of the job's current claim.
    pub(super) fn holds(&self, token: ClaimToken) -> bool {
        self.job.state == JobState::Running && self.token() == token
    }

    /// Returns whether the job waits for a signal that has not arrived yet.
    pub(super) fn awaits_signal(&self) -> bool {
        let signal = self.job.signal.as_ref();
        self.job.state == JobState::Blocked
            && signal.is_some_and(|signal| signal.delivered.is_none())
    }

    /// Ends the current claim: adds it to the history, removes its node and its time, and sets the
    /// new state.
    pub(super) fn end_claim(&mut self, state: JobState, outcome: AttemptOutcome, now: i64) {
        let ended_at = time::from_millis(now);
        let claimed_at = self.job.claimed_at.unwrap_or(ended_at);
        let node = self.job.node.take();
        self.history.push(Attempt::new(
            self.job.claim_seq,
            node,
            claimed_at,
            ended_at,
            outcome,
        ));
        self.job.claimed_at = None;
        self.job.cancel_requested = false;
        self.last_report = None;
        self.enter(state, ended_at);
    }

    /// Sets the state of the job, and the time of its end if the state is terminal.
    pub(super) fn enter(&mut self, state: JobState, now: Timestamp) {
        debug_assert_eq!(self.job.state.transition(state), Ok(state));
        self.job.state = state;
        self.job.finished_at = state.is_terminal().then_some(now);
    }
}

impl Tables {
    pub(super) fn job(&self, id: JobId) -> Option<&Row> {
        self.jobs.get(&id)
    }

    pub(super) fn jobs(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.jobs.values()
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Row> {
        self.running.iter().filter_map(|id| self.jobs.get(id))
    }

    pub(super) fn insert(&mut self, job: JobRecord) {
        let row = Row {
            job,
            last_report: None,
            settled: None,
            has_children: false,
            history: Vec::new(),
        };
        self.index(&row.job);
        self.jobs.insert(row.job.id, row);
    }

    /// Applies `change` to a job, and updates the indexes, the unique key and the lane. If the job
    /// ends, records it, so that the jobs that wait for it are updated. Returns `None` if the job
    /// does not exist.
    pub(super) fn change<T>(&mut self, id: JobId, change: impl FnOnce(&mut Row) -> T) -> Option<T> {
        let mut row = self.jobs.remove(&id)?;
        self.unindex(&row.job);
        let unfinished = !row.job.state.is_terminal();
        let changed = change(&mut row);
        self.index(&row.job);
        let ended = unfinished && row.job.state.is_terminal();
        let next = if ended {
            self.links.ended(id);
            self.lanes.leave(&row.job)
        } else {
            None
        };
        self.jobs.insert(id, row);
        if let Some(next) = next {
            self.promote(next);
        }
        Some(changed)
    }

    /// Makes a blocked job pending, because it is now the head of its lane.
    fn promote(&mut self, id: JobId) {
        if let Some(mut row) = self.jobs.remove(&id) {
            if row.job.state == JobState::Blocked {
                self.unindex(&row.job);
                row.job.state = JobState::Pending;
                self.index(&row.job);
            }
            self.jobs.insert(id, row);
        }
    }

    pub(super) fn remove(&mut self, id: JobId) {
        if let Some(row) = self.jobs.remove(&id) {
            self.unindex(&row.job);
            self.links.forget(id);
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
    pub(super) fn finished(&self) -> impl Iterator<Item = (i64, &Row)> {
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
