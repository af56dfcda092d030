//! Keeps a node from always reclaiming the permit that it just released.
//!
//! The node that releases a permit is the first to request it again. If it has enough jobs of its
//! own, it would keep the permit forever. So the node sends hints to other nodes, at most once per
//! [`TELL`], because each hint costs its receiver a claim call. Most hints go to one node that runs
//! jobs of the same route, and such nodes take turns. A hint takes time to arrive. So the pollers
//! of the node also pause for [`PAUSE`], at most once per [`APART`].
//!
//! Jobs of other routes may need the same permit, on nodes that run only such jobs. So at the
//! beginning of a pause the hint goes to all nodes, but more rarely if there are many nodes. A node
//! that is alone in the cluster sends no hints and does not pause.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::route::Route;

/// Minimum time between two hints about released permits. A hint that is sent when the pollers
/// begin to pause is an exception.
const TELL: Duration = Duration::from_millis(20);
/// Time for which the pollers of this node pause, so that another node can claim the released
/// permit. The pause is longer than a hint and the resulting claim call take.
const PAUSE: Duration = Duration::from_millis(10);
/// Minimum time between the starts of two pauses of the pollers. So the pollers pause for at most a
/// twentieth of the time.
const APART: Duration = Duration::from_millis(200);
/// Number of other nodes per [`APART`] between two hints to all nodes. The more nodes there are,
/// the longer this node waits between such hints. Even if all nodes release permits, each node
/// makes at most about 20 claim calls per second because of such hints.
const EACH: u32 = 4;

/// Nodes that receive a hint about a released permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// One other node that runs jobs of the same route.
    One,
    /// All other nodes.
    All,
}

/// Decides when this node sends hints about released permits, and when its pollers pause.
#[derive(Debug, Default)]
pub(crate) struct Fairness(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Time at which the last pause of the pollers began.
    rested: Option<Instant>,
    /// Time at which the last hint was sent, to one node or to all nodes.
    told: Option<Instant>,
    /// Time at which the last hint to all nodes was sent.
    told_all: Option<Instant>,
    /// Route of a job that released a permit too soon after the last hint. A hint for this route
    /// must still be sent. `None` if there is no such job.
    owed: Option<Route>,
}

impl Fairness {
    /// Records that a job of this route released a permit. Returns the nodes to which the caller
    /// must send a hint at once, or `None`. `others` is the number of other nodes, or 0 if the
    /// number is unknown.
    pub(crate) fn freed(&self, route: &Route, others: usize, now: Instant) -> Option<Hint> {
        let passed = |last: Option<Instant>, time| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= time)
        };
        let mut state = self.state();
        let rests = passed(state.rested, APART);
        if rests {
            state.rested = Some(now);
        }
        let tells = rests || passed(state.told, TELL);
        if tells {
            state.told = Some(now);
        }
        state.owed = (!tells).then(|| route.clone());
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        if rests && passed(state.told_all, APART * others.div_ceil(EACH)) {
            state.told_all = Some(now);
            return Some(Hint::All);
        }
        tells.then_some(Hint::One)
    }

    /// Returns the time until which the pollers of this node pause. Returns `None` if they do not
    /// pause at `now`.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        let rested = self.state().rested;
        rested.map(|at| at + PAUSE).filter(|until| *until > now)
    }

    /// Waits until a delayed hint may be sent, and returns the route of the job that released the
    /// permit. Waits forever if no hint was delayed.
    pub(crate) async fn owed(&self) -> Route {
        let owed = {
            let state = self.state();
            state.told.zip(state.owed.clone())
        };
        match owed {
            Some((told, route)) => {
                tokio::time::sleep_until(told + TELL).await;
                route
            }
            None => std::future::pending().await,
        }
    }

    /// Records that the delayed hint was sent at `now`.
    pub(crate) fn told(&self, now: Instant) {
        let mut state = self.state();
        state.told = Some(now);
        state.owed = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewJob, time};

    fn route() -> Route {
        NewJob::new("kind", &()).spec().route.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn rests_are_short_and_seldom_however_many_permits_are_freed() {
        let (fairness, start) = (Fairness::default(), time::monotonic());
        assert_eq!(fairness.until(start), None);
        let (mut rested, mut told) = (0, 0);
        for millis in 0..1_000 {
            let now = start + Duration::from_millis(millis);
            told += u32::from(fairness.freed(&route(), 1, now).is_some());
            rested += u32::from(fairness.until(now).is_some());
        }
        assert_eq!((rested, told), (50, 50));
        let later = start + Duration::from_secs(60);
        assert_eq!(fairness.until(later), None);
        assert_eq!(fairness.freed(&route(), 1, later), Some(Hint::All));
        assert_eq!(fairness.until(later), Some(later + PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn hints_to_all_are_rarer_the_more_nodes_there_are() {
        for (others, expected) in [(0, 5), (1, 5), (4, 5), (19, 1), (100, 1)] {
            let (fairness, start) = (Fairness::default(), time::monotonic());
            let freed = |millis| {
                let now = start + Duration::from_millis(millis);
                fairness.freed(&route(), others, now)
            };
            let all = (0..1_000).filter(|millis| freed(*millis) == Some(Hint::All));
            assert_eq!(all.count(), expected, "{others} others");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_permit_that_is_freed_is_told_of_too() {
        let (fairness, start) = (Fairness::default(), time::monotonic());
        assert!(fairness.freed(&route(), 1, start).is_some());
        assert_eq!(fairness.freed(&route(), 1, start + TELL / 2), None);
        assert_eq!(fairness.owed().await, route());
        assert_eq!(time::monotonic(), start + TELL);
        fairness.told(time::monotonic());
        let never = tokio::time::timeout(APART, fairness.owed()).await;
        assert!(never.is_err(), "nothing is owed");
    }
}
