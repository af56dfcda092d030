use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use crate::fair::{self, FIRST_PARKED, Last};
use crate::id::JobId;
use crate::model::{FairKey, FairScope, JobRecord, StoredJob, is_expired};
use crate::name::Name;
use crate::priority::Priority;
use crate::route::Route;
use crate::state::JobState;
use crate::time;

/// Indexes of the jobs, by the properties for which store calls search.
#[derive(Clone, Default)]
pub(super) struct Indexes {
    /// The pending jobs of each route and priority.
    pending: BTreeMap<Route, [PendingJobs; Priority::ALL.len()]>,
    pub(super) running: BTreeSet<JobId>,
    /// The ended jobs, by the time at which they ended, in milliseconds since 1970.
    pub(super) finished: BTreeSet<(i64, JobId)>,
    /// The unfinished job that holds each unique key.
    pub(super) unique_keys: BTreeMap<Name, JobId>,
    /// The waiting jobs that expire, by the time in milliseconds since 1970.
    expiries: BTreeSet<(i64, JobId)>,
}

/// The pending jobs of one route and priority.
#[derive(Clone, Default)]
pub(super) struct PendingJobs {
    /// The jobs without a fair key in claim order: due time in milliseconds, and id.
    pub(super) plain: BTreeSet<(i64, JobId)>,
    /// The jobs with a fair key. `None` if there was never one.
    pub(super) fair: Option<Box<FairLevel>>,
}

/// The pending jobs with a fair key of one route and priority.
#[derive(Clone, Default)]
pub(super) struct FairLevel {
    /// All jobs: due time in milliseconds, and id.
    due: BTreeSet<(i64, JobId)>,
    /// The jobs without a turn, in the same way.
    asleep: BTreeSet<(i64, JobId)>,
    /// The jobs with a turn in claim order, with their due times. Parked jobs come last.
    pub(super) turns: BTreeMap<(i64, Name, JobId), i64>,
    /// The turns of each key, with the costs of the jobs.
    keys: BTreeMap<Name, BTreeMap<(i64, JobId), u32>>,
}

/// The place of the first parked job of a key.
const FIRST: (i64, JobId) = (FIRST_PARKED, JobId::from_bytes([0; 16]));

impl FairLevel {
    /// Returns the turn of a job of this key that has become due at `run_at`.
    fn turn(&self, key: &FairKey, now: i64, run_at: i64) -> i64 {
        let last = self.keys.get(key.name());
        let last = last.and_then(BTreeMap::last_key_value).map(last_of);
        fair::turn_or_parked(self.first(), last, key.cost(), now, run_at)
    }

    /// Returns the turn of a parked job of this key that is woken.
    fn turn_of_woken(&self, key: &FairKey, now: i64) -> i64 {
        let last = self.turns_of(key.name()).next_back().map(last_of);
        fair::turn(self.first(), last, key.cost(), now)
    }

    /// Returns the first turn of the jobs that are not parked.
    fn first(&self) -> Option<i64> {
        let first = self.turns.first_key_value().map(|((turn, ..), _)| *turn);
        first.filter(|turn| !fair::is_parked(*turn))
    }

    /// Returns the jobs of a key that have turns and are not parked.
    fn turns_of(&self, key: &Name) -> impl DoubleEndedIterator<Item = (&(i64, JobId), &u32)> {
        let of_key = self.keys.get(key).into_iter();
        of_key.flat_map(|turns| turns.range(..FIRST))
    }

    fn add(&mut self, job: &StoredJob, key: &FairKey, run_at: i64) {
        let id = job.record.id;
        self.due.insert((run_at, id));
        match job.turn {
            None => drop(self.asleep.insert((run_at, id))),
            Some(turn) => {
                self.turns.insert((turn, key.name().clone(), id), run_at);
                let turns = self.keys.entry(key.name().clone()).or_default();
                turns.insert((turn, id), key.cost());
            }
        }
    }

    fn remove(&mut self, job: &StoredJob, key: &FairKey, run_at: i64) {
        let id = job.record.id;
        self.due.remove(&(run_at, id));
        self.asleep.remove(&(run_at, id));
        if let Some(turn) = job.turn {
            self.turns.remove(&(turn, key.name().clone(), id));
            if let Some(turns) = self.keys.get_mut(key.name()) {
                turns.remove(&(turn, id));
                if turns.is_empty() {
                    self.keys.remove(key.name());
                }
            }
        }
    }
}

fn last_of(((turn, _), cost): (&(i64, JobId), &u32)) -> Last {
    Last {
        turn: *turn,
        cost: *cost,
    }
}

impl PendingJobs {
    /// Returns the jobs that are due at `now`: due time in milliseconds, and id. The longest due of
    /// the jobs without a fair key comes first, and then the longest due of the others.
    pub(super) fn due(&self, now: i64) -> impl Iterator<Item = &(i64, JobId)> {
        let fair = self.fair.iter().map(|fair| &fair.due);
        let all = std::iter::once(&self.plain).chain(fair);
        all.flat_map(move |jobs| jobs.iter().take_while(move |(run_at, _)| *run_at <= now))
    }

    /// Returns the jobs without or with a fair key that a claim at `now` may take, in claim order.
    pub(super) fn claimable(
        &self,
        fair: bool,
        now: i64,
    ) -> impl Iterator<Item = Result<(i64, JobId), Infallible>> {
        let plain = (!fair).then_some(&self.plain).into_iter().flatten();
        let plain = plain.take_while(move |(run_at, _)| *run_at <= now).copied();
        let fair = self.fair.iter().filter(move |_| fair);
        let turns = fair.flat_map(|fair| &fair.turns);
        let turns = turns.take_while(|((turn, ..), _)| !fair::is_parked(*turn));
        let turns = turns.map(|((.., id), run_at)| (*run_at, *id));
        plain.chain(turns).map(Ok)
    }

    /// Returns the due time of the job that is due first.
    pub(super) fn first_due(&self) -> Option<i64> {
        let fair = self.fair.as_ref().and_then(|fair| fair.due.first());
        let firsts = [self.plain.first(), fair].into_iter().flatten();
        firsts.map(|(run_at, _)| *run_at).min()
    }
}

impl Indexes {
    /// Returns the pending jobs of the routes for which `matches` returns true, one entry for each
    /// route and priority.
    pub(super) fn pending_levels(
        &self,
        matches: impl Fn(&Route) -> bool,
    ) -> Vec<(&Route, Priority, &PendingJobs)> {
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

    /// Returns up to `limit` sleeping jobs that are due at `now`, of the routes for which `matches`
    /// returns true, the longest due first.
    pub(super) fn sleepers(
        &self,
        matches: impl Fn(&Route) -> bool,
        now: i64,
        limit: usize,
    ) -> Vec<JobId> {
        let levels = self.pending_levels(matches);
        let asleep = levels
            .iter()
            .filter_map(|(_, _, level)| level.fair.as_ref());
        let due = asleep.flat_map(|fair| {
            let due = fair.asleep.iter().take_while(|(at, _)| *at <= now);
            due.take(limit)
        });
        let due: BTreeSet<&(i64, JobId)> = due.collect();
        due.into_iter().take(limit).map(|(_, id)| *id).collect()
    }

    /// Returns the parked jobs of a scope.
    pub(super) fn parked(&self, scope: &FairScope) -> Vec<JobId> {
        let levels = self.pending_levels(|route| scope.has_queue(&route.queue));
        let fair = levels
            .iter()
            .filter_map(|(_, _, level)| level.fair.as_ref());
        let of_scope = |key: &Name| scope.fair_key().is_none_or(|of| of == key);
        let keys = fair.flat_map(|fair| &fair.keys);
        let keys = keys.filter(|(key, _)| of_scope(key));
        let parked = keys.flat_map(|(_, turns)| turns.range(FIRST..));
        parked.map(|((_, id), _)| *id).collect()
    }

    /// Returns the first parked jobs of a key in each level of a queue. `places` returns how many,
    /// from the number of the key's jobs in the level that have turns and are not parked.
    pub(super) fn first_parked(
        &self,
        queue: &Name,
        key: &Name,
        places: impl Fn(u64) -> u64,
    ) -> Vec<JobId> {
        let mut first = Vec::new();
        for (_, _, level) in self.pending_levels(|route| route.queue == *queue) {
            let Some(fair) = &level.fair else { continue };
            let most = usize::try_from(places(0)).unwrap_or(usize::MAX);
            let ahead = fair.turns_of(key).take(most).count() as u64;
            let parked = fair.keys.get(key).into_iter();
            let parked = parked.flat_map(|turns| turns.range(FIRST..));
            let ids = parked.zip(0..places(ahead));
            first.extend(ids.map(|(((_, id), _), _)| *id));
        }
        first
    }

    /// Returns the turn of this job if it sleeps and is due at `now`.
    pub(super) fn turn(&self, job: &StoredJob, now: i64) -> Option<i64> {
        let key = job.lacks_turn(now)?;
        let run_at = time::to_millis(job.record.run_at);
        Some(self.fair_level(job)?.turn(key, now, run_at))
    }

    /// Returns the turn of this job, which was parked and is woken.
    pub(super) fn turn_of_woken(&self, job: &StoredJob, now: i64) -> Option<i64> {
        let key = job.record.spec.fair_key.as_ref()?;
        Some(self.fair_level(job)?.turn_of_woken(key, now))
    }

    fn fair_level(&self, job: &StoredJob) -> Option<&FairLevel> {
        let spec = &job.record.spec;
        let levels = self.pending.get(&spec.route)?;
        levels[usize::from(spec.priority.level())].fair.as_deref()
    }

    /// Returns the waiting jobs that have expired at `now`, the longest overdue first.
    pub(super) fn expired(&self, now: i64) -> impl Iterator<Item = JobId> {
        let expired = self.expiries.iter();
        let expired = expired.take_while(move |(expiry, _)| is_expired(*expiry, now));
        expired.map(|(_, id)| *id)
    }

    fn level(&mut self, job: &JobRecord) -> &mut PendingJobs {
        let levels = self.pending.entry(job.spec.route.clone()).or_default();
        &mut levels[usize::from(job.spec.priority.level())]
    }

    /// Adds a job to the indexes.
    pub(super) fn add(&mut self, stored: &StoredJob) {
        let job = &stored.record;
        match job.state {
            JobState::Pending => {
                let run_at = time::to_millis(job.run_at);
                let level = self.level(job);
                match &job.spec.fair_key {
                    None => drop(level.plain.insert((run_at, job.id))),
                    Some(key) => {
                        let fair = level.fair.get_or_insert_default();
                        fair.add(stored, key, run_at);
                    }
                }
            }
            JobState::Running => {
                self.running.insert(job.id);
            }
            JobState::Succeeded | JobState::Failed | JobState::Cancelled => {
                self.finished.insert((finished_millis(job), job.id));
            }
            JobState::Blocked | JobState::Paused => {}
        }
        let expiry = stored.expiry();
        self.expiries.extend(expiry.map(|expiry| (expiry, job.id)));
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
    pub(super) fn remove(&mut self, stored: &StoredJob) {
        let job = &stored.record;
        match job.state {
            JobState::Pending => {
                let run_at = time::to_millis(job.run_at);
                if let Some(levels) = self.pending.get_mut(&job.spec.route) {
                    let level = &mut levels[usize::from(job.spec.priority.level())];
                    match (&job.spec.fair_key, &mut level.fair) {
                        (Some(key), Some(fair)) => fair.remove(stored, key, run_at),
                        _ => drop(level.plain.remove(&(run_at, job.id))),
                    }
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
        if let Some(expiry) = stored.expiry() {
            self.expiries.remove(&(expiry, job.id));
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
