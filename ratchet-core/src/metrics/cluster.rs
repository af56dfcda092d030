//! Leadership and wakeups.

use super::catalog::{
    COORDINATOR_OUTAGES, ELECTION_TURNS, GUARDED_WRITES_STALE, LEADER, LEADER_TERM, STEP_DOWNS,
    WAKEUPS_LOST, WAKEUPS_RECEIVED, WAKEUPS_SENT,
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

/// Why a leadership ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepDown {
    /// It was given up.
    Resigned,
    /// It could not be renewed in time.
    Fenced,
    /// The lock turned out to be somebody else's.
    Superseded,
}

/// Somebody stands for this role, and does not lead yet.
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

/// The store refused what a leader wrote after its term.
pub(crate) fn stale_guarded_write(write: &'static str) {
    GUARDED_WRITES_STALE.counter([write.into()]).increment(1);
}

/// A hint was handed to the coordinator, unless that hung.
pub(crate) fn wakeup_sent(sent: bool) {
    let outcome = if sent { "sent" } else { "given_up" };
    WAKEUPS_SENT.counter([outcome.into()]).increment(1);
}

/// A hint of somebody else cut the wait of this pool's poller.
pub(crate) fn wakeup_received(pool: &Name) {
    WAKEUPS_RECEIVED.counter([pool.shared()]).increment(1);
}

/// So many hints came faster than they were taken.
pub(crate) fn wakeup_lost(count: u64) {
    WAKEUPS_LOST.counter([]).increment(count);
}

/// Counts that a coordinator lost its transport: for the implementations of
/// [`ClusterCoordinator`](crate::cluster::ClusterCoordinator), which call this once for each outage.
pub fn coordinator_outage() {
    COORDINATOR_OUTAGES.counter([]).increment(1);
}
