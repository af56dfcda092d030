//! The places of jobs in lanes: the order in which the jobs of a lane run.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use crate::state::JobState;

/// The place of a job in its lane.
///
/// ```
/// use ratchet::JobState;
/// use ratchet_core::model::LanePlace;
///
/// let (head, eighth) = (LanePlace::after(0), LanePlace::after(7));
/// assert_eq!((head.seq, head.state), (1, JobState::Pending));
/// assert_eq!((eighth.seq, eighth.state), (8, JobState::Blocked));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LanePlace {
    /// The sequence number. The jobs of a lane run in the order of these numbers.
    pub seq: i64,
    /// The state of a job at this place: `Pending` for the head of the lane, otherwise `Blocked`.
    pub state: JobState,
}

impl LanePlace {
    /// Returns the next place in a lane. `last` is the last sequence number of the lane; 0 if the
    /// lane has no unfinished job. `[lane.head]` `[lane.sequence]`
    #[must_use]
    pub const fn after(last: i64) -> Self {
        Self {
            seq: last + 1,
            state: if last == 0 {
                JobState::Pending
            } else {
                JobState::Blocked
            },
        }
    }
}

/// Assigns places in lanes to the jobs of one call. `L` is the type by which a store identifies
/// lanes.
#[derive(Debug)]
pub struct LanePlaces<L>(BTreeMap<L, Counter>);

#[derive(Debug)]
struct Counter {
    /// The last sequence number of the lane.
    last: i64,
    /// The number of places assigned in this call.
    taken: i64,
}

impl<L> Default for LanePlaces<L> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<L: Ord> LanePlaces<L> {
    /// Adds a lane. `last` is its last sequence number before the call; 0 if the lane has no
    /// unfinished job.
    pub fn enter(&mut self, lane: L, last: i64) {
        self.0.insert(lane, Counter { last, taken: 0 });
    }

    /// Assigns and returns the next place in a lane. Returns `None` if the lane was not
    /// [entered](Self::enter).
    pub fn take<Q>(&mut self, lane: &Q) -> Option<LanePlace>
    where
        L: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let counter = self.0.get_mut(lane)?;
        let place = LanePlace::after(counter.last);
        counter.last = place.seq;
        counter.taken += 1;
        Some(place)
    }

    /// Returns the lanes that were entered, in order.
    pub fn lanes(&self) -> impl Iterator<Item = &L> + Clone {
        self.0.keys()
    }

    /// Returns whether an entered lane has no unfinished job, and no place in it was assigned.
    #[must_use]
    pub fn has_empty(&self) -> bool {
        self.0.values().any(|counter| counter.last == 0)
    }

    /// Returns the lanes in which places were assigned, in order, each with the number of these
    /// places.
    pub fn taken(self) -> impl Iterator<Item = (L, i64)> {
        let lanes = self.0.into_iter();
        let taken = lanes.map(|(lane, counter)| (lane, counter.taken));
        taken.filter(|(_, taken)| *taken > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_job_of_an_empty_lane_is_its_head() {
        let mut places = LanePlaces::default();
        places.enter("a", 0);
        places.enter("b", 7);
        let mut take = |lane| {
            let place = places.take(&lane);
            place.map(|place| (place.seq, place.state))
        };
        assert_eq!(take("a"), Some((1, JobState::Pending)));
        assert_eq!(take("a"), Some((2, JobState::Blocked)));
        assert_eq!(take("b"), Some((8, JobState::Blocked)));
        assert_eq!(take("c"), None);
        let taken: Vec<_> = places.taken().collect();
        assert_eq!(taken, [("a", 2), ("b", 1)]);
    }

    #[test]
    fn a_lane_stays_empty_until_a_place_is_taken() {
        let mut places = LanePlaces::default();
        places.enter("a", 7);
        assert!(!places.has_empty());
        places.enter("b", 0);
        assert!(places.has_empty());
        places.take(&"b");
        assert!(!places.has_empty());
        assert!(places.lanes().eq(&["a", "b"]));
        assert!(places.taken().eq([("b", 1)]));
    }
}
