use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use ratchet_core::Selection;
use ratchet_core::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use tokio::sync::broadcast;

/// Carries wakeups within a process, and gives each node only those about the queues it polls.
///
/// A transport between processes looks the same: `notify` hands the hint to a task that publishes
/// it, a second task receives, filters, and sends into the broadcast of this process.
#[derive(Clone, Debug)]
pub struct FilteredCoordinator {
    nodes: Arc<Mutex<Vec<Listener>>>,
    own: broadcast::Sender<Wakeup>,
}

/// A node on the transport, and what it wants to hear of.
#[derive(Debug)]
struct Listener {
    queues: Selection,
    wakeups: broadcast::Sender<Wakeup>,
}

impl FilteredCoordinator {
    /// How many wakeups a subscription may lag before they are replaced by one about any queue.
    const CAPACITY: usize = 256;

    /// A transport whose first node polls these queues.
    #[must_use]
    pub fn new(queues: Selection) -> Self {
        Self::on(Arc::default(), queues)
    }

    /// Another node on the same transport, which polls these queues.
    #[must_use]
    pub fn join(&self, queues: Selection) -> Self {
        Self::on(Arc::clone(&self.nodes), queues)
    }

    fn on(nodes: Arc<Mutex<Vec<Listener>>>, queues: Selection) -> Self {
        let own = broadcast::Sender::new(Self::CAPACITY);
        let wakeups = own.clone();
        let joined = Self { nodes, own };
        joined.lock().push(Listener { queues, wakeups });
        joined
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.nodes
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

#[async_trait]
impl ClusterCoordinator for FilteredCoordinator {
    async fn notify(&self, wakeup: Wakeup) {
        let wanted = |listener: &&Listener| {
            let queue = wakeup.queue.as_ref();
            queue.is_none_or(|queue| listener.queues.contains(queue))
        };
        for listener in self.lock().iter().filter(wanted) {
            // An error only means that there are no subscribers.
            let _ = listener.wakeups.send(wakeup.clone());
        }
    }

    fn subscribe(&self) -> WakeupStream {
        self.own.subscribe().into()
    }

    fn reaches_all_nodes(&self) -> bool {
        true
    }
}
