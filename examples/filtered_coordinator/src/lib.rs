//! A coordinator without a server: it filters wakeups by the queues that each node polls.

use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use ratchet_core::Selection;
use ratchet_core::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use tokio::sync::broadcast;

/// A coordinator within one process. It sends a wakeup only to nodes that poll the queue of the
/// wakeup. It sends a wakeup without a queue to all nodes.
///
/// A coordinator between processes works in the same way: `notify` passes the wakeup to a task that
/// publishes it. In each process, a second task receives the published wakeups, filters them, and
/// sends them to the broadcast channel of the process.
#[derive(Clone, Debug)]
pub struct FilteredCoordinator {
    nodes: Arc<Mutex<Vec<Listener>>>,
    own: broadcast::Sender<Wakeup>,
}

/// A node that receives wakeups: the queues that it polls, and its broadcast channel.
#[derive(Debug)]
struct Listener {
    queues: Selection,
    wakeups: broadcast::Sender<Wakeup>,
}

impl FilteredCoordinator {
    /// Maximum number of wakeups that wait for one subscriber. If more wakeups arrive, some are
    /// lost, and the subscriber gets one wakeup for any queue instead.
    const CAPACITY: usize = 256;

    /// Returns the coordinator of the first node, which polls `queues`.
    #[must_use]
    pub fn new(queues: Selection) -> Self {
        Self::on(Arc::default(), queues)
    }

    /// Returns the coordinator of another node, which polls `queues`. Both coordinators send
    /// wakeups to each other's nodes.
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
