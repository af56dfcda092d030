//! The identity of the node: its label, id and status.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::id::NodeId;
use crate::metrics::NodeMetrics;
use crate::model::NodeStatus;
use crate::name::Name;

/// Label, id and status of the node during one run.
pub(crate) struct Identity {
    label: Name,
    current: Mutex<(NodeId, NodeStatus)>,
    pub(crate) metrics: NodeMetrics,
}

impl Identity {
    /// Creates the identity of a node that is about to join the cluster.
    pub(crate) fn new(id: NodeId, label: Name) -> Self {
        Self {
            label,
            current: Mutex::new((id, NodeStatus::Joining)),
            metrics: NodeMetrics::new(),
        }
    }

    pub(crate) const fn label(&self) -> &Name {
        &self.label
    }

    /// Returns the current id of the node. The id changes when the cluster has declared the node
    /// dead and the node continues.
    pub(crate) fn node(&self) -> NodeId {
        self.current().0
    }

    pub(crate) fn status(&self) -> NodeStatus {
        self.current().1
    }

    pub(crate) fn set_status(&self, status: NodeStatus) {
        self.current().1 = status;
        self.metrics.status(status);
    }

    /// Replaces the id of the node by a new one.
    pub(crate) fn renew(&self) {
        self.current().0 = NodeId::new();
    }

    fn current(&self) -> MutexGuard<'_, (NodeId, NodeStatus)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
