//! The registry with which a reclaim pass finds the owners of claims.

use std::collections::HashMap;

use crate::id::NodeId;
use crate::model::{NodeRecord, Owner};
use crate::time::to_millis;

/// The nodes of which the store has a readable row, by id.
#[derive(Clone, Debug)]
pub struct NodeRegistry<'a> {
    nodes: HashMap<NodeId, &'a NodeRecord>,
    /// The earliest start time of these nodes, in milliseconds; `None` if there are none.
    since: Option<i64>,
}

impl<'a> NodeRegistry<'a> {
    /// Creates a registry of these nodes. The caller must pass all nodes that the store can read.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = &'a NodeRecord>) -> Self {
        let nodes: HashMap<NodeId, &NodeRecord> =
            nodes.into_iter().map(|node| (node.node, node)).collect();
        let since = nodes.values().map(|node| node.started_at).min();
        Self {
            nodes,
            since: since.map(to_millis),
        }
    }

    /// Returns the owner of a claim that is stored under this node. `None` means that the claim is
    /// stored under no node. A node that is not in the registry is unknown.
    #[must_use]
    pub fn owner(&self, node: Option<NodeId>) -> Owner<'a> {
        let Some(node) = node else {
            return Owner::Nobody;
        };
        let unknown = Owner::Unknown {
            registry_since: self.since,
        };
        self.nodes
            .get(&node)
            .map_or(unknown, |node| Owner::Known(node))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Heartbeat, NodeStatus};
    use crate::name::Name;
    use crate::time::from_millis;

    #[test]
    fn an_owner_is_none_a_known_node_or_one_missing_since_the_oldest_row() {
        let nodes = [700, 300, 500].map(|began| {
            let label = Name::new("label", "n").unwrap();
            let second = Duration::from_secs(1);
            let beat = Heartbeat::new(NodeId::new(), label, NodeStatus::Active, second);
            NodeRecord::joined(&beat, from_millis(began))
        });
        let registry = NodeRegistry::new(&nodes);
        assert!(matches!(registry.owner(None), Owner::Nobody));
        let known = registry.owner(Some(nodes[1].node));
        assert!(matches!(known, Owner::Known(node) if *node == nodes[1]));
        let since = |owner| match owner {
            Owner::Unknown { registry_since } => registry_since,
            other => panic!("{other:?}"),
        };
        let missing = Some(NodeId::new());
        assert_eq!(since(registry.owner(missing)), Some(300));
        assert_eq!(since(NodeRegistry::new([]).owner(missing)), None);
    }
}
