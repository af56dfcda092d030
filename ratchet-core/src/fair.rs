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

use std::collections::HashMap;

/// The number of sleeping jobs to which one claim gives turns, the longest due first, whatever
/// their keys. So the cost of a claim does not depend on how many jobs become due at once.
pub const WOKEN_BY_A_CLAIM: usize = 1_000;

/// The last pending job of a key in its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// The turn of the job.
    pub turn: i64,
    /// The cost of the job.
    pub cost: u32,
}

/// Returns the turn of a job that becomes due at `now`, in milliseconds since 1970. `first` is the
/// first turn of the level's pending jobs, and `last` the last pending job of the key.
#[must_use]
pub fn turn(first: Option<i64>, last: Option<Last>, cost: u32, now: i64) -> i64 {
    match last {
        Some(last) => last.turn.saturating_add(last.cost.into()),
        None => {
            let virtual_time = first.unwrap_or_else(|| now.saturating_mul(1_000_000));
            virtual_time.saturating_add(i64::from(cost) - 1)
        }
    }
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
        let turn = turn(self.first, last, cost, self.now);
        self.first = Some(self.first.map_or(turn, |first| first.min(turn)));
        self.last(key, Last { turn, cost });
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use crate::model::FairKey;

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
