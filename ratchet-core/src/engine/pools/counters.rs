//! The data of a pool that all runs of its node share.

use std::sync::atomic::{AtomicU64, Ordering};

use super::partition::Share;
use crate::engine::stats::PoolStats;

/// Pool of a node: the jobs that the pool selects, and its totals over all runs of the node.
#[derive(Debug)]
pub(crate) struct NodePool {
    pub(crate) share: Share,
    pub(crate) counters: Counters,
}

impl NodePool {
    pub(crate) fn new(share: Share) -> Self {
        Self {
            share,
            counters: Counters::default(),
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats {
            name: self.share.name.clone(),
            concurrency: self.share.concurrency,
            claim_calls: Counters::read(&self.counters.claim_calls),
            claimed: Counters::read(&self.counters.claimed),
            settled: Counters::read(&self.counters.settled),
            finished: Counters::read(&self.counters.finished),
            stale: Counters::read(&self.counters.stale),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) claim_calls: AtomicU64,
    pub(crate) claimed: AtomicU64,
    pub(crate) settled: AtomicU64,
    pub(crate) finished: AtomicU64,
    pub(crate) stale: AtomicU64,
}

impl Counters {
    pub(crate) fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}
