//! Reclaiming: taking back claims that nobody works on any more.

use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};
use crate::id::ClaimToken;
use crate::limits;

/// Which claims to take back. All durations are measured on the database's clock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReclaimRequest {
    /// How long a node must be silent to count as dead, at least: the rule is
    /// [`NodeRecord::is_silent`](super::NodeRecord::is_silent). A claim whose owner has no row at
    /// all is an orphan when it is this old.
    pub dead_after: Duration,
    /// How long a claim may wait for its body to begin.
    pub start_timeout: Duration,
    /// How far a body may be beyond its own timeout before the cluster stops trusting its node to
    /// end it.
    pub overdue_after: Duration,
    /// How many claims of one job may be lost before it is a dead letter.
    pub max_crashes: u32,
    /// The most claims to take back in one pass; at least 1.
    pub limit: usize,
}

impl ReclaimRequest {
    /// The defaults: dead after 15 s, start within 5 min, 30 s beyond the timeout, 3 crashes, 500
    /// claims a pass.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            dead_after: Duration::from_secs(15),
            start_timeout: Duration::from_secs(300),
            overdue_after: Duration::from_secs(30),
            max_crashes: 3,
            limit: 500,
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

    /// Refuses a limit of 0 or above [`limits::MAX_BATCH`], as every store does first.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`].
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

/// Why a claim was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReclaimReason {
    /// Its node is dead, gone, or was restarted. Counts as a crash.
    OwnerLost,
    /// Its body did not begin in time. Costs nothing.
    NotStarted,
    /// Its body gave no sign of life within the job's stall timeout. Counts as a crash.
    Stalled,
    /// Its body ran far beyond the job's timeout. Counts as a crash.
    Overdue,
}

impl ReclaimReason {
    /// Whether the loss counts against the job's crash budget.
    #[must_use]
    pub const fn is_crash(self) -> bool {
        !matches!(self, Self::NotStarted)
    }
}

/// A claim that was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reclaimed {
    /// The token of the lost claim.
    pub token: ClaimToken,
    /// Why it was taken back.
    pub reason: ReclaimReason,
    /// The job's crashes, this one included.
    pub crash_count: u32,
    /// False: the job is pending again and the token is stale. True: the crash budget is used up;
    /// the job stays running without an owner, the token stays valid, and the caller must settle it
    /// as failed. Until somebody does, every further pass returns it again.
    pub exhausted: bool,
}

impl Reclaimed {
    /// A claim that was taken back for this reason.
    #[must_use]
    pub const fn new(
        token: ClaimToken,
        reason: ReclaimReason,
        crash_count: u32,
        exhausted: bool,
    ) -> Self {
        Self {
            token,
            reason,
            crash_count,
            exhausted,
        }
    }
}
