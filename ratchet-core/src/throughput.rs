//! The throughput of the cluster, computed from the heartbeats of its nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::NodeId;
use crate::model::{NodeRecord, NodeTotals};
use crate::time::{Timestamp, millis_between, to_millis};

/// The minimum time over which a rate is computed. A heartbeat may come immediately after the
/// previous one, and a rate over such a short time would be meaningless.
const SHORTEST: Duration = Duration::from_secs(3);

/// The throughput of a cluster, measured between the last two heartbeats of each node.
///
/// See [`Meter`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Throughput {
    /// Number of jobs that succeeded or became dead letters, per second.
    pub finished_per_s: f64,
    /// Number of jobs that became dead letters, per second.
    pub failed_per_s: f64,
    /// Number of failed attempts that will be retried, per second.
    pub retried_per_s: f64,
    /// Average time from the due time of a job to its claim, in whole milliseconds, over the jobs
    /// whose bodies began. `None` if no body began.
    pub wait: Option<Duration>,
}

/// Measures the throughput of a cluster from the heartbeats of its nodes. Reading a heartbeat a
/// second time has no effect.
///
/// For each node, the growth of its [`totals`](crate::model::NodeLoad::totals) between its last two
/// heartbeats is divided by the seconds between them, by the database's clock
/// ([`last_seen`](NodeRecord::last_seen)). The throughput of the cluster is the sum over its nodes.
/// The average wait is the growth of the waiting time, divided by the number of bodies that began.
///
/// The heartbeats of the nodes may come at different times and intervals. The last two heartbeats
/// of a node count until its next heartbeat arrives. A node that joins, or continues under a new
/// id, counts from its second heartbeat on. Its work before the first heartbeat is not counted. A
/// node that is no longer live does not count. If a heartbeat comes less than 3 s after the
/// previous one, the meter skips it. The next heartbeat then covers the time of both.
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
/// // 5 s later, 30 more jobs have succeeded on the node, each after a wait of 20 ms.
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
    /// The work between the last two heartbeats. `None` if the node has sent only one heartbeat.
    window: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    seconds: f64,
    done: NodeTotals,
}

impl Meter {
    /// Reads the last heartbeats of the live nodes. Nodes that are not in `live` no longer count.
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

    /// Returns the throughput of all nodes. `None` while no node has sent two heartbeats.
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
    /// Returns whether a heartbeat at the time `at` is this heartbeat, or comes less than
    /// [`SHORTEST`] after this heartbeat.
    fn is_recent(&self, at: Timestamp) -> bool {
        // If a heartbeat is earlier than the last one, the database's clock was set back. The
        // measurement then starts again.
        let (said_at, at) = (to_millis(self.said_at), to_millis(at));
        said_at <= at && millis_between(said_at, at) < SHORTEST
    }

    /// Returns the work between this heartbeat and a later one at the time `at`, which has these
    /// totals. `None` if the two heartbeats have the same time.
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
        // Only the second node has sent a new heartbeat. The first node still counts with the work
        // between its last two heartbeats.
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
        // The node was declared dead and continues under a new id. It keeps its earlier totals.
        meter.read(&[node(back, 6_000, done(1_012))]);
        assert_eq!(meter.throughput(), None);
        meter.read(&[node(back, 11_000, done(1_017))]);
        assert!((meter.throughput().unwrap().finished_per_s - 1.0).abs() < 0.001);
    }
}
