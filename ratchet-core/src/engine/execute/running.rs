use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handler::{CancelHandle, CancelReason};
use crate::id::{ClaimToken, JobId};
use crate::model::{Claim, ReportKind};

/// A running body.
pub(crate) struct RunningJob {
    pub(crate) claim: Arc<Claim>,
    pub(crate) begun: Instant,
    pub(crate) cancel: CancelHandle,
    /// Whether the body started, which requires that its payload could be decoded.
    pub(crate) started: AtomicBool,
    /// Whether the store knows that the body has begun.
    pub(crate) reported: AtomicBool,
    words: Mutex<Words>,
    /// Cancelled when the body has been dropped.
    gone: CancellationToken,
}

/// The reports of a body.
struct Words {
    /// The next report to send.
    pending: Option<ReportKind>,
    /// When the body last showed that it is alive.
    said_at: Instant,
    /// When the store last received a report of the body.
    told_at: Instant,
}

impl RunningJob {
    pub(crate) fn new(claim: Arc<Claim>, begun: Instant) -> Self {
        // A stall timeout is measured from a report, so a job that has one reports at once that it
        // began.
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
            gone: CancellationToken::new(),
        }
    }

    /// Waits until the body has been dropped.
    pub(crate) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// Queues a report. A report that the body is alive does not replace a report with content.
    /// Returns whether the report should be sent soon, before the store considers the job stalled.
    pub(crate) fn queue(&self, report: ReportKind, now: Instant) -> bool {
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

    /// Records that the body is alive.
    pub(crate) fn lives(&self, now: Instant) {
        self.words().said_at = now;
    }

    /// Records that the store has received a report.
    pub(crate) fn told(&self, now: Instant) {
        self.words().told_at = now;
        self.reported.store(true, Ordering::Release);
    }

    /// Returns when the body last showed that it is alive.
    pub(crate) fn said_at(&self) -> Instant {
        self.words().said_at
    }

    /// Takes the next report, and already records it as received by the store.
    pub(crate) fn take_report(&self, now: Instant) -> Option<ReportKind> {
        let mut words = self.words();
        let report = words.pending.take();
        if report.is_some() {
            words.told_at = now;
            self.reported.store(true, Ordering::Release);
        }
        report
    }

    /// Queues a report that could not be sent, or that the node makes for the body. A newer report
    /// that the body has queued is kept, unless it only shows that the body is alive.
    pub(crate) fn keep(&self, report: ReportKind) {
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

/// The bodies that run, at most one for each job.
#[derive(Default)]
pub(crate) struct RunningSet(Mutex<BTreeMap<JobId, Arc<RunningJob>>>);

impl RunningSet {
    /// Adds a body. If an earlier body of its job still runs, returns that one as the error.
    pub(crate) fn insert(&self, job: &Arc<RunningJob>) -> Result<(), Arc<RunningJob>> {
        match self.jobs().entry(job.claim.token.job) {
            Entry::Occupied(earlier) => Err(Arc::clone(earlier.get())),
            Entry::Vacant(place) => {
                place.insert(Arc::clone(job));
                Ok(())
            }
        }
    }

    /// Removes a body that has been dropped.
    pub(crate) fn remove(&self, job: &RunningJob) {
        self.jobs().remove(&job.claim.token.job);
        job.gone.cancel();
    }

    /// Queues a report for each body that began before `asked` and whose claim is not in the
    /// store's list, so that the answer shows whether the claim is lost. The list alone is no
    /// proof, because it may lack a claim that another call is writing.
    pub(crate) fn doubt_unlisted(&self, listed: &HashSet<ClaimToken>, asked: Instant) {
        for job in self.jobs().values() {
            if job.begun < asked && !listed.contains(&job.claim.token) {
                job.keep(ReportKind::Alive);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs().len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<RunningJob>> {
        self.jobs().values().cloned().collect()
    }

    /// Tells the body of this claim to stop. Also matches the token that the claim has after it was
    /// taken away from this node.
    pub(crate) fn cancel(&self, token: ClaimToken, reason: CancelReason) {
        let jobs = self.jobs();
        let job = jobs.get(&token.job);
        if let Some(job) = job.filter(|job| job.claim.token.disowned() == token.disowned()) {
            job.cancel.cancel(reason);
        }
    }

    /// Tells the bodies of these jobs to stop, whichever claims they run under.
    pub(crate) fn lose(&self, claimed_anew: impl IntoIterator<Item = JobId>) {
        let jobs = self.jobs();
        for job in claimed_anew.into_iter().filter_map(|id| jobs.get(&id)) {
            job.cancel.cancel(CancelReason::ClaimLost);
        }
    }

    /// Tells every body to stop.
    pub(crate) fn cancel_all(&self, reason: CancelReason) {
        self.all().iter().for_each(|job| job.cancel.cancel(reason));
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Arc<RunningJob>>> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}
