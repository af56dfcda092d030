//! How often the node beats.
//!
//! Often while something can depend on it: the node holds claims, leads, drains, or others come and
//! go. Otherwise seldom: nobody waits for the death of a node that holds nothing to be noticed. Each
//! heartbeat says how long the next may be away, and a node counts as dead only after three of these.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::model::Others;

/// How much longer each interval of a node at rest is than the one before.
const GROWTH: f64 = 1.5;

/// The interval of a node, and what it was found from.
#[derive(Debug)]
pub(crate) struct HeartbeatInterval {
    shortest: Duration,
    longest: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    interval: Duration,
    others: Option<Others>,
}

impl HeartbeatInterval {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            state: Mutex::new(State {
                interval: shortest,
                others: None,
            }),
        }
    }

    /// The interval to publish with the next heartbeat.
    pub(crate) fn interval(&self) -> Duration {
        self.state().interval
    }

    /// Whether the interval that was published is longer than that of a node at work.
    pub(crate) fn is_slow(&self) -> bool {
        self.interval() > self.shortest
    }

    /// Beats often from now on.
    pub(crate) fn hurry(&self) {
        self.state().interval = self.shortest;
    }

    /// Whether the last heartbeat found no other node.
    pub(crate) fn is_alone(&self) -> bool {
        self.state().others.is_some_and(|others| others.live == 0)
    }

    /// Takes note of what a heartbeat brought, and whether anything depends on the next.
    pub(crate) fn learn(&self, others: Others, at_rest: bool) {
        let mut state = self.state();
        let same = state.others.replace(others) == Some(others);
        state.interval = match at_rest && same {
            true => state.interval.mul_f64(GROWTH).min(self.longest),
            false => self.shortest,
        };
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_at_rest_slows_down_and_any_news_hurries_it() {
        let second = Duration::from_secs(1);
        let pace = HeartbeatInterval::new(5 * second, 30 * second);
        let (none, one) = (
            Others::default(),
            Others {
                live: 1,
                newest: None,
            },
        );
        pace.learn(none, true);
        assert_eq!(pace.interval(), 5 * second);
        let mut grown = Vec::new();
        for _ in 0..6 {
            pace.learn(none, true);
            grown.push(pace.interval().as_millis());
        }
        assert_eq!(grown, [7_500, 11_250, 16_875, 25_312, 30_000, 30_000]);
        assert!(pace.is_slow());
        pace.learn(one, true);
        assert_eq!(pace.interval(), 5 * second);
        pace.learn(one, true);
        pace.learn(one, false);
        assert!(!pace.is_slow());
        pace.learn(one, true);
        assert!(pace.is_slow());
        pace.hurry();
        assert!(!pace.is_slow());
    }
}
