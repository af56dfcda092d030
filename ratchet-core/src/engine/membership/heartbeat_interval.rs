//! Decides how often the node sends a heartbeat.
//!
//! The interval is short while something depends on the node: it holds claims, leads other nodes or
//! drains. Otherwise the interval grows, because the death of a node that holds nothing delays no
//! job. If there is no other node, the interval becomes the longest one at once. Each
//! heartbeat publishes the time until the next one, and a node counts as dead only after three such
//! intervals.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::time;

/// Factor by which an idle node lengthens its heartbeat interval after each heartbeat.
const GROWTH: f64 = 1.5;

/// Time between the heartbeats of a node, and the state from which it is computed.
#[derive(Debug)]
pub(crate) struct HeartbeatInterval {
    shortest: Duration,
    longest: Duration,
    state: Mutex<State>,
    /// Notifies the heartbeat loop that it must send a heartbeat at once.
    due: Notify,
}

#[derive(Debug)]
struct State {
    /// Interval that the next heartbeat publishes.
    interval: Duration,
    /// Interval that the last heartbeat published.
    published: Duration,
    /// Time at which the last heartbeat was sent.
    sent: Instant,
    /// Whether the last heartbeat found no other live node.
    alone: bool,
    /// Whether the node has claimed jobs or was elected since the last heartbeat. A node with very
    /// short jobs may be idle at each heartbeat and still work in between. Without this flag, its
    /// interval would grow, and the next claim would cause an extra heartbeat.
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
                sent: time::monotonic(),
                alone: false,
                has_worked: false,
            }),
            due: Notify::new(),
        }
    }

    /// Asks the heartbeat loop to send a heartbeat at once.
    pub(super) fn beat_now(&self) {
        self.due.notify_one();
    }

    /// Waits until a heartbeat is requested.
    pub(crate) async fn beat_asked(&self) {
        self.due.notified().await;
    }

    /// Requests a heartbeat at once, with the shortest interval. The caller has lost the answer of
    /// a claim call, which may have claimed jobs. The heartbeat's reply lists all claims of the
    /// node.
    pub(crate) fn doubt_claims(&self) {
        self.state().interval = self.shortest;
        self.beat_now();
    }

    /// Records that the node has claimed jobs or was elected. From now on, the node must send
    /// heartbeats at the shortest interval.
    pub(crate) fn at_work(&self) {
        let mut state = self.state();
        state.has_worked = true;
        state.interval = self.shortest;
        if state.published > self.shortest {
            self.beat_now();
        }
    }

    /// Returns the interval that the next heartbeat publishes, and records that this heartbeat is
    /// sent now.
    pub(crate) fn publish(&self) -> Duration {
        let mut state = self.state();
        state.published = state.interval;
        state.sent = time::monotonic();
        state.published
    }

    /// Waits until the next heartbeat is due. It is due when the published interval has passed
    /// since the last heartbeat, or earlier if the interval has become shorter.
    pub(crate) async fn until_due(&self) {
        loop {
            let due = {
                let state = self.state();
                state.sent + state.published.min(state.interval)
            };
            if due <= time::monotonic() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }

    /// Returns whether the last heartbeat found no other live node.
    pub(crate) fn is_alone(&self) -> bool {
        self.state().alone
    }

    /// Records the result of a heartbeat and updates the interval. `alone` is whether the heartbeat
    /// found no other live node, and `at_rest` is whether this node is idle. The interval of an
    /// idle node grows.
    pub(crate) fn learn(&self, alone: bool, at_rest: bool) {
        let mut state = self.state();
        state.alone = alone;
        let has_worked = std::mem::take(&mut state.has_worked);
        state.interval = match at_rest && !has_worked {
            true if alone => self.longest,
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
    fn a_node_at_rest_slows_down_until_it_works() {
        let second = Duration::from_secs(1);
        let heartbeats = HeartbeatInterval::new(5 * second, 30 * second);
        let interval = || heartbeats.state().interval;
        let mut grown = Vec::new();
        for _ in 0..6 {
            heartbeats.learn(false, true);
            grown.push(interval().as_millis());
        }
        assert_eq!(grown, [7_500, 11_250, 16_875, 25_312, 30_000, 30_000]);
        heartbeats.learn(false, false);
        assert_eq!(interval(), 5 * second);
        heartbeats.at_work();
        heartbeats.learn(false, true);
        assert_eq!(
            interval(),
            5 * second,
            "expected the short interval, because the node has \
             worked since"
        );
        heartbeats.learn(false, true);
        assert!(interval() > 5 * second);
    }

    #[test]
    fn work_is_published_at_once_if_a_long_interval_was() {
        let second = Duration::from_secs(1);
        let interval = HeartbeatInterval::new(5 * second, 30 * second);
        let asked = || interval.beat_asked().now_or_never().is_some();
        interval.learn(false, true);
        interval.at_work();
        assert!(
            !asked(),
            "expected no extra heartbeat, because the long interval was not \
             published"
        );
        assert_eq!(
            interval.publish(),
            5 * second,
            "expected the short interval, because the node \
             is at work"
        );
        interval.learn(false, true);
        interval.learn(false, true);
        assert!(interval.publish() > 5 * second);
        interval.at_work();
        assert!(asked());
        assert_eq!(interval.publish(), 5 * second);
        interval.at_work();
        assert!(!asked());
    }
}
