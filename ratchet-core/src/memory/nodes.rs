use std::collections::BTreeSet;

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::id::NodeId;
use crate::model::{
    Guarded, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, NodeSweep, StoredJob, SweptNodes,
};
use crate::store::{Changed, NodeStore};
use crate::time::{Timestamp, from_millis};

#[async_trait]
impl NodeStore for MemoryStore {
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply> {
        self.call("heartbeat", |tables, now| {
            let now = from_millis(now);
            let joins = heartbeat.status == NodeStatus::Joining;
            if joins && !tables.nodes.contains_key(&heartbeat.node) {
                for other in tables.nodes.values_mut() {
                    if other.label == heartbeat.label && other.status.is_live() {
                        other.status = other.status.when_lost();
                    }
                }
            }
            let previous = tables.nodes.get(&heartbeat.node).map(|node| node.last_seen);
            let node = tables
                .nodes
                .entry(heartbeat.node)
                .or_insert_with(|| NodeRecord::joined(heartbeat, now));
            node.status = node.status.after_heartbeat(heartbeat.status);
            node.label = heartbeat.label.clone();
            node.interval = heartbeat.interval;
            node.load = heartbeat.load;
            node.profile = heartbeat.profile.clone();
            node.last_seen = now;
            let status = node.status;
            let claims = tables
                .running()
                .filter(|row| row.record.node == Some(heartbeat.node))
                .map(StoredJob::owned_claim)
                .collect();
            let other = |node: &NodeRecord| node.node != heartbeat.node && node.status.is_live();
            let alone = !tables.nodes.values().any(other);
            Ok(HeartbeatReply::new(now, status, previous, claims, alone))
        })
        .await
    }

    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed> {
        self.call("set_node_status", |tables, _| {
            Ok(match tables.nodes.get_mut(&node) {
                Some(node) if node.status.is_live() && node.status != status => {
                    node.status = status;
                    Changed::Changed
                }
                _ => Changed::Unchanged,
            })
        })
        .await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.call("nodes", |tables, _| {
            let mut nodes: Vec<NodeRecord> = tables.nodes.values().cloned().collect();
            nodes.sort_by_key(|node| (std::cmp::Reverse(node.started_at), node.node));
            Ok(nodes)
        })
        .await
    }

    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        self.call("sweep_nodes", |tables, now| {
            if !tables.is_tenure(sweep.guard.as_ref(), now) {
                return Ok(Guarded::Stale);
            }
            let now = from_millis(now);
            let owners: BTreeSet<NodeId> =
                tables.running().filter_map(|row| row.record.node).collect();
            let mut swept = SweptNodes::default();
            for node in tables.nodes.values_mut() {
                if sweep.marks_dead(node, now) {
                    node.status = node.status.when_lost();
                    swept.died.push(node.node);
                }
            }
            let before = tables.nodes.len();
            tables
                .nodes
                .retain(|id, node| owners.contains(id) || !sweep.forgets(node, &swept.died, now));
            swept.forgotten = (before - tables.nodes.len()) as u64;
            Ok(Guarded::Done(swept))
        })
        .await
    }

    async fn database_time(&self) -> Result<Timestamp> {
        self.call("database_time", |_, now| Ok(from_millis(now)))
            .await
    }
}
