//! Derives the view of `ratchet top` from the data that was read, as pure functions.

use ratchet::store_api::throughput::Meter;
use ratchet::{DueRoute, JobRecord, Leader, NodeRecord, Timestamp};
use ratchet_http::view;
use serde::Serialize;

use crate::commands::nodes::joined;

/// Data from one read of the database.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) database: String,
    pub(super) at: Timestamp,
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) leaders: Vec<Leader>,
    pub(super) due: Vec<DueRoute>,
    pub(super) stranded: usize,
    pub(super) queues: view::Queues,
    pub(super) failed: Vec<Failed>,
}

impl Seen {
    /// Returns the live nodes. A live node has not ended, and its last heartbeat is recent.
    fn live(&self) -> impl Iterator<Item = &NodeRecord> {
        let nodes = self.nodes.iter();
        nodes.filter(|node| view::is_live(node, self.at))
    }
}

/// A dead letter, as the view shows it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Failed {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) queue: String,
    #[serde(rename = "finished_at")]
    pub(super) at: Option<view::At>,
    pub(super) error: String,
}

impl From<&JobRecord> for Failed {
    fn from(job: &JobRecord) -> Self {
        Self {
            id: job.id.to_string(),
            kind: job.spec.route.kind.to_string(),
            queue: job.spec.route.queue.to_string(),
            at: job.finished_at.map(view::At),
            error: job.last_error.clone().unwrap_or_default(),
        }
    }
}

/// State of the view: the data of the last successful read, the rates, and the failure of the last
/// read if it failed.
#[derive(Debug)]
pub(super) struct Model {
    seen: Seen,
    meter: Meter,
    problem: Option<String>,
}

/// The data to draw on the terminal, or to write as JSON.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    pub(super) at: view::At,
    pub(super) database: &'a str,
    #[serde(flatten)]
    pub(super) cluster: view::Cluster,
    pub(super) live_nodes: usize,
    pub(super) running: u64,
    pub(super) capacity: u64,
    /// Rates of the cluster. `None` until two heartbeats of the same live node have been read.
    /// Excludes nodes whose heartbeats contain no totals.
    pub(super) rates: Option<view::Rates>,
    pub(super) oldest_due_ms: Option<u64>,
    pub(super) stranded: usize,
    #[serde(flatten)]
    pub(super) queues: &'a view::Queues,
    pub(super) failed: &'a [Failed],
}

impl Model {
    pub(super) fn new(seen: Seen) -> Self {
        let mut meter = Meter::default();
        meter.read(seen.live());
        Self {
            seen,
            meter,
            problem: None,
        }
    }

    /// Stores the data of a successful read, and clears the failure of an earlier read.
    pub(super) fn update(&mut self, seen: Seen) {
        self.meter.read(seen.live());
        self.seen = seen;
        self.problem = None;
    }

    /// Stores the message of a failed read. The model keeps the data of the last successful read.
    pub(super) fn failed(&mut self, problem: &str) {
        self.problem = Some(problem.to_owned());
    }

    /// Returns the message of the last read's failure, or `None` if the last read succeeded.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(super) fn view(&self) -> View<'_> {
        let seen = &self.seen;
        let mut cluster = joined(&seen.nodes, &seen.leaders, seen.at);
        cluster.nodes.retain(|node| node.live);
        let sum =
            |of: fn(&view::Node) -> u32| cluster.nodes.iter().map(|node| u64::from(of(node))).sum();
        let waiting = seen.due.iter().filter(|due| !due.is_paused());
        View {
            at: seen.at.into(),
            database: &seen.database,
            live_nodes: cluster.nodes.len(),
            running: sum(|node| node.running),
            capacity: sum(|node| node.capacity),
            cluster,
            rates: self.meter.throughput().map(view::Rates::from),
            oldest_due_ms: waiting.map(|due| due.overdue).max().map(view::millis),
            stranded: seen.stranded,
            queues: &seen.queues,
            failed: &seen.failed,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use ratchet::store_api::model::Heartbeat;
    use ratchet::store_api::time::from_millis;
    use ratchet::{Name, NodeId, NodeStatus, NodeTotals};

    use super::*;

    fn node(id: NodeId, at: i64, totals: Option<NodeTotals>) -> NodeRecord {
        let label = Name::new("label", "alpha").unwrap();
        let beat = Heartbeat::new(id, label, NodeStatus::Active, Duration::from_secs(5));
        let mut node = NodeRecord::joined(&beat, from_millis(at));
        (node.load.running, node.load.capacity) = (3, 32);
        node.load.totals = totals;
        node
    }

    pub(in super::super) fn look(id: NodeId, at: i64, totals: NodeTotals) -> Seen {
        let counts = view::Counts::from(&[(ratchet::JobState::Pending, 1_234)].into());
        Seen {
            database: "memory 1".to_owned(),
            at: from_millis(at),
            nodes: vec![node(id, at, Some(totals))],
            leaders: Vec::new(),
            due: Vec::new(),
            stranded: 1,
            queues: view::Queues {
                next: None,
                queues: vec![view::Queue::new(
                    "mail".to_owned(),
                    true,
                    Some(counts),
                    Some(61_000),
                )],
                counts_at: None,
                due_at: None,
            },
            failed: vec![Failed {
                id: "00000000-0000-0000-0000-000000000001".to_owned(),
                kind: "send".to_owned(),
                queue: "mail".to_owned(),
                at: Some(from_millis(at - 1_000).into()),
                error: "no route to host\u{1b}[31m".to_owned(),
            }],
        }
    }

    #[test]
    fn rates_are_differences_of_totals_over_heartbeats() {
        let id = NodeId::new();
        let mut model = Model::new(look(id, 10_000, NodeTotals::new(100, 500, 90, 4, 6)));
        assert_eq!(model.view().rates, None);
        model.update(look(id, 15_000, NodeTotals::new(150, 1_500, 130, 14, 11)));
        let mut wanted = view::Rates::default();
        (wanted.finished_per_s, wanted.failed_per_s) = (10.0, 2.0);
        (wanted.retried_per_s, wanted.wait_ms) = (1.0, Some(20));
        assert_eq!(model.view().rates, Some(wanted));
        // Reading the same heartbeat again does not change the rates.
        model.update(look(id, 15_000, NodeTotals::new(150, 1_500, 130, 14, 11)));
        assert_eq!(model.view().rates, Some(wanted));
    }

    #[test]
    fn every_node_counts_whenever_its_heartbeats_come() {
        let (one, other) = (NodeId::new(), NodeId::new());
        let done = |count| Some(NodeTotals::new(count, 0, count, 0, 0));
        let seen = |at, nodes: &[(NodeId, i64, u64)]| {
            let mut seen = look(one, at, NodeTotals::default());
            let nodes = nodes.iter();
            seen.nodes = nodes
                .map(|(id, at, count)| node(*id, *at, done(*count)))
                .collect();
            seen
        };
        let finished = |model: &Model| model.view().rates.map(|rates| rates.finished_per_s);
        let mut model = Model::new(seen(1_000, &[(one, 0, 0), (other, 1_000, 0)]));
        assert_eq!(finished(&model), None);
        model.update(seen(6_000, &[(one, 5_000, 50), (other, 6_000, 10)]));
        assert_eq!(finished(&model), Some(12.0));
        // Only one node has sent a heartbeat since the last read, and both nodes still count.
        model.update(seen(10_000, &[(one, 10_000, 100), (other, 6_000, 10)]));
        assert_eq!(finished(&model), Some(12.0));
        // A restarted node is a new node, which has no rates yet.
        let back = NodeId::new();
        model.update(seen(11_000, &[(back, 11_000, 0), (other, 11_000, 20)]));
        assert_eq!(finished(&model), Some(2.0));
        // No node is live, so there are no rates.
        model.update(seen(3_600_000, &[(back, 11_000, 0), (other, 11_000, 20)]));
        assert_eq!(finished(&model), None);
    }
}
