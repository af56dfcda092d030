//! The JSON document in which a store can keep the record of a node.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::document;
use crate::error::InvalidInput;
use crate::id::NodeId;
use crate::model::{NodeLoad, NodeProfile, NodeRecord, NodeStatus};
use crate::name::Name;
use crate::time::{duration_millis, from_millis, to_millis};

#[derive(Serialize, Deserialize)]
struct Document {
    node: NodeId,
    label: Name,
    status: u8,
    running: u32,
    capacity: u32,
    connections: Option<u32>,
    cpu_percent: Option<u32>,
    memory_bytes: Option<u64>,
    roles: Vec<Name>,
    capabilities: Vec<Name>,
    kinds: Option<Vec<Name>>,
    interval: u64,
    started_at: i64,
    last_seen: i64,
    notes: Option<String>,
}

impl NodeRecord {
    /// Encodes the node as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the document cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        let (load, profile) = (&self.load, &self.profile);
        document::encode(&Document {
            node: self.node,
            label: self.label.clone(),
            status: self.status.code(),
            running: load.running,
            capacity: load.capacity,
            connections: load.connections,
            cpu_percent: load.cpu_percent,
            memory_bytes: load.memory_bytes,
            roles: profile.roles.clone(),
            capabilities: profile.capabilities.clone(),
            kinds: profile.kinds.clone(),
            interval: duration_millis(self.interval).unsigned_abs(),
            started_at: to_millis(self.started_at),
            last_seen: to_millis(self.last_seen),
            notes: load.notes(profile),
        })
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `document` if the text is not such a document.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        let read: Document = document::decode(document)?;
        let mut load = NodeLoad::new(read.running, read.capacity);
        load.connections = read.connections;
        load.cpu_percent = read.cpu_percent;
        load.memory_bytes = read.memory_bytes;
        let mut profile = NodeProfile::new(read.roles, read.capabilities);
        profile.kinds = read.kinds;
        let mut node = Self {
            node: read.node,
            label: read.label,
            status: NodeStatus::from_code(read.status.into())?,
            load,
            profile,
            interval: Duration::from_millis(read.interval),
            started_at: from_millis(read.started_at),
            last_seen: from_millis(read.last_seen),
        };
        node.read_notes(read.notes.as_deref());
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Heartbeat, NodeTotals, PoolProfile};

    #[test]
    fn a_whole_node_round_trips() {
        let name = |text| Name::new("name", text).unwrap();
        let interval = Duration::from_millis(5_001);
        let mut beat = Heartbeat::new(NodeId::new(), name("n"), NodeStatus::Draining, interval);
        let mut node = NodeRecord::joined(&beat, from_millis(7));
        assert_eq!(
            NodeRecord::decode(&node.encode().unwrap()),
            Ok(node.clone())
        );
        beat.load = NodeLoad::new(3, 9);
        beat.load.connections = Some(2);
        (beat.load.cpu_percent, beat.load.memory_bytes) = (Some(40), Some(1 << 40));
        beat.load.totals = Some(NodeTotals::new(1, 2, 3, 4, 5));
        beat.load.unheld_claims = Some(6);
        beat.profile = NodeProfile::new(vec![name("worker")], vec![name("gpu"), name("x")]);
        beat.profile.kinds = Some(vec![name("mail")]);
        beat.profile.pools = Some(vec![PoolProfile::new(8, 4)]);
        node.beat(&beat, from_millis(12));
        assert_eq!(NodeRecord::decode(&node.encode().unwrap()), Ok(node));
    }
}
