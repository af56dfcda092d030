use async_trait::async_trait;
use tokio::sync::broadcast;

use super::{ClusterCoordinator, Wakeup, WakeupStream};

/// Carries wakeups between the nodes and clients of one process.
///
/// Clones share the transport.
#[derive(Clone, Debug)]
pub struct InProcessCoordinator(broadcast::Sender<Wakeup>);

impl InProcessCoordinator {
    /// Wakeups a subscriber may be behind before it is told to look everywhere.
    const CAPACITY: usize = 1_024;

    /// A transport without subscribers.
    #[must_use]
    pub fn new() -> Self {
        Self(broadcast::Sender::new(Self::CAPACITY))
    }

    /// Returns whether there is a subscriber.
    #[must_use]
    pub fn has_subscribers(&self) -> bool {
        self.0.receiver_count() > 0
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
        // An error only says that nobody listens.
        let _ = self.0.send(wakeup);
    }

    fn subscribe(&self) -> WakeupStream {
        self.0.subscribe().into()
    }
}
