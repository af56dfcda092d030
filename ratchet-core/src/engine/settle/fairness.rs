//! Keeps a node from always reclaiming the permit that it just released.
//!
//! The node that releases a permit is the first to request it again. If enough jobs on this node
//! need the permit, the node would keep it forever. So the node sends hints to other nodes. For
//! each route whose jobs released permits, one node that runs jobs of this route receives a hint.
//! These nodes take turns. Each hint costs its receiver a claim call, so the node sends at most one
//! round of hints per [`HINTS`].
//!
//! Because a hint takes time to arrive, the pollers of this node also pause for [`PAUSE`], at most
//! once per [`PAUSES`].
//!
//! Jobs of other routes may need the same permit, on nodes that do not run jobs of this route. So
//! at the beginning of a pause, one of the nodes that do not run jobs of this route also receives a
//! hint. These nodes take turns too. A node that is alone in the cluster sends no hints and does
//! not pause.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::route::Route;

/// Minimum time between two rounds of hints. When the pollers begin to pause, a round is sent even
/// if less time has passed.
const HINTS: Duration = Duration::from_millis(20);
/// Time for which the pollers of this node pause, so that another node can claim the released
/// permit. The pause is longer than a hint and the resulting claim call take.
const PAUSE: Duration = Duration::from_millis(10);
/// Minimum time between the starts of two pauses of the pollers. So the pollers pause for at most a
/// twentieth of the time.
const PAUSES: Duration = Duration::from_millis(200);

/// The hints that the caller must send at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    /// Routes of the jobs that released permits. One other node that runs jobs of the route is
    /// woken for each of them.
    pub(crate) routes: HashSet<Route>,
    /// Whether one node that does not run jobs of the route is also woken for each of them.
    pub(crate) others_too: bool,
}

/// Decides when this node sends hints about released permits, and when its pollers pause.
#[derive(Debug, Default)]
pub(crate) struct Fairness(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Time at which the last pause of the pollers began.
    paused: Option<Instant>,
    /// Time at which the last hints were sent.
    hinted: Option<Instant>,
    /// Routes whose hints are delayed, because their jobs released permits less than [`HINTS`]
    /// after the last hints. These hints must still be sent.
    owed: HashSet<Route>,
}

impl Fairness {
    /// Records that jobs of these routes released permits. Returns the hints that the caller must
    /// send at once. `None` if there are none, or if they are delayed.
    pub(crate) fn released(&self, routes: HashSet<Route>, now: Instant) -> Option<Hints> {
        let passed = |last: Option<Instant>, time| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= time)
        };
        let mut state = self.state();
        state.owed.extend(routes);
        if state.owed.is_empty() {
            return None;
        }
        let pauses = passed(state.paused, PAUSES);
        if pauses {
            state.paused = Some(now);
        }
        if !pauses && !passed(state.hinted, HINTS) {
            return None;
        }
        state.hinted = Some(now);
        Some(Hints {
            routes: std::mem::take(&mut state.owed),
            others_too: pauses,
        })
    }

    /// Returns the time until which the pollers of this node pause. Returns `None` if they do not
    /// pause at `now`.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        let paused = self.state().paused;
        paused.map(|at| at + PAUSE).filter(|until| *until > now)
    }

    /// Waits until delayed hints may be sent. Waits forever if no hint is delayed.
    pub(crate) async fn delayed(&self) {
        let due = {
            let state = self.state();
            let hinted = state.hinted.filter(|_| !state.owed.is_empty());
            hinted.map(|hinted| hinted + HINTS)
        };
        match due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewJob, time};

    fn routes(kinds: &[&str]) -> HashSet<Route> {
        let route = |kind: &&str| NewJob::new(kind, &()).spec().route.clone();
        kinds.iter().map(route).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_short_and_seldom_however_many_permits_are_released() {
        let (fairness, start) = (Fairness::default(), time::monotonic());
        assert_eq!(fairness.until(start), None);
        let (mut paused, mut hinted, mut others) = (0, 0, 0);
        for millis in 0..1_000 {
            let now = start + Duration::from_millis(millis);
            let hints = fairness.released(routes(&["a"]), now);
            others += u32::from(hints.as_ref().is_some_and(|hints| hints.others_too));
            hinted += u32::from(hints.is_some());
            paused += u32::from(fairness.until(now).is_some());
        }
        assert_eq!((paused, hinted, others), (50, 50, 5));
        assert!(
            fairness
                .released(HashSet::new(), start + PAUSES * 5)
                .is_some()
        );
        let later = start + Duration::from_secs(60);
        assert_eq!(fairness.until(later), None);
        assert_eq!(fairness.released(HashSet::new(), later), None);
        assert_eq!(
            fairness.until(later),
            None,
            "expected no pause, because no permit was released"
        );
        assert!(fairness.released(routes(&["a"]), later).is_some());
        assert_eq!(fairness.until(later), Some(later + PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn every_route_that_releases_permits_is_hinted_at_in_the_end() {
        let (fairness, start) = (Fairness::default(), time::monotonic());
        let first = fairness.released(routes(&["a", "b"]), start).unwrap();
        assert_eq!(first.routes, routes(&["a", "b"]));
        for kind in ["c", "d"] {
            let soon = fairness.released(routes(&[kind]), start + HINTS / 2);
            assert_eq!(soon, None);
        }
        fairness.delayed().await;
        assert_eq!(time::monotonic(), start + HINTS);
        let delayed = fairness.released(HashSet::new(), time::monotonic());
        assert_eq!(delayed.unwrap().routes, routes(&["c", "d"]));
        let never = tokio::time::timeout(PAUSES, fairness.delayed()).await;
        assert!(never.is_err(), "expected no delayed hint");
    }
}
