//! Nodes: which are alive, and what each of them runs.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use async_trait::async_trait;
use ratchet_core::model::{
    Guarded, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, NodeSweep, OwnedClaim, SweptNodes,
};
use ratchet_core::store::{Changed, NodeStore};
use ratchet_core::time::{Timestamp, from_millis};
use ratchet_core::{NodeId, Result};

use crate::store::MapStore;
use crate::tables::{Row, Tables};

#[async_trait]
impl NodeStore for MapStore {
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply> {
        Ok(self.transaction(|tables, now| tables.heartbeat(heartbeat, from_millis(now))))
    }

    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed> {
        Ok(self.transaction(|tables, _| {
            let node = tables.nodes.get_mut(&node);
            let changed = node.filter(|node| node.status.is_live() && node.status != status);
            Changed::when(changed.map(|node| node.status = status).is_some())
        }))
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        Ok(self.transaction(|tables, _| {
            let mut nodes: Vec<NodeRecord> = tables.nodes.values().cloned().collect();
            nodes.sort_by_key(|node| (Reverse(node.started_at), node.node));
            nodes
        }))
    }

    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        Ok(self.transaction(|tables, now| {
            if !tables.allows(sweep.guard.as_ref(), now) {
                return Guarded::Stale;
            }
            let now = from_millis(now);
            let owners: BTreeSet<NodeId> =
                tables.running().filter_map(|row| row.job.node).collect();
            let mut swept = SweptNodes::default();
            for node in tables.nodes.values_mut() {
                if sweep.marks_dead(node, now) {
                    node.status = node.status.when_lost();
                    swept.died.push(node.node);
                }
            }
            let before = tables.nodes.len();
            let nodes = &mut tables.nodes;
            nodes.retain(|id, node| owners.contains(id) || !sweep.forgets(node, &swept.died, now));
            swept.forgotten = (before - nodes.len()) as u64;
            Guarded::Done(swept)
        }))
    }

    async fn database_time(&self) -> Result<Timestamp> {
        Ok(self.transaction(|_, now| from_millis(now)))
    }
}

impl Tables {
    fn heartbeat(&mut self, heartbeat: &Heartbeat, now: Timestamp) -> HeartbeatReply {
        let joins = heartbeat.status == NodeStatus::Joining;
        if joins && !self.nodes.contains_key(&heartbeat.node) {
            // A program that restarts replaces the earlier node with its label.
            for other in self.nodes.values_mut() {
                if other.label == heartbeat.label && other.status.is_live() {
                    other.status = other.status.when_lost();
                }
            }
        }
        let previous = self.nodes.get(&heartbeat.node).map(|node| node.last_seen);
        let node = self.nodes.entry(heartbeat.node);
        let node = node.or_insert_with(|| NodeRecord::joined(heartbeat, now));
        node.status = node.status.after_heartbeat(heartbeat.status);
        node.label = heartbeat.label.clone();
        node.interval = heartbeat.interval;
        node.load = heartbeat.load;
        node.profile = heartbeat.profile.clone();
        node.last_seen = now;
        let status = node.status;
        let own = |row: &&Row| row.job.node == Some(heartbeat.node);
        let claim = |row: &Row| OwnedClaim::new(row.token(), row.job.cancel_requested);
        let claims = self.running().filter(own).map(claim).collect();
        let other = |node: &NodeRecord| node.node != heartbeat.node && node.status.is_live();
        let alone = !self.nodes.values().any(other);
        HeartbeatReply::new(now, status, previous, claims, alone)
    }
}
