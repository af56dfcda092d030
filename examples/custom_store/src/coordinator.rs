use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use ratchet_core::Selection;
use ratchet_core::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use tokio::sync::broadcast;

/// Carries wakeups within a process, and gives each node only those for the queues that it polls.
///
/// A transport between processes looks the same: `notify` passes the hint to a task that publishes
/// it. A second task receives hints, filters them, and sends them to the broadcast channel of this
/// process.
#[derive(Clone, Debug)]
pub struct FilteredCoordinator {
    nodes: Arc<Mutex<Vec<Listener>>>,
    own: broadcast::Sender<Wakeup>,
}

/// A node on the transport, and the queues for which it wants wakeups.
#[derive(Debug)]
struct Listener {
    queues: Selection,
    wakeups: broadcast::Sender<Wakeup>,
}

impl FilteredCoordinator {
    /// How many wakeups a subscription may lag behind. Beyond that, one wakeup for any queue
    /// replaces them.
    const CAPACITY: usize = 256;

    /// Creates a transport whose first node polls these queues.
    #[must_use]
    pub fn new(queues: Selection) -> Self {
        Self::on(Arc::default(), queues)
    }

    /// Adds another node to the same transport, which polls these queues.
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
