//! The reporter: sends the reports of bodies to the store in batches, and passes the answers back.
//!
//! A body that runs for long without reporting is reported once by the reporter itself, so that its
//! claim does not look like one whose body never began.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::running::{RunningJob, RunningSet};
use crate::client::Calls;
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::handler::{CancelReason, ReportSink};
use crate::id::ClaimToken;
use crate::metrics;
use crate::model::{Claim, Report, ReportKind, Reported};
use crate::outage::Outage;
use crate::time;

/// How often reports are sent. Only the latest report of each body is sent.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long a body that has not reported runs before the reporter reports that it has begun.
/// Together with the longest wait for a slot, this is shorter than the shortest start timeout that
/// any node of the cluster may have.
const BEGUN_AFTER: Duration = Duration::from_secs(2);
/// How long the last report of a body may delay its settlement.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// Sends what the bodies of a run report.
pub(crate) struct Reporter {
    calls: Arc<Calls>,
    running: Arc<RunningSet>,
    urgent: Notify,
    /// The bodies that are about to begin, and that the next call announces.
    beginning: Mutex<Vec<Beginning>>,
    /// Held during a call that announces bodies.
    announcing: AsyncMutex<()>,
}

/// A body that is about to begin, and where the answer to its report is expected.
type Beginning = (ClaimToken, oneshot::Sender<Reported>);

impl Reporter {
    pub(crate) fn new(calls: Arc<Calls>, running: Arc<RunningSet>) -> Self {
        Self {
            calls,
            running,
            urgent: Notify::new(),
            beginning: Mutex::default(),
            announcing: AsyncMutex::default(),
        }
    }

    /// Requests that the queued reports are sent now.
    pub(crate) fn hurry(&self) {
        self.urgent.notify_one();
    }

    /// Sends the last progress or checkpoint of an ended body. A report that the body is alive is
    /// not sent, since the job has ended. If the call fails, the report is lost, because the job
    /// ends in any case.
    pub(crate) async fn flush(&self, job: &RunningJob) {
        let Some(kind) = job.take_report(time::monotonic()) else {
            return;
        };
        if kind != ReportKind::Alive {
            let report = [Report::new(job.claim.token, kind)];
            if let Err(error) = self.send_within(LAST_REPORT, &report).await {
                tracing::debug!(%error, "could not send the last report of a job");
            }
        }
    }

    /// Reports that a body is about to begin, and waits until the store has stored the report.
    ///
    /// One call reports all bodies that have asked for it during the call before. If it fails, each
    /// of them sends its own report, because the cause may be a single job whose row is locked.
    pub(crate) async fn announce(&self, token: ClaimToken) -> Result<Reported> {
        let (answer, mut answered) = oneshot::channel();
        self.beginning().push((token, answer));
        let turn = self.announcing.lock().await;
        let mut known = answered.try_recv();
        if known == Err(TryRecvError::Empty) {
            let bodies = std::mem::take(&mut *self.beginning());
            let reports = bodies.iter();
            let reports: Vec<Report> = reports.map(|(token, _)| alive(*token)).collect();
            match self.send_within(Duration::MAX, &reports).await {
                Ok(answers) => {
                    for ((_, body), answer) in bodies.into_iter().zip(answers) {
                        // A body that has been dropped needs no answer.
                        let _ = body.send(answer);
                    }
                }
                Err(error) if bodies.len() == 1 => return Err(error),
                Err(_) => drop(bodies),
            }
            known = answered.try_recv();
        }
        drop(turn);
        match known {
            Ok(known) => Ok(known),
            Err(_) => one(self.send_within(Duration::MAX, &[alive(token)]).await?),
        }
    }

    fn beginning(&self) -> MutexGuard<'_, Vec<Beginning>> {
        self.beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_within(&self, deadline: Duration, reports: &[Report]) -> Result<Vec<Reported>> {
        let report = self
            .calls
            .call_within(deadline, "report", |store| store.jobs().report(reports));
        let answers = report.await;
        metrics::reports(reports.len(), &answers);
        answers
    }
}

/// The reports of one body.
pub(super) struct JobReports {
    reporter: Arc<Reporter>,
    job: Arc<RunningJob>,
}

impl JobReports {
    pub(super) fn new(reporter: &Arc<Reporter>, job: &Arc<RunningJob>) -> Self {
        Self {
            reporter: Arc::clone(reporter),
            job: Arc::clone(job),
        }
    }
}

#[async_trait]
impl ReportSink for JobReports {
    fn queue(&self, _claim: &Claim, kind: ReportKind) {
        if self.job.queue(kind, time::monotonic()) {
            self.reporter.hurry();
        }
    }

    async fn send(&self, claim: &Claim, kind: ReportKind) -> Result<Reported> {
        // A body that sends a report is alive, even if the store call fails.
        self.job.lives(time::monotonic());
        let report = [Report::new(claim.token, kind)];
        let answers = self.reporter.send_within(Duration::MAX, &report).await?;
        self.job.told(time::monotonic());
        one(answers)
    }
}

const fn alive(token: ClaimToken) -> Report {
    Report::new(token, ReportKind::Alive)
}

/// Returns the answer to the only report that was sent.
fn one(answers: Vec<Reported>) -> Result<Reported> {
    answers.into_iter().next().ok_or_else(|| {
        StoreError::new(StoreErrorKind::Other, "report").with_source(
            "the store returned no answer \
             for the report",
        )
    })
}

/// Sends reports, as long as the node runs.
pub(crate) async fn run(reporter: Arc<Reporter>) {
    let mut outage = Outage::of("reporter");
    loop {
        tokio::select! {
            biased;
            () = reporter.urgent.notified() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
        match tick(&reporter).await {
            Ok(0) => {}
            Ok(_) => outage.ended(),
            Err(error) => outage.failed(&error),
        }
    }
}

/// Sends the pending reports, and returns how many there were. After a failure they are kept for
/// the next call.
async fn tick(reporter: &Reporter) -> Result<usize> {
    let now = time::monotonic();
    let (mut jobs, mut reports) = (Vec::new(), Vec::new());
    for job in reporter.running.all() {
        let long = now.saturating_duration_since(job.begun) > BEGUN_AFTER;
        if long && !job.reported.load(Ordering::Acquire) {
            job.keep(ReportKind::Alive);
        }
        if let Some(kind) = job.take_report(now) {
            reports.push(Report::new(job.claim.token, kind));
            jobs.push(job);
        }
    }
    if reports.is_empty() {
        return Ok(0);
    }
    match reporter.send_within(Duration::MAX, &reports).await {
        Ok(answers) => {
            for (job, answer) in jobs.iter().zip(answers) {
                match answer {
                    Reported::Applied { cancel_requested } if !cancel_requested => {}
                    Reported::Applied { .. } => job.cancel.cancel(CancelReason::Requested),
                    Reported::Stale => job.cancel.cancel(CancelReason::ClaimLost),
                }
            }
            Ok(reports.len())
        }
        Err(error) => {
            for (job, report) in jobs.iter().zip(reports) {
                job.keep(report.kind);
            }
            Err(error)
        }
    }
}
