//! The executor: slots, each of which runs one body after another.
//!
//! A slot survives whatever a body does. A panic is caught, a hard timeout drops the body, and a
//! payload that does not decode fails only its own job.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::admission::{self, Admission};
use super::breakers::{self, BreakerHandles};
use super::newer_payloads::{self, NewerPayloads};
use super::outcome::{Ended, outcome};
use super::reporter::{JobReports, Reporter};
use super::running::{RunningJob, RunningSet};
use super::span;
use super::suspects::{self, Suspects};
use crate::breaker::AttemptEnd;
use crate::client::{Client, RetryDelays};
use crate::engine::common::Common;
use crate::engine::lead::gate::Gate;
use crate::engine::membership::identity::Identity;
use crate::engine::membership::liveness::Liveness;
use crate::engine::pools::ready::Ready;
use crate::engine::pools::run_pool::RunPool;
use crate::engine::settle::held_claims::HeldClaims;
use crate::engine::totals::Totals;
use crate::error::Result;
use crate::handler::{
    CancelReason, ContextParts, JobContext, Registry, StateMap, Verdict, soft_timeout,
};
use crate::id::NodeId;
use crate::metrics::NotYet;
use crate::model::{Claim, JobInput, Outcome, Reported, Settlement};
use crate::outage::Outage;
use crate::time;

/// How many inputs one call reads when payloads are read lazily.
const READ_AHEAD: usize = 32;

/// The handles that the slots of the executor use.
pub(crate) struct ExecutorHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) claims: Arc<HeldClaims>,
    pub(crate) running: Arc<RunningSet>,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) gate: Gate,
    pub(crate) admission: Admission,
    pub(crate) breakers: BreakerHandles,
    pub(crate) suspects: Suspects,
    pub(crate) newer_payloads: Arc<NewerPayloads>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) state: Arc<StateMap>,
    pub(crate) client: Client,
    pub(crate) totals: Arc<Totals>,
    /// The outage of the slots' store calls. It counts as one, however many bodies wait to begin.
    pub(crate) outage: Mutex<Outage>,
    /// Cancelled when the run stops claiming.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the remaining bodies must be dropped.
    pub(crate) abort: CancellationToken,
}

impl ExecutorHandles {
    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one job of its pool after another, as long as the node runs.
pub(crate) async fn slot(run: Arc<ExecutorHandles>, pool: usize) {
    let pool = &run.claims.pools[pool];
    loop {
        let ready = pool.ready.pop().await;
        if run.draining.is_cancelled() || run.gate.is_closed() {
            run.claims.hand_back(pool, vec![ready]);
        } else {
            admit(&run, pool, ready).await;
        }
    }
}

/// Runs one claimed job to its end, or snoozes it if it is a suspect that has to wait. If the job
/// was claimed only after its expiry, ends it instead.
pub(crate) async fn admit(run: &Arc<ExecutorHandles>, pool: &RunPool, ready: Ready) {
    if ready.claim.is_expired_after(Duration::ZERO) {
        end_expired(run, pool, &ready.claim);
    } else if ready.claim.crash_count < run.common.config.isolate_from() {
        execute(run, pool, ready).await;
    } else if let Some(_alone) = run.suspects.admit() {
        execute(run, pool, ready).await;
    } else {
        pool.metrics.put_off(NotYet::Suspect);
        let delay = suspects::PUT_OFF;
        let put_off = Settlement::new(ready.claim.token, Outcome::Snoozed { delay });
        run.claims.settle(pool, &ready.claim, put_off);
    }
}

fn end_expired(run: &ExecutorHandles, pool: &RunPool, claim: &Arc<Claim>) {
    let expired = Settlement::new(claim.token, Outcome::Expired);
    run.claims.settle_ended(pool, claim, expired);
}

/// Runs one claimed job to its end.
async fn execute(run: &Arc<ExecutorHandles>, pool: &RunPool, ready: Ready) {
    let claim = ready.claim;
    // The node was declared dead while the claim waited, and has a new id.
    if ready.node != run.identity.node() {
        return run.claims.lose_waiting(pool, claim.token);
    }
    let known = run.registry.version(&claim.route.kind);
    if let Some(known) = known.filter(|known| claim.payload_version > *known) {
        run.newer_payloads.tell(&claim, known);
        pool.metrics.put_off(NotYet::NewerPayload);
        let delay = newer_payloads::put_off(&claim, run.common.random());
        let put_off = Settlement::new(claim.token, Outcome::Snoozed { delay });
        return run.claims.settle(pool, &claim, put_off);
    }
    let input = match ready.input {
        Some(input) => input,
        None => match read_inputs(run, pool, &claim).await {
            Some(input) => input,
            None => return,
        },
    };
    if run.admission.limits(&claim.route.kind)
        && let Err(settlement) = admission::admit(&run.admission, pool, &claim, &input).await
    {
        // A key function that panics may have used up the job's last attempt.
        return match settlement.effect(false).state.is_terminal() {
            true => run.claims.settle_ended(pool, &claim, settlement),
            false => run.claims.settle(pool, &claim, settlement),
        };
    }
    let mut attempt = match breakers::admit(&run.breakers, pool, &claim) {
        Ok(attempt) => attempt,
        Err(released) => return run.claims.settle(pool, &claim, released),
    };
    if !is_cleared(run, pool, &claim, ready.node).await {
        return;
    }
    if must_announce(&claim) && !announce(run, pool, &claim).await {
        return;
    }
    // In an outage, the calls before this one take as long as the outage.
    let waited = time::monotonic().saturating_duration_since(ready.received);
    if claim.is_expired_after(waited) {
        return end_expired(run, pool, &claim);
    }
    let Some(job) = begin(run, pool, &claim, ready.node).await else {
        return;
    };
    let begun = job.begun;
    if claim.stall_timeout.is_some() {
        run.reporter.hurry();
    }
    let span = span::of(&claim);
    let running = pool.metrics.running.enter();
    let waited = begun.saturating_duration_since(ready.received);
    let ended = AssertUnwindSafe(supervise(run, pool, &job, &input, waited, &span))
        .catch_unwind()
        .await;
    drop(running);
    run.running.remove(&job);
    let ran_for = time::monotonic().saturating_duration_since(begun);
    let ran_for = job.started.load(Ordering::Acquire).then_some(ran_for);
    if let Some(ran_for) = ran_for {
        pool.metrics.ran(&claim.route.kind, ran_for);
    }
    let ended = ended.unwrap_or_else(|panic| {
        pool.metrics.panicked(&claim.route.kind);
        Stopped::Ended(Ended::Panicked(panic))
    });
    let requested = job.cancel.reason() == Some(CancelReason::Requested);
    if let Some(attempt) = &mut attempt {
        attempt.ended(match requested {
            true => AttemptEnd::Unknown,
            false => ended.attempt(),
        });
    }
    // The breaker opens before the claim is settled, so no poll for the kind comes in between.
    drop(attempt);
    if let Stopped::Lost | Stopped::Stalled = ended {
        span::lost(&span);
        run.claims.hooks.tell(|hook| hook.job_lost(&claim));
        return match ended {
            Stopped::Stalled => run.claims.give_up_stalled(pool, claim.token),
            _ => run.claims.lose_running(pool, claim.token),
        };
    }
    run.reporter.flush(&job).await;
    let settle = |outcome| {
        let settlement = Settlement::new(claim.token, outcome);
        match ran_for {
            Some(ran_for) => settlement.ran_for(ran_for),
            None => settlement,
        }
    };
    let settlement = match ended {
        // The store cancels the job whatever the outcome in the settlement. The settlement decides
        // what metrics, spans and hooks report.
        Stopped::Ended(_) if requested => settle(Outcome::Cancelled),
        Stopped::Ended(ended) => settle(outcome(&claim, ended, run.common.random())),
        Stopped::Unreadable(error) => settle(Outcome::Failed { error }).without_attempt(),
        Stopped::Interrupted | Stopped::Lost | Stopped::Stalled => settle(Outcome::Released),
    };
    span::ended(&span, &settlement);
    // A span is exported when it is dropped.
    drop(span);
    run.claims.settle_ended(pool, &claim, settlement);
}

/// Returns whether the body of a claim may begin: the node still holds the claim, as far as the
/// node can know, and still runs jobs. Otherwise the claim is dropped as lost, or released.
///
/// A process that was suspended or cut off from its database may hold claims that other nodes took
/// back. So it first waits for a successful heartbeat, whose reply shows whether the node was
/// declared dead.
async fn is_cleared(run: &ExecutorHandles, pool: &RunPool, claim: &Claim, node: NodeId) -> bool {
    let alive = run.liveness.wait_until_alive().await;
    if node != run.identity.node() {
        run.claims.lose_waiting(pool, claim.token);
        return false;
    }
    if !alive || run.draining.is_cancelled() || run.gate.is_closed() {
        let released = Settlement::new(claim.token, Outcome::Released);
        run.claims.settle(pool, claim, released);
        return false;
    }
    true
}

/// Registers the body of a claim as running. If an earlier body of the same job still runs, waits
/// until it is gone; the poller has told it to stop. Returns `None` if the claim is lost or
/// released first.
async fn begin(
    run: &ExecutorHandles,
    pool: &RunPool,
    claim: &Arc<Claim>,
    node: NodeId,
) -> Option<Arc<RunningJob>> {
    while is_cleared(run, pool, claim, node).await {
        let job = RunningJob::new(Arc::clone(claim), time::monotonic());
        let job = Arc::new(job);
        let Err(earlier) = run.running.insert(&job) else {
            return Some(job);
        };
        tokio::select! {
            () = run.draining.cancelled() => {}
            () = earlier.gone() => {}
        }
    }
    None
}

/// Why a job no longer runs here.
enum Stopped {
    /// The body ended.
    Ended(Ended),
    /// The job has no body that could run, because its payload does not decode.
    Unreadable(String),
    /// The node stopped the body, or has no handler for the job.
    Interrupted,
    /// The node lost the claim of the job.
    Lost,
    /// The body did not report for its stall timeout, so the cluster will reclaim the job.
    Stalled,
}

impl Stopped {
    /// Returns what this end shows a circuit breaker.
    const fn attempt(&self) -> AttemptEnd {
        match self {
            Self::Ended(Ended::Returned(Ok(_))) => AttemptEnd::Succeeded,
            Self::Ended(Ended::Returned(Err(error))) => match error.verdict() {
                Verdict::Retry | Verdict::RetryAfter(_) => AttemptEnd::Failed,
                Verdict::Snooze(_) | Verdict::Discard | Verdict::Cancel => AttemptEnd::Unknown,
            },
            Self::Ended(Ended::Panicked(_) | Ended::TimedOut(_)) | Self::Stalled => {
                AttemptEnd::Failed
            }
            Self::Unreadable(_) | Self::Interrupted | Self::Lost => AttemptEnd::Unknown,
        }
    }
}

/// Runs the body of a job under its timeout. The caller catches every panic in here, such as a
/// panic while a payload is decoded, while a body runs, or while it is dropped.
async fn supervise(
    run: &Arc<ExecutorHandles>,
    pool: &RunPool,
    job: &Arc<RunningJob>,
    input: &JobInput,
    waited: Duration,
    span: &tracing::Span,
) -> Stopped {
    let claim = &*job.claim;
    let kind = &claim.route.kind;
    let context = JobContext::new(ContextParts {
        claim: Arc::clone(&job.claim),
        checkpoint: input.checkpoint.clone(),
        state: Arc::clone(&run.state),
        cancel: job.cancel.clone(),
        client: run.client.clone(),
        reports: Arc::new(JobReports::new(&run.reporter, job)),
    });
    let registry = &run.registry;
    let body = match registry.body(kind, &input.payload, claim.payload_version, &context) {
        Some(Ok(body)) => body,
        Some(Err(problem)) => {
            pool.metrics.unreadable(kind);
            return Stopped::Unreadable(problem);
        }
        None => return Stopped::Interrupted,
    };
    job.started.store(true, Ordering::Release);
    run.totals.began(claim);
    pool.metrics.begun(claim, waited);
    run.claims.hooks.tell(|hook| hook.job_started(claim));
    tokio::select! {
        biased;
        returned = body.instrument(span.clone()) => match returned {
            Err(error) if is_interrupted(job, error.verdict()) => Stopped::Interrupted,
            returned => Stopped::Ended(Ended::Returned(returned)),
        },
        () = run.abort.cancelled() => Stopped::Interrupted,
        () = job.cancel.at_least(CancelReason::ClaimLost) => Stopped::Lost,
        () = stalled(job) => {
            pool.metrics.stalled(kind);
            Stopped::Stalled
        }
        timeout = hard_timeout(job, claim) => {
            pool.metrics.timed_out(kind);
            Stopped::Ended(Ended::TimedOut(timeout))
        }
    }
}

/// Returns whether a body failed because the node told it to stop for a shutdown. Such a failure is
/// not an attempt.
fn is_interrupted(job: &RunningJob, verdict: Verdict) -> bool {
    verdict == Verdict::Retry && job.cancel.reason() == Some(CancelReason::Shutdown)
}

/// Warns the body at the soft timeout, and returns at the hard timeout. Never returns for a job
/// without a timeout.
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

/// Waits until the body has been silent for its stall timeout. From then on the cluster may reclaim
/// the job, after which no report of the body takes effect.
async fn stalled(job: &RunningJob) {
    let Some(stall) = job.claim.stall_timeout else {
        return std::future::pending().await;
    };
    loop {
        let patience = job.said_at() + stall;
        if time::monotonic() > patience {
            tracing::warn!(id = %job.claim.token.job, "a body gave no sign of life within its \
                stall timeout and was dropped");
            return;
        }
        tokio::time::sleep_until(patience + Duration::from_millis(1)).await;
    }
}

/// Returns whether the node must report the begin of a body before it runs the body: for suspects,
/// so that a crash counts against the job, and for jobs with an expiry, which then do not expire.
fn must_announce(claim: &Claim) -> bool {
    claim.crash_count > 0 || claim.expires_at.is_some()
}

/// Reports that a body is about to begin. Returns `false` if the claim is lost, the job was
/// cancelled, or the claim was released because the node drains.
async fn announce(run: &ExecutorHandles, pool: &RunPool, claim: &Arc<Claim>) -> bool {
    let end = |outcome| Settlement::new(claim.token, outcome);
    let known = patiently(run, || run.reporter.announce(claim.token)).await;
    match known {
        Some(Reported::Applied {
            cancel_requested: false,
        }) => {
            if claim.crash_count > 0 {
                pool.metrics.suspect_begins();
            }
            return true;
        }
        Some(Reported::Applied { .. }) => {
            run.claims
                .settle_ended(pool, claim, end(Outcome::Cancelled).without_attempt());
        }
        Some(Reported::Stale) => run.claims.lose_waiting(pool, claim.token),
        None => run.claims.settle(pool, claim, end(Outcome::Released)),
    }
    false
}

/// Reads the input of a claim, and prefetches the inputs of the next waiting claims in the same
/// call. Returns `None` if the claim is lost, or was released because the node is draining.
async fn read_inputs(run: &ExecutorHandles, pool: &RunPool, claim: &Claim) -> Option<JobInput> {
    let mut tokens = vec![claim.token];
    tokens.extend(pool.ready.unread(READ_AHEAD - 1));
    let read = || {
        let calls = &run.common.calls;
        calls.call("load_inputs", |store| store.jobs().load_inputs(&tokens))
    };
    let Some(inputs) = patiently(run, read).await else {
        let released = Settlement::new(claim.token, Outcome::Released);
        run.claims.settle(pool, claim, released);
        return None;
    };
    let mut inputs = inputs.into_iter();
    let own = inputs.next().flatten();
    let others = tokens[1..].iter().copied().zip(inputs);
    pool.ready
        .fill(others.filter_map(|(token, input)| Some((token, input?))));
    if own.is_none() {
        run.claims.lose_waiting(pool, claim.token);
    }
    own
}

/// Repeats a call until it succeeds. Returns `None` if the node drains first.
async fn patiently<T, F>(run: &ExecutorHandles, call: impl Fn() -> F) -> Option<T>
where
    F: Future<Output = Result<T>>,
{
    let mut backoff = RetryDelays::of("executor");
    loop {
        match call().await {
            Ok(answer) => {
                run.outage().ended();
                return Some(answer);
            }
            Err(error) => run.outage().failed(&error),
        }
        tokio::select! {
            biased;
            () = run.draining.cancelled() => return None,
            () = tokio::time::sleep(backoff.next(run.common.random())) => {}
        }
    }
}
