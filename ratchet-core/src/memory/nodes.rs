use std::collections::BTreeSet;

use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
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
        self.write(Command::Heartbeat(heartbeat.into())).await
    }

    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed> {
        self.write(Command::SetNodeStatus { node, status }).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.read("nodes", |tables, _| {
            let mut nodes: Vec<NodeRecord> = tables.nodes.values().cloned().collect();
            nodes.sort_by_key(|node| (std::cmp::Reverse(node.started_at), node.node));
            nodes
        })
        .await
    }

    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        self.write(Command::SweepNodes(sweep.into())).await
    }

    async fn database_time(&self) -> Result<Timestamp> {
        self.read("database_time", |_, now| from_millis(now)).await
    }
}

impl Tables {
    pub(super) fn heartbeat(&mut self, heartbeat: &Heartbeat, now: i64) -> HeartbeatReply {
        let now = from_millis(now);
        if !self.nodes.contains_key(&heartbeat.node) {
            let displaced = |node: &&mut NodeRecord| node.is_displaced_by(heartbeat);
            let displaced = self.nodes.values_mut().filter(displaced);
            displaced.for_each(NodeRecord::lose);
        }
        let previous = self.nodes.get(&heartbeat.node).map(|node| node.last_seen);
        let node = self
            .nodes
            .entry(heartbeat.node)
            .or_insert_with(|| NodeRecord::joined(heartbeat, now));
        node.beat(heartbeat, now);
        let status = node.status;
        let claims = self
            .running()
            .filter(|row| row.record.node == Some(heartbeat.node))
            .map(StoredJob::owned_claim)
            .collect();
        let other = |node: &NodeRecord| node.node != heartbeat.node && node.status.is_live();
        let alone = !self.nodes.values().any(other);
        HeartbeatReply::new(now, status, previous, claims, alone)
    }

    pub(super) fn set_node_status(&mut self, node: NodeId, status: NodeStatus) -> Changed {
        let node = self.nodes.get_mut(&node);
        Changed::when(node.is_some_and(|node| node.set_status(status)))
    }

    pub(super) fn sweep_nodes(&mut self, sweep: &NodeSweep, now: i64) -> Guarded<SweptNodes> {
        if !self.is_tenure(sweep.guard.as_ref(), now) {
            return Guarded::Stale;
        }
        let now = from_millis(now);
        let owners = self.owners();
        let mut swept = SweptNodes::default();
        for node in self.nodes.values_mut() {
            if sweep.marks_dead(node, now) {
                node.lose();
                swept.died.push(node.node);
            }
        }
        let before = self.nodes.len();
        self.nodes
            .retain(|id, node| owners.contains(id) || !sweep.forgets(node, &swept.died, now));
        swept.forgotten = (before - self.nodes.len()) as u64;
        Guarded::Done(swept)
    }

    /// Returns whether a sweep at this time would change a node.
    pub(super) fn has_swept(&self, sweep: &NodeSweep, now: i64) -> bool {
        let now = from_millis(now);
        let owners = self.owners();
        self.nodes.values().any(|node| {
            let forgets = || !owners.contains(&node.node) && sweep.forgets(node, &[], now);
            sweep.marks_dead(node, now) || forgets()
        })
    }

    /// Returns the nodes that own a claim.
    fn owners(&self) -> BTreeSet<NodeId> {
        self.running().filter_map(|row| row.record.node).collect()
    }
}
