use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, btree_set};
use std::convert::Infallible;
use std::iter::Peekable;

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
    /// The pending jobs of each route and priority, for the routes that have any.
    pending: BTreeMap<Route, Levels<PendingJobs>>,
    /// The first pending job without a fair key of each queue, for each kind, capability and
    /// permit, and for each priority. So a claim need not look at each queue.
    heads: BTreeMap<Unqueued, Levels<Heads>>,
    /// The routes that have pending jobs with a fair key.
    fair: BTreeSet<Route>,
    pub(super) running: BTreeSet<JobId>,
    /// The number of running jobs of each queue and fair key that has any.
    running_keys: BTreeMap<(Name, Name), u64>,
    /// The levels of each queue and fair key that have parked jobs of the key.
    parked: BTreeMap<(Name, Name), BTreeSet<(Route, Priority)>>,
    /// The ended jobs, by the time at which they ended, in milliseconds since 1970.
    pub(super) finished: BTreeSet<(i64, JobId)>,
    /// The unfinished job that holds each unique key.
    pub(super) unique_keys: BTreeMap<Name, JobId>,
    /// The waiting jobs that expire, by the time in milliseconds since 1970.
    expiries: BTreeSet<(i64, JobId)>,
}

/// One value for each priority.
type Levels<T> = [T; Priority::ALL.len()];
/// Kind, capability and permit of a route.
type Unqueued = (Name, Option<Name>, Option<Name>);
/// Jobs by due time in milliseconds and id, with their routes.
type Heads = BTreeMap<(i64, JobId), Route>;

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

    /// Returns the parked jobs of a key, in the order in which they wait.
    fn parked(&self, key: &Name) -> impl Iterator<Item = JobId> {
        let of_key = self.keys.get(key).into_iter();
        let parked = of_key.flat_map(|turns| turns.range(FIRST..));
        parked.map(|((_, id), _)| *id)
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

    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.fair.as_ref().is_none_or(|fair| fair.due.is_empty())
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

    /// Returns the jobs that a claim at `now` may take, as streams in claim order, each with its
    /// priority and with the route of one of its jobs. All routes of a stream need the same permit.
    ///
    /// `of_kind` tells whether the claim takes jobs of a route if it takes those of its queue, and
    /// `matches` tells whether it takes jobs of a route.
    pub(super) fn claimable<'a>(
        &'a self,
        of_kind: impl Fn(&Route) -> bool,
        matches: &'a impl Fn(&Route) -> bool,
        now: i64,
    ) -> Vec<(&'a Route, Priority, Claimable<'a>)> {
        let mut streams: Vec<(&Route, Priority, Claimable<'_>)> = Vec::new();
        for levels in self.heads.values() {
            for (priority, heads) in Priority::ALL.into_iter().zip(levels) {
                let first = heads.first_key_value();
                if let Some((_, route)) = first.filter(|(_, route)| of_kind(route)) {
                    let heads: Matching<'_> = Box::new(heads.iter().filter(|one| matches(one.1)));
                    let merged = Merged {
                        indexes: self,
                        priority,
                        heads: heads.peekable(),
                        begun: BinaryHeap::new(),
                        rests: Vec::new(),
                    };
                    let due = merged.take_while(move |(run_at, _)| *run_at <= now);
                    streams.push((route, priority, Box::new(due.map(Ok))));
                }
            }
        }
        for route in self.fair.iter().filter(|route| matches(route)) {
            let levels = self.pending.get(route).into_iter().flatten();
            for (priority, level) in Priority::ALL.into_iter().zip(levels) {
                let turns = level.fair.iter().flat_map(|fair| &fair.turns);
                let turns = turns.take_while(|((turn, ..), _)| !fair::is_parked(*turn));
                let turns = turns.map(|((.., id), run_at)| Ok((*run_at, *id)));
                streams.push((route, priority, Box::new(turns)));
            }
        }
        streams
    }

    /// Returns up to `limit` sleeping jobs that are due at `now`, of the routes for which `matches`
    /// returns true, the longest due first.
    pub(super) fn sleepers(
        &self,
        matches: impl Fn(&Route) -> bool,
        now: i64,
        limit: usize,
    ) -> Vec<JobId> {
        let routes = self.fair.iter().filter(|route| matches(route));
        let levels = routes.filter_map(|route| self.pending.get(route)).flatten();
        let asleep = levels.filter_map(|level| level.fair.as_ref());
        let due = asleep.flat_map(|fair| {
            let due = fair.asleep.iter().take_while(|(at, _)| *at <= now);
            due.take(limit)
        });
        let due: BTreeSet<&(i64, JobId)> = due.collect();
        due.into_iter().take(limit).map(|(_, id)| *id).collect()
    }

    /// Returns the queues and fair keys of a scope that have parked jobs.
    pub(super) fn parked_keys(&self, scope: &FairScope) -> Vec<(Name, Name)> {
        let of_scope = |(queue, key): &&(Name, Name)| {
            scope.has_queue(queue) && scope.fair_key().is_none_or(|of| of == key)
        };
        self.parked.keys().filter(of_scope).cloned().collect()
    }

    /// Returns the levels of a queue that have parked jobs of a fair key.
    pub(super) fn parked_levels(
        &self,
        place: &(Name, Name),
    ) -> impl ExactSizeIterator<Item = &(Route, Priority)> {
        static NONE: BTreeSet<(Route, Priority)> = BTreeSet::new();
        self.parked.get(place).unwrap_or(&NONE).iter()
    }

    /// Returns whether jobs of a fair key are parked in a queue.
    pub(super) fn has_parked(&self, queue: &Name, key: &Name) -> bool {
        self.parked.contains_key(&(queue.clone(), key.clone()))
    }

    /// Returns the number of running jobs of a queue and fair key.
    pub(super) fn running_of(&self, place: &(Name, Name)) -> u64 {
        self.running_keys.get(place).copied().unwrap_or(0)
    }

    /// Returns the first parked jobs of a key in a level, at most `share`, and whether more of them
    /// may get turns. `max` and `running` are the limit and the number of running jobs of the key.
    pub(super) fn first_parked(
        &self,
        (route, priority): &(Route, Priority),
        key: &Name,
        (max, running): (Option<u32>, u64),
        share: u64,
    ) -> (Vec<JobId>, bool) {
        let levels = self.pending.get(route);
        let level = levels.map(|levels| &levels[usize::from(priority.level())]);
        let Some(fair) = level.and_then(|level| level.fair.as_ref()) else {
            return (Vec::new(), false);
        };
        let free = usize::try_from(fair::places_for(max, running, 0)).unwrap_or(usize::MAX);
        let ahead = match max {
            None => 0,
            Some(_) => fair.turns_of(key).take(free).count() as u64,
        };
        let places = fair::places_for(max, running, ahead);
        let mut parked = (0..places).zip(fair.parked(key)).map(|(_, id)| id);
        // The range comes first: `zip` drops an item of its first part if the second one has ended.
        let woken = (0..share).zip(parked.by_ref()).map(|(_, id)| id).collect();
        (woken, parked.next().is_some())
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

    /// Changes the pending jobs of a job's route and priority, and what depends on them.
    fn change_level(&mut self, job: &JobRecord, change: impl FnOnce(&mut PendingJobs)) {
        let route = &job.spec.route;
        let priority = usize::from(job.spec.priority.level());
        let levels = self.pending.entry(route.clone()).or_default();
        let level = &mut levels[priority];
        let before = level.plain.first().copied();
        change(level);
        let after = level.plain.first().copied();
        if levels
            .iter()
            .any(|level| level.fair.as_ref().is_some_and(|fair| !fair.due.is_empty()))
        {
            self.fair.insert(route.clone());
        } else {
            self.fair.remove(route);
        }
        if levels.iter().all(PendingJobs::is_empty) {
            self.pending.remove(route);
        }
        if before == after {
            return;
        }
        let Route {
            kind,
            capability,
            permit,
            ..
        } = route.clone();
        let unqueued = (kind, capability, permit);
        let levels = self.heads.entry(unqueued.clone()).or_default();
        if let Some(before) = before {
            levels[priority].remove(&before);
        }
        if let Some(after) = after {
            levels[priority].insert(after, route.clone());
        }
        if levels.iter().all(BTreeMap::is_empty) {
            self.heads.remove(&unqueued);
        }
    }

    /// Adds a job to the indexes.
    pub(super) fn add(&mut self, stored: &StoredJob) {
        let job = &stored.record;
        match job.state {
            JobState::Pending => {
                let run_at = time::to_millis(job.run_at);
                self.change_level(job, |level| match &job.spec.fair_key {
                    None => drop(level.plain.insert((run_at, job.id))),
                    Some(key) => {
                        let fair = level.fair.get_or_insert_default();
                        fair.add(stored, key, run_at);
                    }
                });
                if let Some(place) = parked_place(stored) {
                    let level = (job.spec.route.clone(), job.spec.priority);
                    self.parked.entry(place).or_default().insert(level);
                }
            }
            JobState::Running => {
                self.running.insert(job.id);
                if let Some(key) = stored.fair_key() {
                    let place = (job.spec.route.queue.clone(), key.clone());
                    *self.running_keys.entry(place).or_default() += 1;
                }
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

    /// Removes the level of a job that was parked, unless other jobs of its key are parked there.
    fn unpark(&mut self, job: &StoredJob, place: (Name, Name)) {
        let level = self.fair_level(job);
        if level.is_some_and(|level| level.parked(&place.1).next().is_some()) {
            return;
        }
        if let Entry::Occupied(mut levels) = self.parked.entry(place) {
            let spec = &job.record.spec;
            levels
                .get_mut()
                .remove(&(spec.route.clone(), spec.priority));
            if levels.get().is_empty() {
                levels.remove();
            }
        }
    }

    /// Removes a job from the indexes. The job must not have changed since it was added.
    pub(super) fn remove(&mut self, stored: &StoredJob) {
        let job = &stored.record;
        match job.state {
            JobState::Pending => {
                let run_at = time::to_millis(job.run_at);
                self.change_level(job, |level| match (&job.spec.fair_key, &mut level.fair) {
                    (Some(key), Some(fair)) => fair.remove(stored, key, run_at),
                    _ => drop(level.plain.remove(&(run_at, job.id))),
                });
                if let Some(place) = parked_place(stored) {
                    self.unpark(stored, place);
                }
            }
            JobState::Running => {
                self.running.remove(&job.id);
                if let Some(key) = stored.fair_key() {
                    let place = (job.spec.route.queue.clone(), key.clone());
                    if let Entry::Occupied(mut running) = self.running_keys.entry(place) {
                        *running.get_mut() -= 1;
                        if *running.get() == 0 {
                            running.remove();
                        }
                    }
                }
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

/// The due time in milliseconds and the id of each job that a claim may take, in claim order.
pub(super) type Claimable<'a> = Box<dyn Iterator<Item = Result<(i64, JobId), Infallible>> + 'a>;

/// The first jobs of the queues that a claim matches.
type Matching<'a> = Box<dyn Iterator<Item = (&'a (i64, JobId), &'a Route)> + 'a>;

/// The pending jobs without a fair key of many queues, with one kind, capability, permit and
/// priority, in claim order. It looks at the other jobs of a queue only after the first of them.
struct Merged<'a> {
    indexes: &'a Indexes,
    priority: Priority,
    /// The first jobs of the queues of which no job was returned yet.
    heads: Peekable<Matching<'a>>,
    /// The next job of each other queue, with the place of the queue in `rests`.
    begun: BinaryHeap<Reverse<((i64, JobId), usize)>>,
    /// The jobs after those in `begun`.
    rests: Vec<btree_set::Iter<'a, (i64, JobId)>>,
}

impl Merged<'_> {
    /// Returns the next first job of a queue, and begins with the others of the queue.
    fn begin(&mut self) -> Option<((i64, JobId), usize)> {
        let (head, route) = self.heads.next()?;
        let levels = self.indexes.pending.get(route)?;
        let mut rest = levels[usize::from(self.priority.level())].plain.iter();
        rest.next();
        self.rests.push(rest);
        Some((*head, self.rests.len() - 1))
    }
}

impl Iterator for Merged<'_> {
    type Item = (i64, JobId);

    fn next(&mut self) -> Option<(i64, JobId)> {
        let next = self.begun.peek().map(|Reverse((job, _))| *job);
        let head = self.heads.peek().map(|(head, _)| **head);
        let begins = head.is_some_and(|head| next.is_none_or(|next| head < next));
        let (job, place) = match begins {
            true => self.begin()?,
            false => self.begun.pop()?.0,
        };
        if let Some(next) = self.rests[place].next() {
            self.begun.push(Reverse((*next, place)));
        }
        Some(job)
    }
}

/// Returns queue and fair key of a job if it is parked.
fn parked_place(job: &StoredJob) -> Option<(Name, Name)> {
    let key = job
        .fair_key()
        .filter(|_| job.turn.is_some_and(fair::is_parked))?;
    Some((job.record.spec.route.queue.clone(), key.clone()))
}

fn finished_millis(job: &JobRecord) -> i64 {
    job.finished_at.map_or(0, time::to_millis)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::NewJob;
    use crate::priority::{Aging, ClaimRank, merge_admitted};

    fn job(queue: usize, priority: Priority, run_at: i64) -> StoredJob {
        let job = NewJob::new("kind", &()).queue(&format!("q{queue}"));
        let job = job
            .priority(priority)
            .run_at(time::from_millis(1_000 + run_at));
        StoredJob::enqueued(&job, 0)
    }

    #[test]
    fn queues_without_pending_jobs_leave_nothing() {
        let mut indexes = Indexes::default();
        let mut jobs: Vec<StoredJob> = (0..100).map(|n| job(n, Priority::Normal, 0)).collect();
        for job in jobs.iter_mut().step_by(2) {
            job.record.spec.fair_key = NewJob::new("kind", &())
                .fair_key("a")
                .spec()
                .fair_key
                .clone();
        }
        for job in &jobs {
            indexes.add(job);
        }
        assert_eq!((indexes.pending.len(), indexes.fair.len()), (100, 50));
        for job in &jobs {
            indexes.remove(job);
        }
        assert!(indexes.pending.is_empty() && indexes.fair.is_empty() && indexes.heads.is_empty());
    }

    proptest! {
        /// Merging from queue to queue gives the same order as sorting the jobs by rank, also after
        /// some jobs were removed.
        #[test]
        fn jobs_of_many_queues_come_in_claim_order(
            jobs in prop::collection::vec((0_usize..9, 0_i64..5, 0_i64..30, any::<bool>()), 0..60),
            limit in 0_usize..70,
        ) {
            let mut indexes = Indexes::default();
            let level = |level| Priority::from_level(level).unwrap();
            let stored: Vec<(StoredJob, bool)> = jobs
                .into_iter()
                .map(|(queue, priority, run_at, stays)| (job(queue, level(priority), run_at), stays))
                .collect();
            for (job, _) in &stored {
                indexes.add(job);
            }
            for (job, _) in stored.iter().filter(|(_, stays)| !stays) {
                indexes.remove(job);
            }
            let (now, aging) = (1_020, Aging::every(std::time::Duration::from_millis(7)));
            let matches = |route: &Route| route.queue != "q0";
            let streams = indexes.claimable(|_| true, &matches, now);
            let streams = streams.into_iter().map(|(_, priority, jobs)| (priority, jobs));
            let Ok(found) = merge_admitted(streams, aging, now, limit, |_| true);
            let rank = |job: &StoredJob| {
                let record = &job.record;
                let run_at = time::to_millis(record.run_at);
                let due = run_at <= now && matches(&record.spec.route);
                due.then(|| ClaimRank::new(record.spec.priority, run_at, record.id, aging, now))
            };
            let stay = stored.iter().filter(|(_, stays)| *stays);
            let mut ranks: Vec<ClaimRank> = stay.filter_map(|(job, _)| rank(job)).collect();
            ranks.sort();
            let expected: Vec<JobId> = ranks.iter().take(limit).map(ClaimRank::id).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
