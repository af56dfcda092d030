use tokio::sync::Notify;

use crate::name::Name;
use crate::route::Selection;

/// What wakes the loops of a node from within its process: one bell for each poller, and one for the
/// loop that fires recurring definitions.
#[derive(Debug)]
pub(crate) struct Bells {
    pollers: Vec<(Selection, Notify)>,
    recurring: Notify,
}

impl Bells {
    /// Bells for pollers of these queues, in this order.
    pub(crate) fn new(queues: impl IntoIterator<Item = Selection>) -> Self {
        Self {
            pollers: queues.into_iter().map(|of| (of, Notify::new())).collect(),
            recurring: Notify::new(),
        }
    }

    /// Wakes the pollers of this queue; none: all.
    pub(crate) fn ring(&self, queue: Option<&Name>) {
        for (queues, bell) in &self.pollers {
            if queue.is_none_or(|queue| queues.contains(queue)) {
                bell.notify_one();
            }
        }
    }

    /// Waits until this poller is woken.
    pub(crate) async fn rung(&self, poller: usize) {
        self.pollers[poller].1.notified().await;
    }

    /// Says that slots of recurring definitions have changed.
    pub(crate) fn ring_recurring(&self) {
        self.recurring.notify_one();
    }

    /// Waits until slots of recurring definitions have changed.
    pub(crate) async fn rung_recurring(&self) {
        self.recurring.notified().await;
    }
}
