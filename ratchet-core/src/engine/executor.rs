//! The executor: slots that run bodies, each one job after another.
//!
//! Whatever a body does, its slot lives on: a panic is caught, a hard timeout drops the body, an
//! undecodable payload fails that job only.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tracing::Instrument;

use super::outcome::{Ended, outcome};
use super::ready::Ready;
use super::reporter::JobReports;
use super::run::Run;
use super::running::RunningJob;
use crate::handler::{CancelReason, ContextParts, JobContext, Verdict, soft_timeout};
use crate::model::{Claim, JobInput, Outcome, Settlement};
use crate::time;

/// How many inputs are read in one call when payloads are read lazily.
const READ_AHEAD: usize = 32;

/// Runs one job after another for as long as the node runs.
pub(super) async fn slot(run: Arc<Run>) {
    loop {
        let ready = run.ready.pop().await;
        execute(&run, ready).await;
    }
}

/// Runs one claimed job to its end.
async fn execute(run: &Arc<Run>, ready: Ready) {
    let claim = ready.claim;
    let input = match ready.input {
        Some(input) => input,
        None => match read_inputs(run, &claim).await {
            Some(input) => input,
            None => return,
        },
    };
    let begun = time::monotonic();
    let job = Arc::new(RunningJob::new(Arc::clone(&claim), begun));
    run.running.insert(Arc::clone(&job));
    let ended = AssertUnwindSafe(supervise(run, &job, &input))
        .catch_unwind()
        .await;
    run.running.remove(claim.token);
    run.reporter.flush(&job).await;
    let ran_for = time::monotonic().saturating_duration_since(begun);
    let settle = |outcome| Settlement::new(claim.token, outcome).ran_for(ran_for);
    match ended.unwrap_or_else(|panic| Stopped::Ended(Ended::Panicked(panic))) {
        Stopped::Ended(ended) => {
            run.settle(settle(outcome(&claim, ended, run.shared.random())));
        }
        Stopped::Unreadable(error) => {
            run.settle(settle(Outcome::Failed { error }).without_attempt());
        }
        Stopped::Interrupted => run.settle(settle(Outcome::Released)),
        Stopped::Lost => run.let_go(1),
    }
}

/// Why a job no longer runs here.
enum Stopped {
    /// Its body ended.
    Ended(Ended),
    /// It has no body that could run.
    Unreadable(String),
    /// The node stopped it.
    Interrupted,
    /// It was taken away.
    Lost,
}

/// Runs the body of a job under its timeout. What panics in here, be it a handler, the decoding of
/// a payload or the drop of a body, is caught by the caller.
async fn supervise(run: &Arc<Run>, job: &Arc<RunningJob>, input: &JobInput) -> Stopped {
    let claim = &*job.claim;
    let kind = &claim.route.kind;
    let Some(handler) = run.shared.registry.get(kind) else {
        return Stopped::Interrupted;
    };
    let context = JobContext::new(ContextParts {
        claim: Arc::clone(&job.claim),
        checkpoint: input.checkpoint.clone(),
        state: Arc::clone(&run.shared.state),
        cancel: job.cancel.clone(),
        client: run.shared.client.clone(),
        reports: Arc::new(JobReports::new(&run.reporter, job)),
    });
    let body = match handler.body(&input.payload, context) {
        Ok(body) => body,
        Err(error) => return Stopped::Unreadable(format!("the payload is not a {kind}: {error}")),
    };
    let span = tracing::info_span!(
        "job",
        %kind,
        id = %claim.token.job,
        attempt = claim.attempts + 1,
        traceparent = claim.trace.as_ref().map(|trace| trace.traceparent()),
    );
    tokio::select! {
        biased;
        returned = body.instrument(span) => match returned {
            Err(error) if is_interrupted(job, error.verdict()) => Stopped::Interrupted,
            returned => Stopped::Ended(Ended::Returned(returned)),
        },
        () = run.abort.cancelled() => Stopped::Interrupted,
        () = job.cancel.at_least(CancelReason::ClaimLost) => Stopped::Lost,
        timeout = hard_timeout(job, claim) => Stopped::Ended(Ended::TimedOut(timeout)),
    }
}

/// Whether a body failed because the node told it to stop for a shutdown: that is no attempt.
fn is_interrupted(job: &RunningJob, verdict: Verdict) -> bool {
    verdict == Verdict::Retry && job.cancel.reason() == Some(CancelReason::Shutdown)
}

/// Warns the body at the soft timeout and returns at the hard one; never, if the job has none.
async fn hard_timeout(job: &RunningJob, claim: &Claim) -> Duration {
    let Some(timeout) = claim.timeout else {
        return std::future::pending().await;
    };
    let soft = soft_timeout(timeout);
    tokio::time::sleep_until(job.begun + soft).await;
    job.cancel.cancel(CancelReason::SoftTimeout);
    tokio::time::sleep_until(job.begun + timeout).await;
    timeout
}

/// Reads the input of a claim, and with the same call those of the claims behind it. None if the
/// claim is lost, or could not be read and was handed back.
async fn read_inputs(run: &Run, claim: &Claim) -> Option<JobInput> {
    let mut tokens = vec![claim.token];
    tokens.extend(run.ready.unread(READ_AHEAD - 1));
    let read = run
        .shared
        .calls
        .call("load_inputs", |store| store.jobs().load_inputs(&tokens));
    match read.await {
        Ok(inputs) => {
            let mut inputs = inputs.into_iter();
            let own = inputs.next().flatten();
            let others = tokens[1..].iter().copied().zip(inputs);
            run.ready
                .fill(others.filter_map(|(token, input)| Some((token, input?))));
            if own.is_none() {
                run.let_go(1);
            }
            own
        }
        Err(error) => {
            tracing::warn!(%error, "reading payloads failed, handing the job back");
            run.settle(Settlement::new(claim.token, Outcome::Released));
            None
        }
    }
}
