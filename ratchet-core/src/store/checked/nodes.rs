use async_trait::async_trait;

use super::Checked;
use crate::error::Result;
use crate::id::NodeId;
use crate::model::{
    Guarded, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, NodeSweep, SweptNodes,
};
use crate::store::{Changed, NodeStore, Store};
use crate::time::Timestamp;

#[async_trait]
impl<S: Store + ?Sized> NodeStore for Checked<S> {
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply> {
        self.call("heartbeat", || self.store.nodes().heartbeat(heartbeat))
            .await
    }

    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed> {
        self.call("set_node_status", || {
            self.store.nodes().set_node_status(node, status)
        })
        .await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.call("nodes", || self.store.nodes().nodes()).await
    }

    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        self.call("sweep_nodes", || self.store.nodes().sweep_nodes(sweep))
            .await
    }

    async fn database_time(&self) -> Result<Timestamp> {
        self.call("database_time", || self.store.nodes().database_time())
            .await
    }
}
