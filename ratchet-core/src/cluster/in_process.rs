use async_trait::async_trait;
use tokio::sync::broadcast;

use super::{ClusterCoordinator, Wakeup, WakeupStream};

/// Carries wakeups between the nodes and clients of one process.
///
/// Clones share the transport.
///
/// ```
/// use std::sync::Arc;
/// use ratchet::{InProcessCoordinator, MemoryStore, Ratchet};
///
/// let store = Arc::new(MemoryStore::new());
/// let coordinator = InProcessCoordinator::new();
/// let client = Ratchet::client(store).with_coordinator(coordinator);
/// # drop(client);
/// ```
#[derive(Clone, Debug)]
pub struct InProcessCoordinator {
    wakeups: broadcast::Sender<Wakeup>,
    reaches_all_nodes: bool,
}

impl InProcessCoordinator {
    /// Maximum number of unread wakeups of a subscriber. If there are more, the subscriber receives
    /// one wakeup for all queues instead.
    const CAPACITY: usize = 1_024;

    /// Creates a transport without subscribers.
    #[must_use]
    pub fn new() -> Self {
        Self {
            wakeups: broadcast::Sender::new(Self::CAPACITY),
            reaches_all_nodes: false,
        }
    }

    /// Creates the transport of a store that only this process can use. It reaches all nodes.
    pub(crate) fn of_only_process() -> Self {
        Self {
            reaches_all_nodes: true,
            ..Self::new()
        }
    }

    /// Returns whether there is a subscriber.
    #[must_use]
    pub fn has_subscribers(&self) -> bool {
        self.wakeups.receiver_count() > 0
    }
}

impl Default for InProcessCoordinator {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl ClusterCoordinator for InProcessCoordinator {
    async fn notify(&self, wakeup: Wakeup) {
        // `send` fails only if there are no subscribers, which is not an error here.
        let _ = self.wakeups.send(wakeup);
    }

    fn subscribe(&self) -> WakeupStream {
        self.wakeups.subscribe().into()
    }

    fn reaches_all_nodes(&self) -> bool {
        self.reaches_all_nodes
    }
}
