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
            if !tables.nodes.contains_key(&heartbeat.node) {
                let displaced = |node: &&mut NodeRecord| node.is_displaced_by(heartbeat);
                let displaced = tables.nodes.values_mut().filter(displaced);
                displaced.for_each(NodeRecord::lose);
            }
            let previous = tables.nodes.get(&heartbeat.node).map(|node| node.last_seen);
            let node = tables
                .nodes
                .entry(heartbeat.node)
                .or_insert_with(|| NodeRecord::joined(heartbeat, now));
            node.beat(heartbeat, now);
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
            let node = tables.nodes.get_mut(&node);
            Ok(Changed::when(
                node.is_some_and(|node| node.set_status(status)),
            ))
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
                    node.lose();
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
