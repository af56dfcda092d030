use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::run::Run;
use crate::id::NodeId;
use crate::model::NodeStatus;
use crate::name::Name;

/// Who a node is and what it does at present, for those who ask from outside its runs.
#[derive(Debug)]
pub(super) struct NodeStatusCell(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    /// The run that is under way.
    run: Weak<Run>,
    /// Who it was, and how its last run ended.
    last: (NodeId, NodeStatus),
    /// Who the first run is to be, until it is.
    first: Option<NodeId>,
    /// What people called it then; none: it did not run yet.
    label: Option<Name>,
}

impl Default for NodeStatusCell {
    fn default() -> Self {
        let id = NodeId::new();
        Self(Mutex::new(Inside {
            run: Weak::new(),
            last: (id, NodeStatus::Joining),
            first: Some(id),
            label: None,
        }))
    }
}

impl NodeStatusCell {
    /// The id of the next run: the one that the node has already, but only once, since a node that has
    /// left does not come back under its id.
    pub(super) fn next_id(&self) -> NodeId {
        self.inside().first.take().unwrap_or_else(NodeId::new)
    }

    /// The run that is under way.
    pub(super) fn run(&self) -> Option<Arc<Run>> {
        self.inside().run.upgrade()
    }

    /// Who the node is, and its status.
    pub(super) fn identity(&self) -> (NodeId, NodeStatus) {
        match self.run() {
            Some(run) => (run.node(), run.status()),
            None => self.inside().last,
        }
    }

    /// What people call it; none: it did not run yet.
    pub(super) fn label(&self) -> Option<Name> {
        match self.run() {
            Some(run) => Some(run.label.clone()),
            None => self.inside().label.clone(),
        }
    }

    pub(super) fn begin(&self, run: &Arc<Run>) {
        let mut inside = self.inside();
        inside.run = Arc::downgrade(run);
        inside.label = Some(run.label.clone());
    }

    /// A run that did not leave in order was taken for dead, or will be.
    pub(super) fn end(&self, run: &Run) {
        let left = run.status() == NodeStatus::Left;
        let status = if left {
            NodeStatus::Left
        } else {
            NodeStatus::Dead
        };
        let mut inside = self.inside();
        inside.run = Weak::new();
        inside.last = (run.node(), status);
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
