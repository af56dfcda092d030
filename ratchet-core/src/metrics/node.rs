//! Metrics of a node and of its work for the cluster.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::catalog::{
    BREAKER_CHANGES, BREAKERS_OPEN, CLAIMS_RECLAIMED, CLAIMS_UNDELIVERED, CLAIMS_UNHELD,
    CLOCK_SKEW, CLOCK_STEPS, DAEMON_FAILURES, DAEMON_STARTS, DATABASE_REWINDS, DRAIN, HEARTBEAT,
    HEARTBEATS, HOOK_PANICS, JOB_ACTIONS, JOBS_EXHAUSTED, JOBS_EXPIRED, LOOP_PANICS, MAINTENANCE,
    MAINTENANCE_ROWS, NODES, NODES_DIED, RATE_LIMIT_WAIT, RECLAIM, RECURRING_FIRED,
    RECURRING_LATENESS, RECURRING_MISSED, RECURRING_UNREADABLE, REPORTS, SIGNALS_EXPIRED,
    TAKEN_FOR_DEAD,
};
use super::record::Amount;
use crate::error::Result;
use crate::model::{
    Acted, ActionOutcome, NodeStatus, ReclaimReason, Reclaimed, RecurringFiring, Reported,
};
use crate::name::Name;
use crate::state::JobAction;
use crate::time::{Timestamp, millis_between, to_millis};

/// The metrics of one node during one run of the node.
pub(crate) struct NodeMetrics {
    /// The contribution of this node to the gauge [`NODES`], which counts nodes by status. `None`
    /// before the node joins.
    presence: Mutex<Option<Amount>>,
    unheld_claims: Amount,
}

impl NodeMetrics {
    /// Describes all metrics to the recorder, creates counters with the value 0, and returns the
    /// metrics of this run.
    pub(crate) fn new() -> Self {
        super::describe();
        super::begin();
        Self {
            presence: Mutex::default(),
            unheld_claims: Amount::new(CLAIMS_UNHELD.gauge([])),
        }
    }

    /// Sets the gauge of claims that the node does not hold although the store lists them for the
    /// node.
    pub(crate) fn unheld_claims(&self, claims: usize) {
        self.unheld_claims.set(claims);
    }

    /// Moves the node to this status in the gauge that counts nodes by status.
    pub(crate) fn status(&self, status: NodeStatus) {
        let name = match status {
            NodeStatus::Joining => "joining",
            NodeStatus::Active => "active",
            NodeStatus::Draining => "draining",
            NodeStatus::Left => "left",
            NodeStatus::Dead => "dead",
        };
        let amount = Amount::new(NODES.gauge([name.into()]));
        amount.set(usize::from(status.is_live()));
        // This drops the previous `Amount`, which removes the node from the gauge of its previous
        // status.
        *self.presence.lock().unwrap_or_else(PoisonError::into_inner) = Some(amount);
    }
}

/// Counts a heartbeat by its outcome, and records its duration. `came_through` is true if the
/// heartbeat succeeded.
pub(crate) fn heartbeat(took: Duration, came_through: bool) {
    let outcome = if came_through { "ok" } else { "failed" };
    HEARTBEATS.counter([outcome.into()]).increment(1);
    HEARTBEAT.histogram([]).record(took);
}

/// Sets the gauge of the clock skew. `milliseconds` is how far the node's clock is ahead of the
/// database's clock.
pub(crate) fn clock_skew(milliseconds: i64) {
    #[expect(clippy::cast_precision_loss, reason = "a gauge holds a float")]
    CLOCK_SKEW.gauge([]).set(milliseconds as f64 / 1_000.0);
}

/// Counts an event: this node found the database in an earlier state, such as after a restore.
pub(crate) fn database_rewound() {
    DATABASE_REWINDS.counter([]).increment(1);
}

/// Counts a jump of the database's clock, forward or back.
pub(crate) fn clock_stepped(forward: bool) {
    let direction = if forward { "forward" } else { "back" };
    CLOCK_STEPS.counter([direction.into()]).increment(1);
}

/// Counts an event: the cluster declared this node dead although it was running. `displaced` is
/// true if another node with the same label had replaced it.
pub(crate) fn taken_for_dead(displaced: bool) {
    let result = if displaced { "displaced" } else { "renewed" };
    TAKEN_FOR_DEAD.counter([result.into()]).increment(1);
}

/// Records the duration of a drain by its result: `clean`, `interrupted` or `abandoned`.
pub(crate) fn drained(result: &'static str, took: Duration) {
    DRAIN.histogram([result.into()]).record(took);
}

pub(crate) fn loop_panicked(name: &'static str) {
    LOOP_PANICS.counter([name.into()]).increment(1);
}

pub(crate) fn hook_panicked() {
    HOOK_PANICS.counter([]).increment(1);
}

/// Counts the reports of one call by their outcome. `sent` is the number of reports in the call.
pub(crate) fn reports(sent: usize, answers: &Result<Vec<Reported>>) {
    let (stale, failed) = match answers {
        Ok(answers) => {
            let stale = |answer: &&Reported| matches!(answer, Reported::Stale);
            (answers.iter().filter(stale).count(), 0)
        }
        Err(_) => (0, sent),
    };
    let applied = sent.saturating_sub(stale + failed);
    for (outcome, count) in [("applied", applied), ("stale", stale), ("failed", failed)] {
        if count > 0 {
            REPORTS.counter([outcome.into()]).increment(count as u64);
        }
    }
}

pub(crate) fn rate_limit_wait(kind: &Name, wait: Duration) {
    RATE_LIMIT_WAIT.histogram([kind.shared()]).record(wait);
}

/// Changes the number of nodes on which the circuit breaker of a kind is not closed.
pub(crate) fn breaker_open(kind: &Name, nodes: f64) {
    BREAKERS_OPEN.gauge([kind.shared()]).increment(nodes);
}

/// Counts a change of a circuit breaker: `opened`, `reopened` or `closed`.
pub(crate) fn breaker_changed(kind: &Name, change: &'static str) {
    let values = [kind.shared(), change.into()];
    BREAKER_CHANGES.counter(values).increment(1);
}

pub(crate) fn nodes_died(count: usize) {
    if count > 0 {
        NODES_DIED.counter([]).increment(count as u64);
    }
}

/// Counts claims that this node gave back because the store's reply with them never arrived.
pub(crate) fn claims_undelivered(count: usize) {
    CLAIMS_UNDELIVERED.counter([]).increment(count as u64);
}

/// Counts reclaimed claims by reason. Skips jobs that have used up their crash budget, because they
/// do not become pending again.
pub(crate) fn claims_reclaimed(reclaimed: &[Reclaimed]) {
    for lost in reclaimed.iter().filter(|lost| !lost.exhausted) {
        let reason = match lost.reason {
            ReclaimReason::OwnerLost => "owner_lost",
            ReclaimReason::OwnerLeft => "owner_left",
            ReclaimReason::NotStarted => "not_started",
            ReclaimReason::Stalled => "stalled",
            ReclaimReason::Overdue => "overdue",
        };
        CLAIMS_RECLAIMED.counter([reason.into()]).increment(1);
    }
}

/// Counts jobs that failed because they have used up their crash budget.
pub(crate) fn exhausted(jobs: usize) {
    if jobs > 0 {
        JOBS_EXHAUSTED.counter([]).increment(jobs as u64);
    }
}

pub(crate) fn signals_expired(jobs: usize) {
    if jobs > 0 {
        SIGNALS_EXPIRED.counter([]).increment(jobs as u64);
    }
}

pub(crate) fn jobs_expired(jobs: usize) {
    if jobs > 0 {
        JOBS_EXPIRED.counter([]).increment(jobs as u64);
    }
}

pub(crate) fn reclaim_pass(took: Duration) {
    RECLAIM.histogram([]).record(took);
}

/// The kinds of rows that maintenance deletes, archives or forgets.
#[derive(Clone, Copy)]
pub(crate) enum Rows {
    JobsDeleted,
    JobsArchived,
    ArchiveDeleted,
    BatchesDeleted,
    RatesForgotten,
    NodesForgotten,
}

pub(crate) fn maintenance_rows(what: Rows, count: u64) {
    if count > 0 {
        let what = match what {
            Rows::JobsDeleted => "jobs_deleted",
            Rows::JobsArchived => "jobs_archived",
            Rows::ArchiveDeleted => "archive_deleted",
            Rows::BatchesDeleted => "batches_deleted",
            Rows::RatesForgotten => "rates_forgotten",
            Rows::NodesForgotten => "nodes_forgotten",
        };
        MAINTENANCE_ROWS.counter([what.into()]).increment(count);
    }
}

pub(crate) fn maintained(took: Duration) {
    MAINTENANCE.histogram([]).record(took);
}

pub(crate) fn daemon_started(role: &Name) {
    DAEMON_STARTS.counter([role.shared()]).increment(1);
    DAEMON_FAILURES.begin(&[role.shared()]);
}

pub(crate) fn daemon_failed(role: &Name) {
    DAEMON_FAILURES.counter([role.shared()]).increment(1);
}

/// Counts a firing: the slots for which it created jobs, the slots that it skipped, and whether
/// slots were missed.
pub(crate) fn fired(firing: &RecurringFiring, created: usize, skipped: usize) {
    for (outcome, count) in [("created", created), ("skipped", skipped)] {
        if count > 0 {
            RECURRING_FIRED
                .counter([outcome.into()])
                .increment(count as u64);
        }
    }
    if firing.missed {
        RECURRING_MISSED.counter([]).increment(1);
    }
}

/// Records, for each slot of a firing, the time from the slot until `now`.
pub(crate) fn late(firing: &RecurringFiring, now: Timestamp) {
    let lateness = RECURRING_LATENESS.histogram([]);
    for slot in firing.jobs.iter().filter_map(|job| job.id().slot()) {
        lateness.record(millis_between(to_millis(slot), to_millis(now)));
    }
}

/// Counts a firing without effect, because another process had changed or fired the definition
/// first.
pub(crate) fn not_fired() {
    RECURRING_FIRED.counter(["stale".into()]).increment(1);
}

pub(crate) fn unreadable_definitions(count: usize) {
    if count > 0 {
        RECURRING_UNREADABLE.counter([]).increment(count as u64);
    }
}

/// Counts the jobs to which a client applied an action, by action and outcome.
pub(crate) fn acted(action: JobAction, acted: &[Acted]) {
    let action = match action {
        JobAction::Cancel => "cancel",
        JobAction::Requeue => "requeue",
        JobAction::Pause => "pause",
        JobAction::Resume => "resume",
        JobAction::Reschedule(_) => "reschedule",
        JobAction::SetPriority(_) => "set_priority",
        JobAction::Delete => "delete",
    };
    for one in acted {
        let outcome = match one.outcome {
            ActionOutcome::Became(_) => "became",
            ActionOutcome::CancelRequested => "cancel_requested",
            ActionOutcome::Changed => "changed",
            ActionOutcome::Deleted => "deleted",
            ActionOutcome::KeyTaken(_) => "key_taken",
            ActionOutcome::Refused(_) => "refused",
            ActionOutcome::NotFound => "not_found",
        };
        let values = [action.into(), outcome.into()];
        JOB_ACTIONS.counter(values).increment(1);
    }
}
