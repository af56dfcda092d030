//! What is shown, and how it follows from what was read: pure.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet::cluster::Leader;
use ratchet::model::{DueRoute, NodeRecord, NodeTotals};
use ratchet::time::Timestamp;
use ratchet::{JobRecord, NodeId};
use ratchet_http::view;
use serde::Serialize;

use crate::commands::nodes::joined;

/// One look.
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

/// A dead letter.
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

/// What is shown.
#[derive(Debug)]
pub(super) struct Model {
    seen: Seen,
    rates: Option<view::Rates>,
    problem: Option<String>,
}

/// What is shown, for programs.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    pub(super) at: view::At,
    pub(super) database: &'a str,
    #[serde(flatten)]
    pub(super) cluster: view::Cluster,
    pub(super) live_nodes: usize,
    pub(super) running: u64,
    pub(super) capacity: u64,
    /// None before the second look, and while no node says what it has done.
    pub(super) rates: Option<view::Rates>,
    pub(super) oldest_due_ms: Option<u64>,
    pub(super) stranded: usize,
    #[serde(flatten)]
    pub(super) queues: &'a view::Queues,
    pub(super) failed: &'a [Failed],
}

impl Model {
    pub(super) const fn new(seen: Seen) -> Self {
        Self {
            seen,
            rates: None,
            problem: None,
        }
    }

    /// Takes the next look.
    pub(super) fn update(&mut self, seen: Seen) {
        // The heartbeats between which the totals grew are of other times than the looks. Looks at
        // the same heartbeats show no difference, and the rates stay.
        if let Some(rates) = rates(&self.seen.nodes, &seen.nodes) {
            self.rates = Some(rates);
        }
        self.seen = seen;
        self.problem = None;
    }

    /// A look failed; the last one stays.
    pub(super) fn failed(&mut self, problem: &str) {
        self.problem = Some(problem.to_owned());
    }

    /// Why the last look failed.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(super) fn view(&self) -> View<'_> {
        let seen = &self.seen;
        let mut cluster = joined(&seen.nodes, &seen.leaders, seen.at);
        cluster.nodes.retain(|node| node.live);
        let sum =
            |of: fn(&view::Node) -> u32| cluster.nodes.iter().map(|node| u64::from(of(node))).sum();
        let waiting = seen.due.iter().filter(|due| !due.paused);
        View {
            at: seen.at.into(),
            database: &seen.database,
            live_nodes: cluster.nodes.len(),
            running: sum(|node| node.running),
            capacity: sum(|node| node.capacity),
            cluster,
            rates: self.rates,
            oldest_due_ms: waiting.map(|due| due.overdue).max().map(view::millis),
            stranded: seen.stranded,
            queues: &seen.queues,
            failed: &seen.failed,
        }
    }
}

/// The rates between two heartbeats of each node that gave both; none if none did.
fn rates(before: &[NodeRecord], after: &[NodeRecord]) -> Option<view::Rates> {
    let before: BTreeMap<NodeId, (&NodeRecord, NodeTotals)> = before
        .iter()
        .filter_map(|node| Some((node.node, (node, node.load.totals?))))
        .collect();
    let (mut rates, mut begun, mut waited, mut any) = (view::Rates::default(), 0, 0, false);
    for node in after {
        let (Some(now), Some((last, then))) = (node.load.totals, before.get(&node.node)) else {
            continue;
        };
        let took = (node.last_seen - last.last_seen)
            .to_std()
            .unwrap_or(Duration::ZERO);
        if took.is_zero() {
            continue;
        }
        any = true;
        rates.finished_per_s += per_second(now.succeeded, then.succeeded, took);
        rates.finished_per_s += per_second(now.failed, then.failed, took);
        rates.failed_per_s += per_second(now.failed, then.failed, took);
        rates.retried_per_s += per_second(now.retried, then.retried, took);
        begun += now.begun.saturating_sub(then.begun);
        waited += now.waited_ms.saturating_sub(then.waited_ms);
    }
    rates.wait_ms = waited.checked_div(begun);
    any.then_some(rates)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_second(now: u64, then: u64, took: Duration) -> f64 {
    now.saturating_sub(then) as f64 / took.as_secs_f64()
}

#[cfg(test)]
pub(super) mod tests {
    use ratchet::Name;
    use ratchet::model::{Heartbeat, NodeStatus};
    use ratchet::time::from_millis;

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
                queues: vec![view::Queue::new(
                    "mail".to_owned(),
                    true,
                    counts,
                    Some(61_000),
                )],
                counts_at: None,
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
        // The same heartbeat once more says nothing new.
        model.update(look(id, 15_000, NodeTotals::new(150, 1_500, 130, 14, 11)));
        assert_eq!(model.view().rates, Some(wanted));
    }

    #[test]
    fn nodes_that_come_or_say_nothing_do_not_count() {
        let (old, new) = (NodeId::new(), NodeId::new());
        let totals = NodeTotals::new(9, 9, 9, 9, 9);
        let before = [node(old, 0, None)];
        assert_eq!(rates(&before, &[node(old, 5_000, Some(totals))]), None);
        let before = [node(old, 0, Some(totals))];
        assert_eq!(rates(&before, &[node(new, 5_000, Some(totals))]), None);
        // A node that was restarted under its id would shrink; that is no rate below zero.
        let less = NodeTotals::new(0, 0, 0, 0, 0);
        let after = [node(old, 5_000, Some(less))];
        assert_eq!(
            rates(&before, &after).map(|rates| rates.finished_per_s),
            Some(0.0)
        );
    }
}
