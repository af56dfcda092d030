//! Reclaiming: taking back claims whose node or body has stopped.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{StoreError, StoreErrorKind};
use crate::id::ClaimToken;
use crate::limits;
use crate::model::{ClockTrust, NodeRecord, NodeStatus};
use crate::state::JobState;
use crate::time::duration_millis;

/// A request to reclaim lost claims: claims whose node or body has stopped. All durations are
/// measured on the database's clock.
///
/// ```
/// use ratchet_core::model::{HeldClaim, Owner, ReclaimReason, ReclaimRequest};
///
/// let request = ReclaimRequest::new(); // a node is dead after 15 s
/// let claim = HeldClaim {
///     owner: Owner::Unknown { registry_since: None },
///     claimed_at: Some(0),
///     last_report: Some(0),
/// #     timeout: None,
/// #     stall_timeout: None,
///     crash_count: Some(0),
///     // …
/// #     cancel_requested: false,
/// };
/// assert_eq!(request.judge(&claim, 10_000), None);
/// let lost = request.judge(&claim, 20_000).map(|effect| effect.reason);
/// assert_eq!(lost, Some(ReclaimReason::OwnerLost));
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReclaimRequest {
    /// The minimum time without a heartbeat after which a node counts as dead; see
    /// [`NodeRecord::is_silent`](super::NodeRecord::is_silent).
    ///
    /// The node of a claim may have no stored record. Its claim is then lost if both the claim and
    /// the earliest start time of all recorded nodes are older than `dead_after`.
    pub dead_after: Duration,
    /// The maximum time from a claim until its body begins. After this time, the claim is
    /// reclaimed.
    pub start_timeout: Duration,
    /// How far a body may exceed its job's timeout before the claim is reclaimed. Usually, the node
    /// stops the body at the timeout, and no reclaim is necessary.
    ///
    /// A claim is overdue when its age exceeds the sum of `start_timeout`, the job's timeout and
    /// `overdue_after`.
    pub overdue_after: Duration,
    /// The number of crashes that a job survives. With 3, the fourth crash makes the job a dead
    /// letter.
    pub max_crashes: u32,
    /// The maximum number of claims to reclaim in one pass; at least 1.
    pub limit: usize,
    /// Whether a live node can lose claims because the claims are too old or because the node is
    /// silent.
    ///
    /// Pass `false` after an outage of the database or a step of its clock: ages and silence then
    /// prove nothing. The pass then reclaims only the claims of nodes that are recorded as dead or
    /// left, and claims without an owner.
    pub silence_counts: bool,
    /// The known steps (sudden changes) of the database's clock. The pass corrects ages by these
    /// steps.
    pub clock: ClockTrust,
}

impl ReclaimRequest {
    /// Creates a request with the default values: `dead_after` is 15 s, `start_timeout` is 5 min,
    /// `overdue_after` is 30 s, `max_crashes` is 3, and `limit` is 500.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            dead_after: NodeRecord::DEAD_AFTER,
            start_timeout: Duration::from_secs(300),
            overdue_after: Duration::from_secs(30),
            max_crashes: 3,
            limit: 500,
            silence_counts: true,
            clock: ClockTrust::FULL,
        }
    }

    /// Sets [`dead_after`](Self::dead_after).
    #[must_use]
    pub const fn dead_after(mut self, duration: Duration) -> Self {
        self.dead_after = duration;
        self
    }

    /// Sets [`start_timeout`](Self::start_timeout).
    #[must_use]
    pub const fn start_timeout(mut self, duration: Duration) -> Self {
        self.start_timeout = duration;
        self
    }

    /// Sets [`overdue_after`](Self::overdue_after).
    #[must_use]
    pub const fn overdue_after(mut self, duration: Duration) -> Self {
        self.overdue_after = duration;
        self
    }

    /// Sets [`max_crashes`](Self::max_crashes).
    #[must_use]
    pub const fn max_crashes(mut self, crashes: u32) -> Self {
        self.max_crashes = crashes;
        self
    }

    /// Sets [`limit`](Self::limit).
    #[must_use]
    pub const fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets [`silence_counts`](Self::silence_counts).
    #[must_use]
    pub const fn silence_counts(mut self, counts: bool) -> Self {
        self.silence_counts = counts;
        self
    }

    /// Sets [`clock`](Self::clock).
    #[must_use]
    pub fn clock(mut self, clock: ClockTrust) -> Self {
        self.clock = clock;
        self
    }

    /// Decides whether the pass reclaims the claim of a running job at `now`, in milliseconds since
    /// 1970. Returns the effect on the job; `None` if the owner keeps the claim.
    #[must_use]
    pub fn judge(&self, claim: &HeldClaim<'_>, now: i64) -> Option<ReclaimEffect> {
        let reason = self.lost(claim, now)?;
        Some(self.effect(claim, reason))
    }

    fn lost(&self, claim: &HeldClaim<'_>, now: i64) -> Option<ReclaimReason> {
        let passed = |since: i64, wait: Duration| {
            since.saturating_add(duration_millis(wait)) < self.clock.now_for(since, now)
        };
        let claimed_at = claim.claimed_at.unwrap_or(now);
        let owner_lost = match claim.owner {
            Owner::Nobody => true,
            Owner::Known(node) if !node.status.is_live() => true,
            _ if !self.silence_counts || !self.clock.allows(now) => return None,
            Owner::Unknown { registry_since } => {
                // If the store lost all node records, every live node sends a heartbeat within this
                // time, which records the node again.
                let since = registry_since.map_or(claimed_at, |at| at.max(claimed_at));
                passed(since, self.dead_after)
            }
            Owner::Known(node) => node.is_silent_by(self.dead_after, &self.clock, now),
        };
        if owner_lost {
            let said_so = matches!(claim.owner, Owner::Known(node)
                if node.status.when_lost() == NodeStatus::Left);
            return Some(match said_so {
                true => ReclaimReason::OwnerLeft,
                false => ReclaimReason::OwnerLost,
            });
        }
        let Some(last_report) = claim.last_report else {
            let waited_out = passed(claimed_at, self.start_timeout);
            return waited_out.then_some(ReclaimReason::NotStarted);
        };
        let stalled = claim
            .stall_timeout
            .is_some_and(|stall| passed(last_report, stall));
        if stalled {
            return Some(ReclaimReason::Stalled);
        }
        let patience = claim.timeout?.saturating_add(self.overdue_after);
        passed(claimed_at, patience.saturating_add(self.start_timeout))
            .then_some(ReclaimReason::Overdue)
    }

    /// Computes the effect of reclaiming a lost claim.
    ///
    /// A claim without an owner belongs to a job whose crash budget was used up in an earlier pass.
    /// The budget stays used up and the crash count stays the same, even if this pass allows more
    /// crashes.
    ///
    /// A loss can count as a crash only if [`ReclaimReason::is_crash`] returns true for `reason`.
    /// The first such loss of a job always counts. Later losses count only if the body had begun.
    /// Before the engine runs the body of a job with an earlier crash, it reports that the body
    /// begins. So without a report, the body did not begin, and the job cannot have crashed the
    /// node.
    fn effect(&self, claim: &HeldClaim<'_>, reason: ReclaimReason) -> ReclaimEffect {
        let beyond_budget = |count| count > self.max_crashes;
        // A job whose crash budget is used up does not run any more: it only waits to be settled.
        // So another loss of its claim is not a crash.
        let given_up =
            matches!(claim.owner, Owner::Nobody) || claim.crash_count.is_none_or(beyond_budget);
        let before = claim.crash_count.unwrap_or(u32::MAX);
        let reported = claim.last_report.is_some();
        let crashed = reason.is_crash() && !given_up && (reported || before == 0);
        let crash_count = before.saturating_add(crashed.into());
        let exhausted = given_up || beyond_budget(crash_count);
        // No later pass could read an unreadable crash count either. So the job ends now, whatever
        // the reason for the loss.
        let counts = reason.is_crash() || claim.crash_count.is_none();
        let state = if counts && exhausted {
            JobState::Running
        } else if claim.cancel_requested {
            JobState::Cancelled
        } else {
            JobState::Pending
        };
        ReclaimEffect {
            reason,
            crash_count,
            state,
        }
    }

    /// Checks that the limit is from 1 to [`limits::MAX_BATCH`].
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] if the limit is 0 or too large.
    pub fn validate(&self) -> Result<(), StoreError> {
        limits::check_limit("limit", self.limit).map_err(|problem| {
            StoreError::new(StoreErrorKind::Invalid, "reclaim").with_source(problem)
        })
    }
}

impl Default for ReclaimRequest {
    fn default() -> Self {
        Self::new()
    }
}

/// The claim of a running job, as the input of [`ReclaimRequest::judge`]. Times are in milliseconds
/// since 1970.
///
/// See [`ReclaimRequest`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct HeldClaim<'a> {
    /// The owner of the claim.
    pub owner: Owner<'a>,
    /// When the claim was made. `None` if the store does not know this time. Such a claim never
    /// counts as too old.
    pub claimed_at: Option<i64>,
    /// When the body last sent a report; `None` if no report has arrived. The body then counts as
    /// not begun.
    pub last_report: Option<i64>,
    /// The timeout of the job; `None` if the job has no timeout or the store cannot read the
    /// timeout.
    pub timeout: Option<Duration>,
    /// The stall timeout of the job; `None` if the job has no stall timeout or the store cannot
    /// read this timeout.
    pub stall_timeout: Option<Duration>,
    /// The crash count of the job before this pass. `None` if the store cannot read the count. The
    /// crash budget then counts as used up, and the job becomes a dead letter.
    pub crash_count: Option<u32>,
    /// Whether the job's cancellation was requested.
    pub cancel_requested: bool,
}

/// The owner of a claim.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// No owner. An earlier pass took the claim away from its node, because the job's crash budget
    /// was used up.
    Nobody,
    /// A node of which the store has no readable record.
    Unknown {
        /// The earliest start time of all recorded nodes, in milliseconds since 1970; `None` if no
        /// node is recorded.
        registry_since: Option<i64>,
    },
    /// A node with this record.
    Known(&'a NodeRecord),
}

/// The effect of reclaiming a claim on its job; see [`ReclaimRequest::judge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimEffect {
    /// Why the claim is reclaimed.
    pub reason: ReclaimReason,
    /// The new crash count of the job.
    pub crash_count: u32,
    /// The new state of the job. `Running` means that the crash budget is used up. The claim then
    /// loses its owner and must be settled as failed.
    pub state: JobState,
}

impl ReclaimEffect {
    /// Returns whether the crash budget of the job is used up.
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        matches!(self.state, JobState::Running)
    }

    /// Creates the result of the pass for the claim whose token is `lost`.
    #[must_use]
    pub const fn reclaimed(&self, lost: ClaimToken) -> Reclaimed {
        Reclaimed::new(lost, self.reason, self.crash_count, self.is_exhausted())
    }
}

/// The reason why a claim was reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum ReclaimReason {
    /// The node is dead, has no record any more, or was replaced by a new node with the same label.
    /// The node was not draining. Counts as a crash.
    OwnerLost,
    /// The node was draining or has left, and did not give the claim back. This is not a crash,
    /// because the node ended on request and not because of the job.
    OwnerLeft,
    /// The body did not begin in time. This is not a crash.
    NotStarted,
    /// The body sent no report within the job's stall timeout. Counts as a crash.
    Stalled,
    /// The body ran far beyond the job's timeout; see [`ReclaimRequest::overdue_after`]. Counts as
    /// a crash.
    Overdue,
}

impl ReclaimReason {
    /// Returns whether the loss of a claim for this reason counts as a crash of its job.
    #[must_use]
    pub const fn is_crash(self) -> bool {
        !matches!(self, Self::OwnerLeft | Self::NotStarted)
    }
}

/// A claim that a pass has reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reclaimed {
    /// The token of the lost claim. If [`exhausted`](Self::exhausted) is true, the token names no
    /// node.
    pub token: ClaimToken,
    /// Why the claim was reclaimed.
    pub reason: ReclaimReason,
    /// The crash count of the job after this loss.
    pub crash_count: u32,
    /// Whether the crash budget of the job is used up.
    ///
    /// If false, the token is stale. The job is pending again, or cancelled if its cancellation was
    /// requested.
    ///
    /// If true, the job stays running without an owner, and only this token is valid. The caller
    /// must settle the claim as failed. Until then, every pass returns this claim again.
    pub exhausted: bool,
}

impl Reclaimed {
    /// Creates the result for a reclaimed claim whose token was `lost`.
    #[must_use]
    pub const fn new(
        lost: ClaimToken,
        reason: ReclaimReason,
        crash_count: u32,
        exhausted: bool,
    ) -> Self {
        let token = if exhausted { lost.disowned() } else { lost };
        Self {
            token,
            reason,
            crash_count,
            exhausted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{JobId, NodeId};
    use crate::model::Heartbeat;
    use crate::name::Name;
    use crate::time::from_millis;

    const SECOND: Duration = Duration::from_secs(1);
    const UNKNOWN: Owner<'static> = Owner::Unknown {
        registry_since: None,
    };

    fn claim<'a>(owner: Owner<'a>, last_report: Option<i64>) -> HeldClaim<'a> {
        HeldClaim {
            owner,
            claimed_at: Some(0),
            last_report,
            timeout: None,
            stall_timeout: None,
            crash_count: Some(0),
            cancel_requested: false,
        }
    }

    fn node(status: NodeStatus, last_seen: i64) -> NodeRecord {
        let label = Name::new("label", "n").unwrap();
        let beat = Heartbeat::new(NodeId::new(), label, status, SECOND);
        NodeRecord::joined(&beat, from_millis(last_seen))
    }

    #[test]
    fn only_claims_that_no_node_works_on_are_lost() {
        let request = ReclaimRequest::new();
        let (alive, left) = (
            node(NodeStatus::Active, 900_000),
            node(NodeStatus::Left, 900_000),
        );
        let silent = node(NodeStatus::Active, 884_999);
        let lost = |owner, report| request.lost(&claim(owner, report), 900_000);
        assert_eq!(lost(Owner::Known(&alive), Some(1)), None);
        assert_eq!(
            lost(Owner::Known(&alive), None),
            Some(ReclaimReason::NotStarted)
        );
        for owner in [Owner::Nobody, UNKNOWN, Owner::Known(&silent)] {
            assert_eq!(
                lost(owner, Some(1)),
                Some(ReclaimReason::OwnerLost),
                "{owner:?}"
            );
        }
        let drained = node(NodeStatus::Draining, 884_999);
        for owner in [&left, &drained] {
            let reason = lost(Owner::Known(owner), Some(1));
            assert_eq!(reason, Some(ReclaimReason::OwnerLeft), "{owner:?}");
        }
        assert_eq!(request.lost(&claim(UNKNOWN, None), 15_000), None);
    }

    #[test]
    fn a_registry_that_is_new_says_nothing_about_who_is_missing_in_it() {
        let request = ReclaimRequest::new();
        let unknown = |since| Owner::Unknown {
            registry_since: Some(since),
        };
        let lost = |since| request.lost(&claim(unknown(since), Some(1)), 900_000);
        assert_eq!(lost(885_000), None);
        assert_eq!(lost(884_999), Some(ReclaimReason::OwnerLost));
        // The oldest node record is older than `dead_after`, but the claim is not.
        assert_eq!(
            request.lost(&claim(unknown(-900_000), Some(1)), 15_000),
            None
        );
    }

    #[test]
    fn after_an_outage_only_those_who_said_so_are_gone() {
        let request = ReclaimRequest::new().silence_counts(false);
        let silent = node(NodeStatus::Active, 0);
        let dead = node(NodeStatus::Dead, 0);
        let lost = |owner| {
            let mut held = claim(owner, Some(1));
            held.stall_timeout = Some(SECOND);
            request.lost(&held, 900_000)
        };
        assert_eq!(lost(Owner::Known(&silent)), None);
        assert_eq!(lost(UNKNOWN), None);
        assert_eq!(lost(Owner::Known(&dead)), Some(ReclaimReason::OwnerLost));
        assert_eq!(lost(Owner::Nobody), Some(ReclaimReason::OwnerLost));
    }

    #[test]
    fn without_silence_no_claim_of_a_live_node_is_too_old() {
        let request = ReclaimRequest::new().silence_counts(false);
        let alive = node(NodeStatus::Active, 900_000);
        let mut held = claim(Owner::Known(&alive), None);
        assert_eq!(request.lost(&held, 900_000), None);
        held.last_report = Some(1);
        held.timeout = Some(SECOND);
        assert_eq!(request.lost(&held, 900_000), None);
    }

    #[test]
    fn a_step_of_the_clock_ages_nothing() {
        // The clock stepped from 10 s to 910 s, and 5 s have passed since.
        let trust = ClockTrust::FULL.stepped(from_millis(10_000), 900 * SECOND);
        let request = ReclaimRequest::new().clock(trust);
        let (resting, alive) = (
            node(NodeStatus::Active, 1_000),
            node(NodeStatus::Active, 960_000),
        );
        let lost = |held: &HeldClaim<'_>, now| request.lost(held, now);
        for owner in [Owner::Known(&resting), Owner::Known(&alive), UNKNOWN] {
            assert_eq!(lost(&claim(owner, None), 915_000), None, "{owner:?}");
        }
        let mut held = claim(Owner::Known(&alive), Some(1_000));
        held.stall_timeout = Some(60 * SECOND);
        assert_eq!(lost(&held, 915_000), None);
        assert_eq!(
            lost(&held, 961_000),
            None,
            "expected no loss, because the step was no real \
             time: 60 s are not yet over"
        );
        held.stall_timeout = None;
        held.timeout = Some(60 * SECOND);
        assert_eq!(lost(&held, 915_000), None);
        // A node that stopped before the step is declared dead at the same time as without the
        // step.
        let silent = Some(ReclaimReason::OwnerLost);
        assert_eq!(lost(&claim(Owner::Known(&resting), None), 916_000), None);
        assert_eq!(lost(&claim(Owner::Known(&resting), None), 916_001), silent);
    }

    #[test]
    fn a_pass_at_a_time_that_no_steady_clock_shows_takes_nothing_of_a_live_node() {
        let trust = ClockTrust::FULL.until(from_millis(899_999));
        let request = ReclaimRequest::new().clock(trust);
        let (silent, dead) = (node(NodeStatus::Active, 0), node(NodeStatus::Dead, 0));
        let lost = |owner| request.lost(&claim(owner, None), 900_000);
        assert_eq!(lost(Owner::Known(&silent)), None);
        assert_eq!(lost(UNKNOWN), None);
        assert_eq!(lost(Owner::Known(&dead)), Some(ReclaimReason::OwnerLost));
    }

    #[test]
    fn stalls_and_overruns_are_the_job_s_own_choice() {
        let request = ReclaimRequest::new();
        let alive = node(NodeStatus::Active, 400_000);
        let mut held = claim(Owner::Known(&alive), Some(390_000));
        held.stall_timeout = Some(10 * SECOND);
        assert_eq!(request.lost(&held, 400_000), None);
        assert_eq!(request.lost(&held, 400_001), Some(ReclaimReason::Stalled));
        held.stall_timeout = None;
        held.timeout = Some(70 * SECOND);
        assert_eq!(request.lost(&held, 400_000), None);
        assert_eq!(request.lost(&held, 400_001), Some(ReclaimReason::Overdue));
    }

    #[test]
    fn crashes_are_counted_up_to_the_budget_and_once_beyond() {
        let request = ReclaimRequest::new().max_crashes(2);
        let mut held = claim(UNKNOWN, Some(1));
        let counts = [0, 1, 2, 3, 4].map(|count| {
            held.crash_count = Some(count);
            let effect = request.judge(&held, 900_000).unwrap();
            (effect.crash_count, effect.is_exhausted())
        });
        assert_eq!(
            counts,
            [(1, false), (2, false), (3, true), (3, true), (4, true)]
        );
        held.crash_count = Some(0);
        held.cancel_requested = true;
        let cancelled = request.judge(&held, 900_000).unwrap();
        assert_eq!(cancelled.state, JobState::Cancelled);
        let alive = node(NodeStatus::Active, 900_000);
        let mut free = claim(Owner::Known(&alive), None);
        free.crash_count = Some(2);
        let free = request.judge(&free, 900_000).unwrap();
        assert_eq!(free.reason, ReclaimReason::NotStarted);
        assert_eq!((free.crash_count, free.state), (2, JobState::Pending));
    }

    #[test]
    fn a_count_that_cannot_be_read_is_beyond_every_budget() {
        for max_crashes in [0, 3, u32::MAX] {
            let request = ReclaimRequest::new().max_crashes(max_crashes);
            let mut held = claim(UNKNOWN, Some(1));
            held.crash_count = None;
            let effect = request.judge(&held, 900_000).unwrap();
            assert!(effect.is_exhausted(), "{max_crashes}");
            let alive = node(NodeStatus::Active, 900_000);
            let mut not_begun = claim(Owner::Known(&alive), None);
            not_begun.crash_count = None;
            let effect = request.judge(&not_begun, 900_000).unwrap();
            assert_eq!(effect.reason, ReclaimReason::NotStarted);
            assert!(effect.is_exhausted(), "{max_crashes}");
            held.crash_count = Some(u32::MAX);
            let effect = request.judge(&held, 900_000).unwrap();
            assert_eq!(effect.crash_count, u32::MAX, "{max_crashes}");
        }
    }

    #[test]
    fn a_claim_without_a_time_has_no_age() {
        let request = ReclaimRequest::new();
        let alive = node(NodeStatus::Active, 900_000);
        for owner in [UNKNOWN, Owner::Known(&alive)] {
            let mut held = claim(owner, None);
            held.claimed_at = None;
            assert_eq!(request.judge(&held, 900_000), None, "{owner:?}");
        }
    }

    #[test]
    fn a_claim_that_was_given_up_stays_so_and_is_not_counted_again() {
        let request = ReclaimRequest::new().max_crashes(5);
        let mut held = claim(Owner::Nobody, Some(1));
        held.crash_count = Some(3);
        held.cancel_requested = true;
        let effect = request.judge(&held, 900_000).unwrap();
        assert_eq!((effect.crash_count, effect.is_exhausted()), (3, true));
        let token = ClaimToken::new(JobId::new(), 7, Some(NodeId::new()), from_millis(0));
        let expected = Reclaimed::new(token, ReclaimReason::OwnerLost, 3, true);
        assert_eq!(effect.reclaimed(token), expected);
    }

    #[test]
    fn a_suspect_that_had_not_begun_is_innocent() {
        let request = ReclaimRequest::new();
        let count = |crashes, last_report| {
            let mut held = claim(UNKNOWN, last_report);
            held.crash_count = Some(crashes);
            request.judge(&held, 900_000).unwrap().crash_count
        };
        assert_eq!((count(0, None), count(0, Some(1))), (1, 1));
        assert_eq!((count(1, None), count(1, Some(1))), (1, 2));
    }
}
