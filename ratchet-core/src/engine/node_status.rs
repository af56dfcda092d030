//! The status of a node, for callers outside of its runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::execute::running::RunningSet;
use super::membership::identity::Identity;
use crate::id::NodeId;
use crate::model::NodeStatus;
use crate::name::Name;

/// Id and status of a node. They are available to callers even when the node is not running.
#[derive(Debug)]
pub(super) struct NodeStatusCell(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    /// Identity of the node in the current run. The reference is dangling while the node is not
    /// running.
    identity: Weak<Identity>,
    running: Weak<RunningSet>,
    /// Id and final status of the last run.
    last: (NodeId, NodeStatus),
    /// Id that is reserved for the first run. `None` once that run has been created.
    first: Option<NodeId>,
    /// Label of the last run. `None` before the first run.
    label: Option<Name>,
}

impl Default for NodeStatusCell {
    fn default() -> Self {
        let id = NodeId::new();
        Self(Mutex::new(Inside {
            identity: Weak::new(),
            running: Weak::new(),
            last: (id, NodeStatus::Joining),
            first: Some(id),
            label: None,
        }))
    }
}

impl NodeStatusCell {
    /// Returns the id for the next run. The first run gets the id that the node has shown since it
    /// was built. Every later run gets a new id, because a node that has left the cluster must not
    /// use its old id again.
    pub(super) fn next_id(&self) -> NodeId {
        self.inside().first.take().unwrap_or_else(NodeId::new)
    }

    /// Returns the number of job bodies that run now.
    pub(super) fn bodies(&self) -> usize {
        let running = self.inside().running.upgrade();
        running.map_or(0, |running| running.len())
    }

    /// Returns the id and the status of the current run, or those of the last run if the node is
    /// not running.
    pub(super) fn identity(&self) -> (NodeId, NodeStatus) {
        match self.run() {
            Some(identity) => (identity.node(), identity.status()),
            None => self.inside().last,
        }
    }

    /// Returns the label of the current or last run. `None` before the first run.
    pub(super) fn label(&self) -> Option<Name> {
        self.inside().label.clone()
    }

    /// Records that a run begins.
    pub(super) fn begin(&self, identity: &Arc<Identity>, running: &Arc<RunningSet>) {
        let mut inside = self.inside();
        inside.identity = Arc::downgrade(identity);
        inside.running = Arc::downgrade(running);
        inside.label = Some(identity.label().clone());
    }

    /// Records that a run has ended. If the node did not leave the cluster regularly, its status
    /// becomes `Dead`, because the cluster has declared the node dead or will do so.
    pub(super) fn end(&self, identity: &Identity) {
        let left = identity.status() == NodeStatus::Left;
        let status = if left {
            NodeStatus::Left
        } else {
            NodeStatus::Dead
        };
        let mut inside = self.inside();
        inside.identity = Weak::new();
        inside.running = Weak::new();
        inside.last = (identity.node(), status);
    }

    fn run(&self) -> Option<Arc<Identity>> {
        self.inside().identity.upgrade()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
