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
    /// Whether the store knows that the body has begun.
    pub(super) reported: AtomicBool,
    /// What is to be told next.
    pub(super) pending: Mutex<Option<ReportKind>>,
}

impl RunningJob {
    pub(super) fn new(claim: Arc<Claim>, begun: Instant) -> Self {
        // A stall timeout is measured from a report, so such a job says at once that it began.
        let pending = claim.stall_timeout.map(|_| ReportKind::Alive);
        Self {
            claim,
            begun,
            cancel: CancelHandle::default(),
            reported: AtomicBool::new(false),
            pending: Mutex::new(pending),
        }
    }

    /// Keeps a report for the next time; a sign of life does not replace one that says more.
    pub(super) fn queue(&self, report: ReportKind) {
        let mut pending = self.pending();
        if pending.is_none() || report != ReportKind::Alive {
            *pending = Some(report);
        }
    }

    /// Takes what is to be told.
    pub(super) fn take_report(&self) -> Option<ReportKind> {
        let report = self.pending().take();
        if report.is_some() {
            self.reported.store(true, Ordering::Release);
        }
        report
    }

    /// Puts back what could not be told, unless there is news.
    pub(super) fn keep(&self, report: ReportKind) {
        let mut pending = self.pending();
        if pending.is_none() || *pending == Some(ReportKind::Alive) {
            *pending = Some(report);
        }
    }

    fn pending(&self) -> MutexGuard<'_, Option<ReportKind>> {
        self.pending
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
