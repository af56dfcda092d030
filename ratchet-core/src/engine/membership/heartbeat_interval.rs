//! How often the node sends a heartbeat.
//!
//! Often while something can depend on it: the node holds claims, leads, drains, or others come and
//! go. Otherwise seldom: the death of a node that holds nothing delays no job.
//! Each heartbeat says how long the next may be away, and a node counts as dead only after three of
//! these.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::model::Others;

/// How much longer each interval of a node at rest is than the one before.
const GROWTH: f64 = 1.5;

/// The interval of a node, and what it was found from.
#[derive(Debug)]
pub(crate) struct HeartbeatInterval {
    shortest: Duration,
    longest: Duration,
    state: Mutex<State>,
    /// Notified if the next heartbeat is due at once.
    due: Notify,
}

#[derive(Debug)]
struct State {
    interval: Duration,
    others: Option<Others>,
    /// Whether the node has claimed jobs since the last heartbeat. Without this, a node whose jobs
    /// take no time is at rest at every heartbeat, and beats again at its next claim.
    has_worked: bool,
}

impl HeartbeatInterval {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            state: Mutex::new(State {
                interval: shortest,
                others: None,
                has_worked: false,
            }),
            due: Notify::new(),
        }
    }

    /// Asks for a heartbeat at once.
    pub(super) fn beat_now(&self) {
        self.due.notify_one();
    }

    /// Waits until a heartbeat is asked for.
    pub(crate) async fn beat_asked(&self) {
        self.due.notified().await;
    }

    /// Publishes the short interval and beats now, so that the store's list of claims arrives: a
    /// claim call whose answer was lost may have claimed jobs.
    pub(crate) fn doubt_claims(&self) {
        self.hurry();
        self.beat_now();
    }

    /// Notes that the node has something to lose from now on: the other nodes must hear of it
    /// often.
    pub(crate) fn at_work(&self) {
        self.state().has_worked = true;
        if self.is_slow() {
            self.doubt_claims();
        }
    }

    /// The interval to publish with the next heartbeat.
    pub(crate) fn interval(&self) -> Duration {
        self.state().interval
    }

    /// Whether the interval that was published is longer than that of a node at work.
    fn is_slow(&self) -> bool {
        self.interval() > self.shortest
    }

    /// Beats often from now on.
    fn hurry(&self) {
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
        let has_worked = std::mem::take(&mut state.has_worked);
        state.interval = match at_rest && same && !has_worked {
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
        let interval = HeartbeatInterval::new(5 * second, 30 * second);
        let (none, one) = (
            Others::default(),
            Others {
                live: 1,
                newest: None,
            },
        );
        interval.learn(none, true);
        assert_eq!(interval.interval(), 5 * second);
        let mut grown = Vec::new();
        for _ in 0..6 {
            interval.learn(none, true);
            grown.push(interval.interval().as_millis());
        }
        assert_eq!(grown, [7_500, 11_250, 16_875, 25_312, 30_000, 30_000]);
        assert!(interval.is_slow());
        interval.learn(one, true);
        assert_eq!(interval.interval(), 5 * second);
        interval.learn(one, true);
        interval.learn(one, false);
        assert!(!interval.is_slow());
        interval.learn(one, true);
        assert!(interval.is_slow());
        interval.hurry();
        assert!(!interval.is_slow());
        interval.at_work();
        interval.learn(one, true);
        assert!(
            !interval.is_slow(),
            "it has worked since the last heartbeat"
        );
        interval.learn(one, true);
        assert!(interval.is_slow());
    }
}
