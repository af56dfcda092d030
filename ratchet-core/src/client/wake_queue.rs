use tokio::sync::Notify;

use crate::name::Name;
use crate::route::Selection;

/// Wakes the loops of a node from within its process: its pollers, and the loop that fires
/// recurring definitions. A wakeup that comes while a loop is busy is kept for it; several are kept
/// as one.
#[derive(Debug)]
pub(crate) struct WakeQueue {
    pollers: Vec<(Selection, Notify)>,
    recurring: Notify,
}

impl WakeQueue {
    /// Builds a queue for pollers of these queues, in this order.
    pub(crate) fn new(queues: impl IntoIterator<Item = Selection>) -> Self {
        Self {
            pollers: queues.into_iter().map(|of| (of, Notify::new())).collect(),
            recurring: Notify::new(),
        }
    }

    /// Wakes the pollers of this queue; `None` wakes all.
    pub(crate) fn wake(&self, queue: Option<&Name>) {
        for (queues, notify) in &self.pollers {
            if queue.is_none_or(|queue| queues.contains(queue)) {
                notify.notify_one();
            }
        }
    }

    /// Waits until this poller is woken.
    pub(crate) async fn woken(&self, poller: usize) {
        self.pollers[poller].1.notified().await;
    }

    /// Wakes the loop that fires recurring definitions: their slots have changed.
    pub(crate) fn wake_recurring(&self) {
        self.recurring.notify_one();
    }

    /// Waits until the loop that fires recurring definitions is woken.
    pub(crate) async fn recurring_woken(&self) {
        self.recurring.notified().await;
    }
}
