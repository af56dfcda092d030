//! The totals of a node since it was built. Its heartbeats report some of them, and its program can
//! read others.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::model::{Claim, NodeTotals, Outcome};
use crate::time::{millis_between, to_millis};

/// The counters of a node's work. They cover all runs of the node.
#[derive(Debug, Default)]
pub(super) struct Totals {
    begun: AtomicU64,
    waited_ms: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    retried: AtomicU64,
    /// The number of jobs that this node created for slots of recurring definitions.
    pub(super) fired: AtomicU64,
    pub(super) maintained: Maintained,
    /// How far the node's clock was ahead of the database's clock at the last heartbeat, in
    /// milliseconds.
    pub(super) clock_skew_millis: AtomicI64,
}

/// The numbers of rows that maintenance archived or deleted.
#[derive(Debug, Default)]
pub(super) struct Maintained {
    pub(super) deleted: AtomicU64,
    pub(super) archived: AtomicU64,
    pub(super) deleted_from_archive: AtomicU64,
    pub(super) batches: AtomicU64,
}

impl Totals {
    /// Counts a body that begins, and adds the time from the job's due time to its claim.
    pub(super) fn began(&self, claim: &Claim) {
        let waited = millis_between(to_millis(claim.run_at), to_millis(claim.token.claimed_at));
        let waited = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.waited_ms.fetch_add(waited, Ordering::Relaxed);
    }

    /// Counts a claim that ended with a success, a failure or a retry. Ignores all other outcomes.
    pub(super) fn ended(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Succeeded { .. } => &self.succeeded,
            Outcome::Failed { .. } => &self.failed,
            Outcome::Retry { .. } => &self.retried,
            Outcome::Snoozed { .. }
            | Outcome::Released
            | Outcome::Undelivered
            | Outcome::Cancelled
            | Outcome::Expired => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> NodeTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NodeTotals::new(
            read(&self.begun),
            read(&self.waited_ms),
            read(&self.succeeded),
            read(&self.failed),
            read(&self.retried),
        )
    }
}
