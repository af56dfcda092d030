use async_trait::async_trait;

use super::{ClusterCoordinator, Wakeup, WakeupStream};

/// Carries no wakeups: nodes find each other's jobs by polling.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopCoordinator;

#[async_trait]
impl ClusterCoordinator for NoopCoordinator {
    async fn notify(&self, _wakeup: Wakeup) {}

    fn subscribe(&self) -> WakeupStream {
        WakeupStream::never()
    }
}
