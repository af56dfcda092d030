//! Keeps a node from always reclaiming the permit that it just released.
//!
//! The node that releases a permit is the first to ask for it again. With enough jobs of its own,
//! it would keep the permit forever. So it sends hints, at most once per [`TELL`], because each
//! hint costs its receiver a claim call. Most hints go to one node that runs jobs of the same
//! route, and such nodes take turns. Since a hint takes time to arrive, the pollers of the node
//! also rest for [`PAUSE`], at most once per [`APART`]. Jobs of other routes may need the same
//! permit, on nodes that run only these. So at the beginning of a rest the hint goes to all nodes,
//! but more rarely if there are many. A node that is alone in the cluster sends no hints and does
//! not rest.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::route::Route;

/// The least time between two hints, except when the pollers begin to rest.
const TELL: Duration = Duration::from_millis(20);
/// How long pollers rest: longer than a hint and the claim that follows it take.
const PAUSE: Duration = Duration::from_millis(10);
/// The least time between the beginnings of two rests. Pollers rest for a twentieth of the time.
const APART: Duration = Duration::from_millis(200);
/// The number of other nodes for each [`APART`] between two hints to all. The nodes of a cluster
/// that all release permits then make up to 20 claims a second each because of such hints.
const EACH: u32 = 4;

/// The receivers of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Another node that runs jobs of the same route.
    One,
    /// All other nodes.
    All,
}

/// When hints were sent and pollers rested.
#[derive(Debug, Default)]
pub(crate) struct Fairness(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the last rest began.
    rested: Option<Instant>,
    /// When the last hint was sent.
    told: Option<Instant>,
    /// When the last hint was sent to all nodes.
    told_all: Option<Instant>,
    /// The route of a job that released a permit after the last hint, so that another hint is due.
    owed: Option<Route>,
}

impl Fairness {
    /// Records that a job of this route released a permit. Returns which nodes are to get a hint at
    /// once, if any. `others` is the number of other nodes; 0 means that it is not known.
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

    /// Returns the time until which the pollers rest. `None` if they do not rest.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        let rested = self.state().rested;
        rested.map(|at| at + PAUSE).filter(|until| *until > now)
    }

    /// Waits until it is time to send the hint that could not be sent at once, and returns the
    /// route of its job. Waits forever if there is none.
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

    /// Records that a hint was sent to one node now.
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
