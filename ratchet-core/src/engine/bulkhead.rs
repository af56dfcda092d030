use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::partition::Share;
use super::ready::ReadyQueue;
use super::shared::{Counters, Shared};
use super::throttle::Throttles;
use crate::metrics::PoolMetrics;

/// One pool during one run: its claims and the room for more. What its size is and which jobs it
/// takes stands in its [`Share`].
pub(super) struct Bulkhead {
    /// Its place among the pools of the node.
    pub(super) index: usize,
    pub(super) ready: ReadyQueue,
    /// Claims it has, or has asked for, and has not settled.
    held: AtomicUsize,
    /// The poller is told of room when no more than this many claims are held.
    pub(super) refill_at: AtomicUsize,
    pub(super) room: Notify,
    pub(super) throttles: Throttles,
    pub(super) metrics: PoolMetrics,
}

impl Bulkhead {
    pub(super) fn new(index: usize, share: &Share) -> Self {
        Self {
            index,
            ready: ReadyQueue::new(),
            held: AtomicUsize::new(0),
            refill_at: AtomicUsize::new(0),
            room: Notify::new(),
            throttles: Throttles::default(),
            metrics: PoolMetrics::new(&share.name, &share.kinds),
        }
    }

    pub(super) fn share<'a>(&self, shared: &'a Shared) -> &'a Share {
        &shared.pools[self.index].share
    }

    pub(super) fn counters<'a>(&self, shared: &'a Shared) -> &'a Counters {
        &shared.pools[self.index].counters
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    pub(super) fn hold(&self, claims: usize) {
        self.held.fetch_add(claims, Ordering::SeqCst);
    }

    /// Forgets claims that were settled, handed back or lost.
    pub(super) fn let_go(&self, claims: usize) {
        let held = self.held.fetch_sub(claims, Ordering::SeqCst) - claims;
        if held <= self.refill_at.load(Ordering::SeqCst) {
            self.room.notify_one();
        }
    }
}
