//! Fair keys: claims take turns between the keys of a route and priority.
//!
//! This is start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, *Start-time Fair Queuing*,
//! SIGCOMM 1996). Each pending job with a fair key gets a *turn* when it is due, and claims take
//! the jobs of one route and priority in the order (turn, key, id). The *level* of a job is its
//! route and priority, and its cost is 1,000 divided by its weight:
//!
//! ```text
//! after another job of its key    the turn of the last pending job of its key + that job's cost
//! as the first job of its key     V + cost − 1
//! V                               the first turn of the level's pending jobs;
//!                                 without pending jobs the time, in nanoseconds since 1970
//! ```
//!
//! So the turns of one key are at least its cost − 1 apart, however it comes and goes. Between the
//! moment at which a job becomes the first of its key and its claim, another key with as much
//! weight has at most one turn, or two if it falls idle and comes back in between. No key saves up
//! turns while it has no due job, and none owes turns for jobs that were cancelled: only pending
//! jobs count.
//!
//! A job without a turn is *asleep*. Every write that makes a job pending leaves it asleep: a
//! retry, a release, a reschedule, a change of priority, an enqueue in a transaction of the
//! application. An enqueue of the store gives its own due jobs their turns at its end, so a key
//! that floods a queue never delays the others. A claim first gives turns to the due jobs that are
//! asleep in the routes that it looks at, up to [`WOKEN_BY_A_CLAIM`]. So if more jobs of one key
//! become due at once, a sleeping job of another key that is due later waits for a few claims more.
//! Nothing else reads or writes turns, and the number of keys is in no cost.
//!
//! # Limits
//!
//! A [`FairLimit`](crate::model::FairLimit) limits how many jobs of a key run at once in a queue.
//! As with permits, running jobs are counted, and nothing else is. A claim that meets a job of a
//! key without a free place *parks* the job: it moves the job behind all turns, with a turn from
//! [`FIRST_PARKED`] on. So the job is in no claim's way, and the stores need no index of parked
//! jobs. A job that becomes due while jobs of its key are parked in its level is parked at once
//! ([`turn_or_parked`]). So it does not go ahead of them. A write that takes the turn of a parked
//! job away lets it fall asleep, as it does with other jobs.
//!
//! Parked jobs get turns again in two steps. Neither needs a lock of other jobs, so settlements of
//! one key do not wait for each other.
//!
//! **1. An event stores a freed entry**, which is a queue and a key, in the write of the event:
//!
//! - a. The claim of a job of the key ends: by a settlement, by a reclaim, or because the claimed
//!   job cannot be read.
//! - b. A pending job of the key that has a turn, and is not parked, stops to be pending or loses
//!   its turn: by an action, by a new job with its unique key, because it expires, or because it
//!   cannot be read. It may be the job for which a place was free. A claim is no such event,
//!   whether it takes the job or parks it.
//! - c. A limit is set or removed. This stores an entry for each key of its scope that has parked
//!   jobs.
//!
//! Without any limit, a and b need no entry: either no job is parked, or c has stored an entry that
//! is still there. A write that may not see the first limit, because its transaction began before,
//! needs one. Entries need not be unique. A store with several writers stores them blindly: if
//! it stored none because one is there, a claim could delete that one before the event commits. An
//! entry of a key without parked jobs does nothing, so a store with a single writer may omit it.
//!
//! **2. A claim begins with the freed entries**, before it wakes sleepers:
//!
//! - It takes the oldest [`FREED_BY_A_CLAIM`] entries of the queues that its request selects, if
//!   the queue is not paused. Kinds, capabilities, permits and paused kinds do not matter, so all
//!   stores wake the same jobs. A claim of a node that is not active takes none.
//! - It deletes these entries, and then reads limits and running jobs.
//! - It goes through their keys in the order of queue and key, by bytes. In each level of the queue
//!   that has parked jobs of the key, the first parked jobs, by due time and id, get new turns by
//!   the rule of [`turn`], until as many jobs of the key have turns as places are free
//!   ([`places_for`]). So parked jobs of all priorities and kinds compete for a place, in claim
//!   order.
//! - Each level gets at most [`share`] turns. `share` has the number of all levels with parked jobs
//!   of all these keys. If a level of a key needs more, the claim stores a new entry for the key,
//!   which is behind all others.
//!
//! Then the claim wakes sleepers, and takes jobs as [`Places::admit`] decides. There is no other
//! pass.
//!
//! So after each call, for each key and each level with parked jobs of it: the key has a freed
//! entry, or at least as many jobs of the key have turns in the level as the key has free places.

use std::collections::{HashMap, HashSet};

use crate::id::JobId;
use crate::name::Name;
use crate::permit::Budget;
use crate::priority::Choice;
use crate::route::Route;

/// The number of sleeping jobs to which one claim gives turns, the longest due first, whatever
/// their keys. So the cost of a claim does not depend on how many jobs become due at once. A claim
/// also gives turns to about as many parked jobs: see [`share`].
pub const WOKEN_BY_A_CLAIM: usize = 1_000;

/// The number of freed entries that one claim takes.
pub const FREED_BY_A_CLAIM: usize = 1_000;

/// The number of jobs that one claim parks.
pub const PARKED_BY_A_CLAIM: usize = 1_000;

/// The first turn of parked jobs. The turns of other jobs are smaller.
pub const FIRST_PARKED: i64 = 1 << 62;

/// Returns the turn of a parked job that is due at `run_at`, in milliseconds since 1970. Parked
/// jobs of a key wait in the order of their due times.
#[must_use]
pub fn parked(run_at: i64) -> i64 {
    FIRST_PARKED.saturating_add(run_at.max(0))
}

/// Returns whether this is the turn of a parked job.
#[must_use]
pub const fn is_parked(turn: i64) -> bool {
    turn >= FIRST_PARKED
}

/// Returns how many parked jobs of a key may get turns in a level. `max` is the limit of the key,
/// `running` the number of its running jobs in the queue, and `ahead` the number of its pending
/// jobs in the level that have turns and are not parked. Without a limit, all may.
#[must_use]
pub fn places_for(max: Option<u32>, running: u64, ahead: u64) -> u64 {
    max.map_or(u64::MAX, |max| {
        u64::from(max).saturating_sub(running).saturating_sub(ahead)
    })
}

/// Returns how many parked jobs of each level one claim wakes at most. `levels` is the number of
/// levels with parked jobs, added up over the keys whose freed entries the claim took. So a key
/// with many parked jobs keeps no other key waiting.
#[must_use]
pub fn share(levels: usize) -> u64 {
    (WOKEN_BY_A_CLAIM / levels.max(1)).max(1) as u64
}

/// Decides which jobs one claim takes: it gives out the free permits, and the free places of the
/// keys that have a limit.
#[derive(Debug)]
pub struct Places {
    budget: Budget,
    /// The free places of each queue and key. `None` if the key has no limit.
    free: HashMap<(Name, Name), Option<u64>>,
    /// The jobs that the claim takes and whose keys have limits.
    limited: HashSet<JobId>,
    parked: Vec<JobId>,
}

impl Places {
    /// Creates the places of a claim that has these free permits.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            free: HashMap::new(),
            limited: HashSet::new(),
            parked: Vec::new(),
        }
    }

    /// Decides what the claim does with the next job of a route, in claim order. `key` is the fair
    /// key of the job; it is not needed if there are no limits. The function `free` returns how
    /// many more jobs of the key may run in the queue: [`places_for`] with no job ahead, and `None`
    /// if the key has no limit. It is called once for each queue and key.
    ///
    /// # Errors
    /// The error of `free`.
    pub fn admit<E>(
        &mut self,
        job: JobId,
        route: &Route,
        key: Option<&Name>,
        free: impl FnOnce() -> Result<Option<u64>, E>,
    ) -> Result<Choice, E> {
        if self.budget.rest(route) == Some(0) {
            return Ok(Choice::End);
        }
        let choice = match key {
            None => Choice::Take,
            Some(key) => self.place(job, (&route.queue, key), free)?,
        };
        if choice == Choice::Take {
            self.budget.take(route);
        }
        Ok(choice)
    }

    fn place<E>(
        &mut self,
        job: JobId,
        (queue, key): (&Name, &Name),
        free: impl FnOnce() -> Result<Option<u64>, E>,
    ) -> Result<Choice, E> {
        let place = (queue.clone(), key.clone());
        let left = match self.free.get_mut(&place) {
            Some(left) => left,
            None => self.free.entry(place).or_insert(free()?),
        };
        Ok(match left {
            Some(0) if self.parked.len() == PARKED_BY_A_CLAIM => Choice::End,
            Some(0) => {
                self.parked.push(job);
                Choice::Skip
            }
            Some(left) => {
                *left -= 1;
                self.limited.insert(job);
                Choice::Take
            }
            None => Choice::Take,
        })
    }

    /// Returns the free permits that are left.
    pub const fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// Returns the jobs that the claim parks.
    #[must_use]
    pub fn parked(&self) -> &[JobId] {
        &self.parked
    }

    /// Returns whether the claim takes this job and its key has a limit.
    #[must_use]
    pub fn is_limited(&self, job: JobId) -> bool {
        self.limited.contains(&job)
    }
}

/// The last pending job of a key in its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// The turn of the job.
    pub turn: i64,
    /// The cost of the job.
    pub cost: u32,
}

/// Returns the turn of a job that has become due at `run_at`. If jobs of its key are parked in the
/// level, the job is parked behind them: otherwise jobs that keep arriving would take the places
/// for which they wait. `last` is the last pending job of the key, parked or not; the rest is as
/// for [`turn`].
#[must_use]
pub fn turn_or_parked(
    first: Option<i64>,
    last: Option<Last>,
    cost: u32,
    now: i64,
    run_at: i64,
) -> i64 {
    match last {
        Some(last) if is_parked(last.turn) => parked(run_at),
        last => turn(first, last, cost, now),
    }
}

/// Returns the turn of a job that gets one at `now`, in milliseconds since 1970. `first` is the
/// first turn of the level's pending jobs, and `last` the last pending job of the key. Parked jobs
/// count for neither.
#[must_use]
pub fn turn(first: Option<i64>, last: Option<Last>, cost: u32, now: i64) -> i64 {
    let turn = match last {
        Some(last) => last.turn.saturating_add(last.cost.into()),
        None => {
            let virtual_time = first.unwrap_or_else(|| now.saturating_mul(1_000_000));
            virtual_time.saturating_add(i64::from(cost) - 1)
        }
    };
    turn.min(FIRST_PARKED - 1)
}

/// One level while jobs of it get their turns.
///
/// ```
/// use ratchet_core::fair::Level;
///
/// let mut level = Level::new(Some(5_000), 1_790_000_000_000);
/// let turns = ["a", "a", "a", "b"].map(|key| level.give(key, 1_000));
/// assert_eq!(turns, [5_999, 6_999, 7_999, 5_999]);
/// ```
#[derive(Debug)]
pub struct Level {
    first: Option<i64>,
    last: HashMap<String, Last>,
    now: i64,
}

impl Level {
    /// Creates a level of which the first pending turn is known. `now` is in milliseconds since
    /// 1970.
    #[must_use]
    pub fn new(first: Option<i64>, now: i64) -> Self {
        Self {
            first,
            last: HashMap::new(),
            now,
        }
    }

    /// Adds the last pending job of a key. Keys without pending jobs need not be added.
    pub fn last(&mut self, key: &str, last: Last) {
        self.last.insert(key.to_owned(), last);
    }

    /// Returns the turn of the next job of a key.
    pub fn give(&mut self, key: &str, cost: u32) -> i64 {
        let last = self.last.get(key).copied();
        self.given(key, turn(self.first, last, cost, self.now), cost)
    }

    /// Returns the turn of the next job of a key, which has become due at `run_at`. If jobs of the
    /// key are parked, and one of them is its last pending job, the job is parked too.
    pub fn give_due(&mut self, key: &str, cost: u32, run_at: i64) -> i64 {
        let last = self.last.get(key).copied();
        let turn = turn_or_parked(self.first, last, cost, self.now, run_at);
        self.given(key, turn, cost)
    }

    fn given(&mut self, key: &str, turn: i64, cost: u32) -> i64 {
        if !is_parked(turn) {
            self.first = Some(self.first.map_or(turn, |first| first.min(turn)));
        }
        self.last(key, Last { turn, cost });
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use crate::model::{FairKey, PermitInfo};

    /// A level with its pending jobs, as a store keeps it.
    #[derive(Default)]
    struct Model {
        /// Turn, key, and number of the job.
        turns: BTreeSet<(i64, usize, usize)>,
        /// The pending jobs of each key: turn, cost and number.
        keys: HashMap<usize, VecDeque<(i64, u32, usize)>>,
        jobs: usize,
        now: i64,
    }

    impl Model {
        fn add(&mut self, key: usize, cost: u32) -> usize {
            let first = self.turns.first().map(|(turn, ..)| *turn);
            let jobs = self.keys.entry(key).or_default();
            let last = jobs.back().map(|(turn, cost, _)| Last {
                turn: *turn,
                cost: *cost,
            });
            let turn = turn(first, last, cost, self.now);
            jobs.push_back((turn, cost, self.jobs));
            self.turns.insert((turn, key, self.jobs));
            self.jobs += 1;
            self.jobs - 1
        }

        /// Claims the next job, and returns its number and its key.
        fn claim(&mut self) -> Option<(usize, usize)> {
            let (_, key, job) = self.turns.pop_first()?;
            let jobs = self.keys.get_mut(&key).unwrap();
            assert_eq!(jobs.pop_front().map(|(_, _, job)| job), Some(job));
            Some((job, key))
        }

        fn is_first(&self, job: usize, key: usize) -> bool {
            let first = self.keys.get(&key).and_then(VecDeque::front);
            first.is_some_and(|(_, _, first)| *first == job)
        }
    }

    #[test]
    fn a_claim_parks_a_limited_number_of_jobs() {
        let route = Route::from_texts("q", "kind", "", "").unwrap();
        let key = Name::new("key", "k").unwrap();
        let mut places = Places::new(Budget::default());
        let mut asked = 0;
        let mut admit = |places: &mut Places| {
            let free = || {
                asked += 1;
                Ok::<_, std::convert::Infallible>(Some(2))
            };
            let admitted = places.admit(JobId::new(), &route, Some(&key), free);
            admitted.unwrap()
        };
        assert_eq!([admit(&mut places), admit(&mut places)], [Choice::Take; 2]);
        for _ in 0..PARKED_BY_A_CLAIM {
            assert_eq!(admit(&mut places), Choice::Skip);
        }
        assert_eq!(admit(&mut places), Choice::End);
        assert_eq!(asked, 1);
        assert_eq!(places.parked().len(), PARKED_BY_A_CLAIM);
    }

    #[test]
    fn no_turn_is_that_of_a_parked_job() {
        let far = i64::MAX / 1_000_000;
        let last = Last {
            turn: FIRST_PARKED - 5,
            cost: 1_000,
        };
        for turn in [turn(None, None, 10, far), turn(None, Some(last), 10, 0)] {
            assert!(!is_parked(turn), "{turn}");
        }
        for run_at in [i64::MIN, 0, 1, i64::MAX] {
            assert!(is_parked(parked(run_at)), "{run_at}");
        }
        assert!(parked(1) < parked(2));
    }

    #[test]
    fn a_job_that_comes_while_others_are_parked_is_parked_behind_them() {
        let last = |turn| Some(Last { turn, cost: 10 });
        let parked_at = |run_at| turn_or_parked(Some(1), last(parked(5)), 10, 9, run_at);
        assert_eq!([parked_at(5), parked_at(7)], [parked(5), parked(7)]);
        assert_eq!(turn_or_parked(Some(1), last(3), 10, 9, 5), 13);
        assert_eq!(turn_or_parked(Some(1), None, 10, 9, 5), 10);
    }

    #[test]
    fn a_level_parks_the_due_jobs_of_a_key_that_has_parked_ones() {
        let mut level = Level::new(Some(1_000), 9);
        let last = Last {
            turn: parked(5),
            cost: 1_000,
        };
        level.last("a", last);
        assert_eq!(level.give_due("a", 1_000, 7), parked(7));
        assert_eq!(level.give_due("b", 1_000, 7), 1_999);
        assert_eq!(level.give_due("b", 1_000, 7), 2_999);
        let mut level = Level::new(None, 9);
        level.last("a", last);
        assert_eq!(level.give_due("a", 1_000, 7), parked(7));
        assert_eq!(level.give("b", 1), 9_000_000, "no parked job is the first");
    }

    #[test]
    fn a_job_takes_a_permit_and_a_place_or_neither() {
        let info = |max| PermitInfo::new(Name::new("permit", "api").unwrap(), max, 0);
        let route = Route::from_texts("q", "kind", "", "api").unwrap();
        let [a, b] = ["a", "b"].map(|key| Name::new("key", key).unwrap());
        let mut places = Places::new(Budget::new([info(2)]));
        let mut admit = |key| {
            let free = || Ok::<_, std::convert::Infallible>(Some(1));
            places.admit(JobId::new(), &route, key, free).unwrap()
        };
        assert_eq!(admit(Some(&a)), Choice::Take);
        assert_eq!(
            admit(Some(&a)),
            Choice::Skip,
            "no place, and the permit is left"
        );
        assert_eq!(admit(Some(&b)), Choice::Take);
        assert_eq!([admit(Some(&b)), admit(None)], [Choice::End; 2]);
        assert_eq!(
            places.parked().len(),
            1,
            "a job without a permit is not parked"
        );
    }

    #[test]
    fn a_level_wakes_as_many_jobs_as_places_are_free() {
        for (max, running, ahead, woken) in [
            (Some(3), 1, 0, 2),
            (Some(3), 1, 1, 1),
            (Some(3), 3, 0, 0),
            (Some(3), 1, 5, 0),
            (Some(1), 4, 0, 0),
            (Some(0), 0, 0, 0),
            (None, 7, 7, u64::MAX),
        ] {
            assert_eq!(places_for(max, running, ahead), woken);
        }
    }

    #[test]
    fn each_level_wakes_its_share() {
        let shares = [0, 1, 2, 3, 1_000, 5_000].map(share);
        assert_eq!(shares, [1_000, 1_000, 500, 333, 1, 1]);
    }

    #[test]
    fn a_single_job_behind_a_flood_is_the_next() {
        let mut model = Model::default();
        for _ in 0..10_000 {
            model.add(1, FairKey::UNIT);
        }
        let single = model.add(2, FairKey::UNIT);
        model.claim();
        assert_eq!(model.claim(), Some((single, 2)));
    }

    #[test]
    fn a_key_that_comes_back_for_each_job_holds_up_no_other() {
        let mut model = Model::default();
        for _ in 0..50 {
            model.add(1, FairKey::UNIT);
        }
        let mut keys = Vec::new();
        for _ in 0..40 {
            if model.keys.get(&2).is_none_or(VecDeque::is_empty) {
                model.add(2, FairKey::UNIT);
            }
            keys.push(model.claim().unwrap().1);
        }
        let turns = keys.iter().filter(|key| **key == 2).count();
        assert!((19..=21).contains(&turns), "{keys:?}");
    }

    #[test]
    fn cancelled_jobs_leave_no_debt() {
        let mut model = Model::default();
        for _ in 0..100 {
            model.add(1, FairKey::UNIT);
            model.add(2, FairKey::UNIT);
        }
        model.turns.retain(|(_, key, _)| *key == 2);
        model.keys.remove(&1);
        let next = model.add(1, FairKey::UNIT);
        let claimed = [model.claim().unwrap().0, model.claim().unwrap().0];
        assert!(claimed.contains(&next), "{claimed:?}");
    }

    #[test]
    fn turns_follow_the_weights() {
        let mut model = Model::default();
        for _ in 0..300 {
            model.add(1, 1_000);
            model.add(2, 500);
            model.add(3, 250);
        }
        let mut turns = [0_usize; 4];
        for _ in 0..140 {
            turns[model.claim().unwrap().1] += 1;
        }
        for (key, expected) in [(1, 20_usize), (2, 40), (3, 80)] {
            assert!(turns[key].abs_diff(expected) <= 1, "{turns:?}");
        }
    }

    proptest! {
        /// While a job is the first of its key, each other key goes ahead at most once, or twice if
        /// it falls idle in between.
        #[test]
        fn the_first_job_of_a_key_waits_for_one_turn_of_each_other(
            steps in prop::collection::vec((0_usize..6, 0_usize..3), 1..300),
        ) {
            let mut model = Model::default();
            let mut ahead: HashMap<usize, (usize, [usize; 6], [bool; 6])> = HashMap::new();
            for (key, action) in steps {
                model.now += 1;
                if action < 2 {
                    let job = model.add(key, FairKey::UNIT);
                    if model.is_first(job, key) {
                        ahead.insert(job, (key, [0; 6], [false; 6]));
                    }
                    continue;
                }
                let Some((job, key)) = model.claim() else { continue };
                ahead.remove(&job);
                let idle = model.keys[&key].is_empty();
                for (own, turns, fell_idle) in ahead.values_mut() {
                    prop_assert_ne!(*own, key);
                    turns[key] += 1;
                    fell_idle[key] |= idle;
                    let most = 1 + usize::from(fell_idle[key]);
                    prop_assert!(turns[key] <= most, "key {} before a job of key {}", key, own);
                }
                if let Some((_, _, next)) = model.keys[&key].front() {
                    ahead.insert(*next, (key, [0; 6], [false; 6]));
                }
            }
        }
    }
}
