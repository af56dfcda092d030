use tokio::sync::Notify;

use crate::name::Name;
use crate::route::Selection;

/// What wakes the pollers of a node from within its process: one bell each.
#[derive(Debug)]
pub(crate) struct Bells(Vec<(Selection, Notify)>);

impl Bells {
    /// Bells for pollers of these queues, in this order.
    pub(crate) fn new(queues: impl IntoIterator<Item = Selection>) -> Self {
        Self(queues.into_iter().map(|of| (of, Notify::new())).collect())
    }

    /// Wakes the pollers of this queue; none: all.
    pub(crate) fn ring(&self, queue: Option<&Name>) {
        for (queues, bell) in &self.0 {
            if queue.is_none_or(|queue| queues.contains(queue)) {
                bell.notify_one();
            }
        }
    }

    /// Waits until this poller is woken.
    pub(crate) async fn rung(&self, poller: usize) {
        self.0[poller].1.notified().await;
    }
}
