//! How much the cluster does, from what its nodes say they have done.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::NodeId;
use crate::model::{NodeRecord, NodeTotals};
use crate::time::{Timestamp, millis_between, to_millis};

/// The shortest time over which a rate is computed. Now and then a heartbeat follows the last one
/// at once, and what happened in between says nothing.
const SHORTEST: Duration = Duration::from_secs(3);

/// How much is done, over all nodes, between the last two heartbeats of each.
///
/// See [`Meter`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Throughput {
    /// Jobs that succeeded or became dead letters, per second.
    pub finished_per_s: f64,
    /// Jobs that became dead letters, per second.
    pub failed_per_s: f64,
    /// Failed attempts that another is to follow, per second.
    pub retried_per_s: f64,
    /// How long jobs that began had been due, on average, in milliseconds; `None` if none began.
    pub wait: Option<Duration>,
}

/// Measures the throughput of a cluster from its heartbeats, however often it is shown them.
///
/// For each node by itself: what its [`totals`](crate::model::NodeLoad::totals) grew by between its
/// last two heartbeats, divided by the seconds between these, by the database's clock
/// ([`last_seen`](NodeRecord::last_seen)). The throughput of the cluster is the sum of that over
/// its nodes. The average wait is all the time that jobs waited, divided by all bodies that began.
///
/// So nodes count in full whose heartbeats come at different times and with different intervals,
/// and a node counts on with its last two until the next arrives. One that comes, also back under
/// another id, counts from its second heartbeat on, whatever it had done before; one that is gone
/// counts no longer. A heartbeat less than 3 s behind the one before is left out, and the next
/// covers its time.
///
/// ```
/// # use std::time::Duration;
/// # use ratchet::{Name, NodeId};
/// # use ratchet_core::model::{Heartbeat, NodeLoad, NodeRecord, NodeStatus, NodeTotals};
/// # use ratchet_core::time::from_millis;
/// use ratchet_core::throughput::Meter;
///
/// # fn main() -> Result<(), ratchet::InvalidInput> {
/// # let (id, label) = (NodeId::new(), Name::new("label", "a")?);
/// # let node = |seconds: i64, succeeded| {
/// #     let mut load = NodeLoad::new(0, 1);
/// #     load.totals = Some(NodeTotals::new(succeeded, 20 * succeeded, succeeded, 0, 0));
/// #     let beat = Heartbeat::new(id, label.clone(), NodeStatus::Active, Duration::from_secs(5));
/// #     NodeRecord::joined(&beat.load(load), from_millis(1_000 * seconds))
/// # };
/// let mut meter = Meter::default();
/// meter.read(&[node(0, 100)]);
/// assert_eq!(meter.throughput(), None);
/// // 5 s later the node says that 30 more jobs have succeeded, which had waited for 20 ms each.
/// meter.read(&[node(5, 130)]);
/// let throughput = meter.throughput().unwrap_or_default();
/// assert_eq!(throughput.finished_per_s, 6.0);
/// assert_eq!(throughput.wait, Some(Duration::from_millis(20)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Meter(BTreeMap<NodeId, Reading>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    totals: NodeTotals,
    said_at: Timestamp,
    /// Returns what was done between two heartbeats; `None` while there was only one.
    window: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    seconds: f64,
    done: NodeTotals,
}

impl Meter {
    /// Takes in what the nodes say that live; others count no longer.
    pub fn read<'a>(&mut self, live: impl IntoIterator<Item = &'a NodeRecord>) {
        let read = live.into_iter().filter_map(|node| {
            let totals = node.load.totals?;
            let before = self.0.get(&node.node);
            let reading = match before {
                Some(before) if before.is_recent(node.last_seen) => *before,
                _ => Reading {
                    totals,
                    said_at: node.last_seen,
                    window: before.and_then(|before| before.until(totals, node.last_seen)),
                },
            };
            Some((node.node, reading))
        });
        self.0 = read.collect();
    }

    /// Returns the throughput of all nodes; `None` while no node has sent two heartbeats.
    #[must_use]
    pub fn throughput(&self) -> Option<Throughput> {
        let mut all: Option<Throughput> = None;
        let (mut begun, mut waited_ms) = (0_u64, 0_u64);
        for window in self.0.values().filter_map(|reading| reading.window) {
            let per_second = |count: u64| ratio(count, window.seconds);
            let sum = all.get_or_insert_default();
            sum.finished_per_s +=
                per_second(window.done.succeeded.saturating_add(window.done.failed));
            sum.failed_per_s += per_second(window.done.failed);
            sum.retried_per_s += per_second(window.done.retried);
            begun = begun.saturating_add(window.done.begun);
            waited_ms = waited_ms.saturating_add(window.done.waited_ms);
        }
        let wait = waited_ms.checked_div(begun).map(Duration::from_millis);
        all.map(|sum| Throughput { wait, ..sum })
    }
}

impl Reading {
    /// Whether a heartbeat at this time is this one, or follows it too closely for a rate.
    fn is_recent(&self, at: Timestamp) -> bool {
        // If the database's clock went back, it is a beginning.
        let (said_at, at) = (to_millis(self.said_at), to_millis(at));
        said_at <= at && millis_between(said_at, at) < SHORTEST
    }

    /// What was done since, if any time has passed.
    fn until(&self, totals: NodeTotals, at: Timestamp) -> Option<Window> {
        let time = millis_between(to_millis(self.said_at), to_millis(at));
        let since = |after: u64, before: u64| after.saturating_sub(before);
        let before = &self.totals;
        (!time.is_zero()).then(|| Window {
            seconds: time.as_secs_f64(),
            done: NodeTotals::new(
                since(totals.begun, before.begun),
                since(totals.waited_ms, before.waited_ms),
                since(totals.succeeded, before.succeeded),
                since(totals.failed, before.failed),
                since(totals.retried, before.retried),
            ),
        })
    }
}

fn ratio(count: u64, seconds: f64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;
    use crate::model::{Heartbeat, NodeLoad, NodeStatus};
    use crate::time::from_millis;

    fn node(id: NodeId, at: i64, totals: Option<NodeTotals>) -> NodeRecord {
        let label = Name::new("label", "n").unwrap();
        let mut load = NodeLoad::new(0, 1);
        load.totals = totals;
        let beat = Heartbeat::new(id, label, NodeStatus::Active, Duration::from_secs(5));
        NodeRecord::joined(&beat.load(load), from_millis(at))
    }

    #[test]
    fn rates_are_differences_over_the_time_between_heartbeats() {
        let (one, other) = (NodeId::new(), NodeId::new());
        let mut meter = Meter::default();
        let first = |id, at| node(id, at, Some(NodeTotals::new(100, 0, 90, 5, 5)));
        meter.read(&[first(one, 0), first(other, 1_000)]);
        assert_eq!(meter.throughput(), None);
        meter.read(&[
            node(one, 10_000, Some(NodeTotals::new(150, 500, 130, 10, 15))),
            first(other, 1_000),
        ]);
        let rates = meter.throughput().unwrap();
        assert!((rates.finished_per_s - 4.5).abs() < 0.001, "{rates:?}");
        assert!((rates.failed_per_s - 0.5).abs() < 0.001, "{rates:?}");
        assert!((rates.retried_per_s - 1.0).abs() < 0.001, "{rates:?}");
        assert_eq!(rates.wait, Some(Duration::from_millis(10)));
        // The other has beaten at another time, and the first has not beaten since: both count.
        meter.read(&[
            node(one, 10_000, Some(NodeTotals::new(150, 500, 130, 10, 15))),
            node(other, 6_000, Some(NodeTotals::new(150, 1_500, 145, 5, 5))),
        ]);
        let rates = meter.throughput().unwrap();
        assert!((rates.finished_per_s - 15.5).abs() < 0.001, "{rates:?}");
        assert_eq!(rates.wait, Some(Duration::from_millis(20)));
    }

    #[test]
    fn a_heartbeat_that_follows_at_once_says_nothing() {
        let one = NodeId::new();
        let mut meter = Meter::default();
        let done = |count| Some(NodeTotals::new(count, 0, count, 0, 0));
        for (at, count) in [(0, 0), (5_000, 5), (5_010, 5), (7_000, 7)] {
            meter.read(&[node(one, at, done(count))]);
        }
        assert!((meter.throughput().unwrap().finished_per_s - 1.0).abs() < 0.001);
        meter.read(&[node(one, 8_000, done(11))]);
        assert!((meter.throughput().unwrap().finished_per_s - 2.0).abs() < 0.001);
    }

    #[test]
    fn a_clock_that_went_back_begins_anew_and_no_number_is_too_large() {
        let one = NodeId::new();
        let mut meter = Meter::default();
        let done = |count| Some(NodeTotals::new(count, count, count, count, count));
        for (at, count) in [(600_000, 0), (605_000, 10)] {
            meter.read(&[node(one, at, done(count))]);
        }
        assert!(meter.throughput().is_some());
        meter.read(&[node(one, 5_000, done(20))]);
        assert_eq!(meter.throughput(), None);
        meter.read(&[node(one, 10_000, done(u64::MAX))]);
        assert!(meter.throughput().unwrap().finished_per_s.is_finite());
    }

    #[test]
    fn nodes_that_do_not_say_or_are_gone_do_not_count() {
        let (one, other) = (NodeId::new(), NodeId::new());
        let mut meter = Meter::default();
        meter.read(&[
            node(one, 0, Some(NodeTotals::default())),
            node(other, 0, None),
        ]);
        let busy = Some(NodeTotals::new(10, 0, 10, 0, 0));
        meter.read(&[node(one, 5_000, busy), node(other, 5_000, None)]);
        assert!((meter.throughput().unwrap().finished_per_s - 2.0).abs() < 0.001);
        meter.read(&[]);
        assert_eq!(meter.throughput(), None);
    }

    #[test]
    fn what_a_node_did_under_another_id_is_not_done_again() {
        let (one, back) = (NodeId::new(), NodeId::new());
        let mut meter = Meter::default();
        let done = |count| Some(NodeTotals::new(count, 0, count, 0, 0));
        meter.read(&[node(one, 0, done(1_000))]);
        meter.read(&[node(one, 5_000, done(1_010))]);
        // It was taken for dead and goes on, with all that it has done.
        meter.read(&[node(back, 6_000, done(1_012))]);
        assert_eq!(meter.throughput(), None);
        meter.read(&[node(back, 11_000, done(1_017))]);
        assert!((meter.throughput().unwrap().finished_per_s - 1.0).abs() < 0.001);
    }
}
