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
    /// The interval to publish with the next heartbeat.
    interval: Duration,
    /// The interval that the last heartbeat published.
    published: Duration,
    others: Option<Others>,
    /// Whether the node has claimed jobs or was elected since the last heartbeat. Without this, a
    /// node whose jobs take no time is at rest at every heartbeat, and beats again at its next
    /// claim.
    has_worked: bool,
}

impl HeartbeatInterval {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            state: Mutex::new(State {
                interval: shortest,
                published: shortest,
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
        self.state().interval = self.shortest;
        self.beat_now();
    }

    /// Notes that the node has something to lose from now on: the other nodes must hear of it
    /// often.
    pub(crate) fn at_work(&self) {
        let mut state = self.state();
        state.has_worked = true;
        state.interval = self.shortest;
        if state.published > self.shortest {
            self.beat_now();
        }
    }

    /// Returns when the next heartbeat is due, after the last one.
    pub(crate) fn interval(&self) -> Duration {
        self.state().interval
    }

    /// Returns the interval to publish with a heartbeat that is about to be sent.
    pub(crate) fn publish(&self) -> Duration {
        let mut state = self.state();
        state.published = state.interval;
        state.published
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
    use futures_util::FutureExt;

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
        interval.learn(one, true);
        assert_eq!(interval.interval(), 5 * second);
        interval.learn(one, true);
        interval.learn(one, false);
        assert_eq!(interval.interval(), 5 * second);
        interval.at_work();
        interval.learn(one, true);
        assert_eq!(interval.interval(), 5 * second, "it has worked since");
        interval.learn(one, true);
        assert!(interval.interval() > 5 * second);
    }

    #[test]
    fn work_is_published_at_once_if_a_long_interval_was() {
        let second = Duration::from_secs(1);
        let interval = HeartbeatInterval::new(5 * second, 30 * second);
        let asked = || interval.beat_asked().now_or_never().is_some();
        let joined = Others {
            live: 1,
            newest: None,
        };
        interval.learn(Others::default(), true);
        interval.learn(Others::default(), true);
        interval.at_work();
        assert!(!asked(), "the long interval was not published yet");
        assert_eq!(interval.publish(), 5 * second, "nor is it now");
        interval.learn(Others::default(), true);
        interval.learn(Others::default(), true);
        assert!(interval.publish() > 5 * second);
        // The next interval is short, since another node has come.
        interval.learn(joined, true);
        interval.at_work();
        assert!(asked());
        assert_eq!(interval.publish(), 5 * second);
        interval.at_work();
        assert!(!asked());
    }
}
