//! The status of a node, for callers outside of its runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::execute::running::RunningSet;
use super::membership::identity::Identity;
use crate::id::NodeId;
use crate::model::NodeStatus;
use crate::name::Name;

/// The id and the status of a node, for callers outside of its runs.
#[derive(Debug)]
pub(super) struct NodeStatusCell(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    /// The current run.
    identity: Weak<Identity>,
    running: Weak<RunningSet>,
    /// The id and final status of the last run.
    last: (NodeId, NodeStatus),
    /// The id that is reserved for the first run, until that run begins.
    first: Option<NodeId>,
    /// The label of the last run. `None` before the first.
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
    /// Returns the id of the next run. The first run gets the id that the node already shows. Every
    /// later run gets a new id, because a node that has left does not return under its old one.
    pub(super) fn next_id(&self) -> NodeId {
        self.inside().first.take().unwrap_or_else(NodeId::new)
    }

    /// Returns how many bodies run.
    pub(super) fn bodies(&self) -> usize {
        let running = self.inside().running.upgrade();
        running.map_or(0, |running| running.len())
    }

    /// Returns the id and the status of the node.
    pub(super) fn identity(&self) -> (NodeId, NodeStatus) {
        match self.run() {
            Some(identity) => (identity.node(), identity.status()),
            None => self.inside().last,
        }
    }

    /// Returns the label. `None` before the first run.
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

    /// Records that a run ends. A run that did not leave in order has been declared dead, or will
    /// be.
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
