use async_trait::async_trait;

use super::{ClusterCoordinator, Wakeup, WakeupStream};

/// A coordinator that carries no wakeups: nodes find new jobs by polling.
///
/// ```
/// use std::sync::Arc;
/// use ratchet::{MemoryStore, NoopCoordinator, Ratchet};
///
/// // Jobs are found by polling only.
/// let store = Arc::new(MemoryStore::new());
/// let client = Ratchet::client(store).with_coordinator(NoopCoordinator);
/// # drop(client);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopCoordinator;

#[async_trait]
impl ClusterCoordinator for NoopCoordinator {
    async fn notify(&self, _wakeup: Wakeup) {}

    fn subscribe(&self) -> WakeupStream {
        WakeupStream::never()
    }

    fn reaches_all_nodes(&self) -> bool {
        false
    }
}
