use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::counters::{Counters, NodePool};
use super::partition::Share;
use super::ready::ReadyQueue;
use super::throttle::Throttles;
use crate::metrics::PoolMetrics;
use crate::model::PoolProfile;
use crate::name::Name;
use crate::route::Selection;

/// Pool of a node during one run, with the claims that the pool holds. The [`Share`] of the pool
/// contains its size and the jobs that it selects.
pub(crate) struct RunPool {
    /// Index of this pool among the pools of the node.
    pub(crate) index: usize,
    pool: Arc<NodePool>,
    pub(crate) ready: ReadyQueue,
    /// Number of claims that the pool has requested or received, and that are not settled yet.
    held: AtomicUsize,
    /// Largest number of held claims at which the poller is woken to claim more jobs.
    pub(crate) refill_at: AtomicUsize,
    pub(crate) room: Notify,
    pub(crate) throttles: Throttles,
    pub(crate) metrics: PoolMetrics,
}

impl RunPool {
    pub(crate) fn new(index: usize, pool: &Arc<NodePool>) -> Self {
        Self {
            index,
            pool: Arc::clone(pool),
            ready: ReadyQueue::new(),
            held: AtomicUsize::new(0),
            refill_at: AtomicUsize::new(0),
            room: Notify::new(),
            throttles: Throttles::default(),
            metrics: PoolMetrics::new(&pool.share.name, &pool.share.kinds),
        }
    }

    pub(crate) fn share(&self) -> &Share {
        &self.pool.share
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.pool.counters
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Describes the jobs that this pool selects, and its slots, for the heartbeat. `kinds` are all
    /// kinds that the node runs.
    pub(crate) fn profile(&self, kinds: &[Name]) -> PoolProfile {
        let share = self.share();
        let count = |slots: usize| u32::try_from(slots).unwrap_or(u32::MAX);
        let free = share.concurrency.saturating_sub(self.held());
        let mut profile = PoolProfile::new(count(share.concurrency), count(free));
        profile.queues = share.queues.clone();
        if share.kinds != kinds {
            profile.kinds = Selection::Only(share.kinds.clone());
        }
        profile.capabilities.clone_from(&share.capabilities);
        profile.untagged = share.untagged;
        profile
    }

    pub(crate) fn hold(&self, claims: usize) {
        self.held.fetch_add(claims, Ordering::SeqCst);
    }

    /// Subtracts claims that were settled, handed back or lost from the held claims. Wakes the
    /// poller if at most [`Self::refill_at`] claims are left.
    pub(crate) fn let_go(&self, claims: usize) {
        let held = self.held.fetch_sub(claims, Ordering::SeqCst) - claims;
        if held <= self.refill_at.load(Ordering::SeqCst) {
            self.room.notify_one();
        }
    }
}
