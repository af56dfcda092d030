//! [`NodeStore`] on the engine: which nodes are live, and when the store last received their
//! heartbeats.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use async_trait::async_trait;
use ratchet_core::model::{
    Guarded, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, NodeSweep, StoredJob, SweptNodes,
};
use ratchet_core::store::{Changed, NodeStore};
use ratchet_core::time::{Timestamp, from_millis};
use ratchet_core::{NodeId, Result};

use crate::call::{Call, decoded};
use crate::engine::{Engine, Order, Transaction};
use crate::keys::{Key, Parts, Table};
use crate::store::KvStore;

fn key(node: NodeId) -> Key {
    Key::new(Table::Node).node(Some(node))
}

impl<T: Transaction> Call<T> {
    pub(crate) async fn node(&mut self, node: NodeId) -> Result<Option<NodeRecord>> {
        self.read(key(node), NodeRecord::decode).await
    }

    async fn put_node(&mut self, node: &NodeRecord) -> Result<()> {
        self.write(key(node.node), node.encode()).await
    }

    pub(crate) async fn nodes(&mut self) -> Result<Vec<NodeRecord>> {
        let rows = self.all(Key::new(Table::Node).all()).await?;
        let read = |(_, value): &(_, Vec<u8>)| decoded(value, NodeRecord::decode);
        Ok(rows.iter().filter_map(read).collect())
    }

    /// Returns whether no node other than `node` is live. Stops reading at the first such node.
    async fn is_alone(&mut self, node: NodeId) -> Result<bool> {
        let mut keys = Key::new(Table::Node).all();
        loop {
            let page = self.page(&mut keys, Order::Ascending).await?;
            if page.is_empty() {
                return Ok(true);
            }
            let nodes = page
                .iter()
                .filter_map(|(_, value)| decoded(value, NodeRecord::decode));
            let mut others = nodes.filter(|other| other.node != node);
            if others.any(|other| other.status.is_live()) {
                return Ok(false);
            }
        }
    }
}

#[async_trait]
impl<E: Engine> NodeStore for KvStore<E> {
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply> {
        let mut call = self.write("heartbeat").await?;
        let (id, now) = (heartbeat.node, from_millis(call.now));
        let stored = call.node(id).await?;
        if stored.is_none() && heartbeat.status == NodeStatus::Joining {
            let nodes = call.nodes().await?;
            for mut other in nodes
                .into_iter()
                .filter(|node| node.is_displaced_by(heartbeat))
            {
                other.lose();
                call.put_node(&other).await?;
            }
        }
        let previous = stored.as_ref().map(|node| node.last_seen);
        let mut node = stored.unwrap_or_else(|| NodeRecord::joined(heartbeat, now));
        node.beat(heartbeat, now);
        call.put_node(&node).await?;
        let running = call
            .all(Key::new(Table::Running).node(Some(id)).all())
            .await?;
        let claims = call.jobs_of(&running).await?;
        let claims = claims.iter().map(StoredJob::owned_claim).collect();
        let alone = call.is_alone(id).await?;
        call.commit().await?;
        Ok(HeartbeatReply::new(
            now,
            node.status,
            previous,
            claims,
            alone,
        ))
    }

    async fn set_node_status(&self, node: NodeId, status: NodeStatus) -> Result<Changed> {
        let mut call = self.write("set_node_status").await?;
        let Some(mut node) = call.node(node).await? else {
            return Ok(Changed::Unchanged);
        };
        let changed = node.set_status(status);
        if changed {
            call.put_node(&node).await?;
        }
        call.commit().await?;
        Ok(Changed::when(changed))
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        let mut nodes = self.read("nodes").await?.nodes().await?;
        nodes.sort_by_key(|node| (Reverse(node.started_at), node.node));
        Ok(nodes)
    }

    async fn sweep_nodes(&self, sweep: &NodeSweep) -> Result<Guarded<SweptNodes>> {
        let mut call = self.write("sweep_nodes").await?;
        if !call.allows(sweep.guard.as_ref()).await? {
            return Ok(Guarded::Stale);
        }
        let now = from_millis(call.now);
        let running = call.all(Key::new(Table::Running).all()).await?;
        let owners = running.iter().filter_map(|(key, _)| Parts::of(key).node());
        let owners: BTreeSet<NodeId> = owners.collect();
        let mut swept = SweptNodes::default();
        let mut nodes = call.nodes().await?;
        for node in &mut nodes {
            if sweep.marks_dead(node, now) {
                node.lose();
                swept.died.push(node.node);
                call.put_node(node).await?;
            }
        }
        for node in nodes {
            if !owners.contains(&node.node) && sweep.forgets(&node, &swept.died, now) {
                call.remove(key(node.node).bytes()).await?;
                swept.forgotten += 1;
            }
        }
        call.commit().await?;
        Ok(Guarded::Done(swept))
    }

    async fn database_time(&self) -> Result<Timestamp> {
        Ok(from_millis(self.read("database_time").await?.now))
    }
}
