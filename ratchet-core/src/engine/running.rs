use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::time::Instant;

use crate::handler::{CancelHandle, CancelReason};
use crate::id::ClaimToken;
use crate::model::{Claim, ReportKind};

/// A body that runs.
pub(super) struct RunningJob {
    pub(super) claim: Arc<Claim>,
    pub(super) begun: Instant,
    pub(super) cancel: CancelHandle,
    /// Whether it has a body: what was stored could be decoded.
    pub(super) started: AtomicBool,
    /// Whether the store knows that the body has begun.
    pub(super) reported: AtomicBool,
    words: Mutex<Words>,
}

/// What a body says.
struct Words {
    /// What is to be told next.
    pending: Option<ReportKind>,
    /// When it last gave a sign of life.
    said_at: Instant,
    /// When the store was last told.
    told_at: Instant,
}

impl RunningJob {
    pub(super) fn new(claim: Arc<Claim>, begun: Instant) -> Self {
        // A stall timeout is measured from a report, so such a job says at once that it began.
        let pending = claim.stall_timeout.map(|_| ReportKind::Alive);
        Self {
            claim,
            begun,
            cancel: CancelHandle::default(),
            started: AtomicBool::new(false),
            reported: AtomicBool::new(false),
            words: Mutex::new(Words {
                pending,
                said_at: begun,
                told_at: begun,
            }),
        }
    }

    /// Keeps a report for the next time; a sign of life does not replace one that says more. Says
    /// whether the store should hear it soon, lest it take the job for stalled.
    pub(super) fn queue(&self, report: ReportKind, now: Instant) -> bool {
        let mut words = self.words();
        words.said_at = now;
        if words.pending.is_none() || report != ReportKind::Alive {
            words.pending = Some(report);
        }
        let untold = now.saturating_duration_since(words.told_at);
        self.claim
            .stall_timeout
            .is_some_and(|stall| untold > stall / 4)
    }

    /// The body gave a sign of life.
    pub(super) fn lives(&self, now: Instant) {
        self.words().said_at = now;
    }

    /// The store was told so.
    pub(super) fn told(&self, now: Instant) {
        self.words().told_at = now;
        self.reported.store(true, Ordering::Release);
    }

    /// When the body last gave a sign of life.
    pub(super) fn said_at(&self) -> Instant {
        self.words().said_at
    }

    /// Takes what is to be told.
    pub(super) fn take_report(&self, now: Instant) -> Option<ReportKind> {
        let mut words = self.words();
        let report = words.pending.take();
        if report.is_some() {
            words.told_at = now;
            self.reported.store(true, Ordering::Release);
        }
        report
    }

    /// Puts back what could not be told, unless there is news.
    pub(super) fn keep(&self, report: ReportKind) {
        let mut words = self.words();
        if words.pending.is_none() || words.pending == Some(ReportKind::Alive) {
            words.pending = Some(report);
        }
    }

    fn words(&self) -> MutexGuard<'_, Words> {
        self.words
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

/// The bodies that run, by claim.
#[derive(Default)]
pub(super) struct RunningSet(Mutex<BTreeMap<ClaimToken, Arc<RunningJob>>>);

impl RunningSet {
    pub(super) fn insert(&self, job: Arc<RunningJob>) {
        self.jobs().insert(job.claim.token, job);
    }

    pub(super) fn remove(&self, token: ClaimToken) {
        self.jobs().remove(&token);
    }

    pub(super) fn len(&self) -> usize {
        self.jobs().len()
    }

    pub(super) fn all(&self) -> Vec<Arc<RunningJob>> {
        self.jobs().values().cloned().collect()
    }

    /// Tells one body to stop.
    pub(super) fn cancel(&self, token: ClaimToken, reason: CancelReason) {
        if let Some(job) = self.jobs().get(&token) {
            job.cancel.cancel(reason);
        }
    }

    /// Tells every body to stop.
    pub(super) fn cancel_all(&self, reason: CancelReason) {
        self.all().iter().for_each(|job| job.cancel.cancel(reason));
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<ClaimToken, Arc<RunningJob>>> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}
