//! Metrics of leadership and wakeups.

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

/// Counts one attempt of a candidate to become or remain the leader of this role, by its outcome.
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

/// The reason why a node ceased to be the leader.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepDown {
    /// The leader resigned.
    Resigned,
    /// The leader could not renew its lock in time.
    Fenced,
    /// Another owner holds the leader's lock.
    Superseded,
}

/// Creates the leadership metrics of this role with the value 0, for a candidate that does not lead
/// yet.
pub(crate) fn candidate(role: &Name) {
    LEADER.gauge([role.shared()]).increment(0.0);
    STEP_DOWNS.begin(&[role.shared()]);
}

/// Shows in the gauge [`LEADER`] that this process leads in a role. Dropping the value resets the
/// gauge.
pub(crate) struct LeaderAmount {
    role: Name,
    _leads: Amount,
}

impl LeaderAmount {
    /// Adds 1 to the gauge of leaders of this role, and sets the gauge of the current term.
    pub(crate) fn new(role: &Name, term: Fence) -> Self {
        let leads = Amount::new(LEADER.gauge([role.shared()]));
        leads.set(1);
        #[expect(clippy::cast_precision_loss, reason = "a gauge holds a float")]
        LEADER_TERM.gauge([role.shared()]).set(term.0 as f64);
        Self {
            role: role.clone(),
            _leads: leads,
        }
    }

    /// Counts the end of this process's leadership, by its reason.
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

/// The gauges for the backlog of one measured queue. Dropping the value resets them to 0.
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

/// Counts a write that the store refused because the leader's term was over. `write` names the
/// write.
pub(crate) fn stale_guarded_write(write: &'static str) {
    GUARDED_WRITES_STALE.counter([write.into()]).increment(1);
}

/// Counts a wakeup. `sent` is false if the coordinator did not accept the wakeup in time.
pub(crate) fn wakeup_sent(sent: bool) {
    let outcome = if sent { "sent" } else { "given_up" };
    WAKEUPS_SENT.counter([outcome.into()]).increment(1);
}

/// Counts a wakeup that made this pool's poller end its wait and poll.
pub(crate) fn wakeup_received(pool: &Name) {
    WAKEUPS_RECEIVED.counter([pool.shared()]).increment(1);
}

/// Counts wakeups that were lost, because they came faster than this process read them.
pub(crate) fn wakeup_lost(count: u64) {
    WAKEUPS_LOST.counter([]).increment(count);
}

/// Sets the gauge `ratchet_nothing_runs`, which shows whether jobs are due although no node is
/// live. The HTTP interface calls this function each time it has read the state of the cluster.
pub fn nothing_runs(nothing_runs: bool) {
    NOTHING_RUNS
        .gauge([])
        .set(f64::from(u8::from(nothing_runs)));
}

/// Counts one outage of a coordinator's transport. Implementations of
/// [`ClusterCoordinator`](crate::cluster::ClusterCoordinator) must call this function once per
/// outage.
pub fn coordinator_outage() {
    COORDINATOR_OUTAGES.counter([]).increment(1);
}
