//! Leadership and wakeups.

use std::time::Duration;

use super::catalog::{
    COORDINATOR_OUTAGES, ELECTION_TURNS, GUARDED_WRITES_STALE, LEADER, LEADER_TERM, NOTHING_RUNS,
    QUEUE_DUE, QUEUE_OLDEST_DUE, STEP_DOWNS, WAKEUPS_LOST, WAKEUPS_RECEIVED, WAKEUPS_SENT,
};
use super::record::Amount;
use crate::cluster::ElectionOutcome;
use crate::error::Result;
use crate::id::Fence;
use crate::name::Name;

/// A candidate made a turn in the election of this role.
pub(crate) fn election_turn(role: &Name, outcome: &Result<ElectionOutcome>) {
    let outcome = match outcome {
        Ok(ElectionOutcome::Elected(_)) => "elected",
        Ok(ElectionOutcome::AlreadyLeader(_)) => "renewed",
        Ok(ElectionOutcome::OtherLeader { .. }) => "other_leader",
        Ok(ElectionOutcome::Conflict) => "conflict",
        Err(_) => "failed",
    };
    let values = [role.shared(), outcome.into()];
    ELECTION_TURNS.counter(values).increment(1);
}

/// The reason why a leadership ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepDown {
    /// It was given up.
    Resigned,
    /// It could not be renewed in time.
    Fenced,
    /// Counts a lock that another owner turned out to hold.
    Superseded,
}

/// Notes a candidate for this role that does not lead yet.
pub(crate) fn candidate(role: &Name) {
    LEADER.gauge([role.shared()]).increment(0.0);
    STEP_DOWNS.begin(&[role.shared()]);
}

/// The leadership of this process in one role, as long as it lasts.
pub(crate) struct LeaderAmount {
    role: Name,
    _leads: Amount,
}

impl LeaderAmount {
    /// It begins with this term.
    pub(crate) fn new(role: &Name, term: Fence) -> Self {
        let leads = Amount::new(LEADER.gauge([role.shared()]));
        leads.set(1);
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        LEADER_TERM.gauge([role.shared()]).set(term.0 as f64);
        Self {
            role: role.clone(),
            _leads: leads,
        }
    }

    /// It ends for this reason.
    pub(crate) fn steps_down(self, why: StepDown) {
        let why = match why {
            StepDown::Resigned => "resigned",
            StepDown::Fenced => "fenced",
            StepDown::Superseded => "superseded",
        };
        let values = [self.role.shared(), why.into()];
        STEP_DOWNS.counter(values).increment(1);
    }
}

impl std::fmt::Debug for LeaderAmount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LeaderAmount").field(&self.role).finish()
    }
}

/// The backlog of one measured queue, as long as this process leads.
pub(crate) struct QueueMetrics {
    due: Amount,
    oldest: Amount,
}

impl QueueMetrics {
    pub(crate) fn new(queue: &Name) -> Self {
        Self {
            due: Amount::new(QUEUE_DUE.gauge([queue.shared()])),
            oldest: Amount::new(QUEUE_OLDEST_DUE.gauge([queue.shared()])),
        }
    }

    pub(crate) fn set(&self, due: u64, oldest: Duration) {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        self.due.set(size(due));
        self.oldest.set(size(oldest.as_secs()));
    }
}

/// The store refused what a leader wrote after its term.
pub(crate) fn stale_guarded_write(write: &'static str) {
    GUARDED_WRITES_STALE.counter([write.into()]).increment(1);
}

/// A hint was handed to the coordinator, unless that hung.
pub(crate) fn wakeup_sent(sent: bool) {
    let outcome = if sent { "sent" } else { "given_up" };
    WAKEUPS_SENT.counter([outcome.into()]).increment(1);
}

/// Counts a wakeup that ended the wait of this pool's poller.
pub(crate) fn wakeup_received(pool: &Name) {
    WAKEUPS_RECEIVED.counter([pool.shared()]).increment(1);
}

/// Counts wakeups that came faster than they were read.
pub(crate) fn wakeup_lost(count: u64) {
    WAKEUPS_LOST.counter([]).increment(count);
}

/// Sets the gauge `ratchet_nothing_runs`. The HTTP interface calls this after each reading of the
/// cluster.
pub fn nothing_runs(nothing_runs: bool) {
    NOTHING_RUNS
        .gauge([])
        .set(f64::from(u8::from(nothing_runs)));
}

/// Counts that a coordinator lost its transport: for the implementations of
/// [`ClusterCoordinator`](crate::cluster::ClusterCoordinator), which call this once for each
/// outage.
pub fn coordinator_outage() {
    COORDINATOR_OUTAGES.counter([]).increment(1);
}
