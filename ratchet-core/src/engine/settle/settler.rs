//! The settler: ends claims in batches.
//!
//! A buffer collects the settlements, and the settler sends them to the store in one call. Jobs
//! that are ready to run in the same pools will probably cause more settlements soon. So if there
//! are such jobs, the settler waits until it has [`ENOUGH`] settlements or until [`LINGER`] has
//! passed. Otherwise it sends the settlements at once. While one call is in progress, the buffer
//! collects the next batch.
//!
//! If the store fails, the settler retries until the call succeeds. Until then, the claims count as
//! held, so the poller does not claim more jobs than the node can run.
//!
//! Two kinds of settlements are sent and retried in separate calls, so that they do not delay the
//! other settlements:
//!
//! - Settlements that the store rejects, although it accepts others, or that take too long.
//! - Settlements that contend with a transaction that stays open. For example, a killed producer's
//!   transaction may still lock the lane of the job.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::buffer::{Batch, ENOUGH};
use super::fairness::Fairness;
use super::held_claims::HeldClaims;
use crate::client::{Client, RetryDelays, WakeQueue};
use crate::engine::common::Common;
use crate::engine::membership::heartbeat_interval::HeartbeatInterval;
use crate::engine::pools::counters::Counters;
use crate::engine::totals::Totals;
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::metrics;
use crate::model::{Fenced, Outcome, Settlement};
use crate::outage::Outage;
use crate::route::Route;
use crate::time;

/// The maximum time that a settlement waits in the buffer for other settlements to join its batch.
const LINGER: Duration = Duration::from_millis(2);
/// The timeout for sending a wakeup to other nodes after this node released permits or claims.
pub(crate) const SENDING: Duration = Duration::from_millis(20);
/// How many times a batch is sent again as a whole after a timeout. After one more timeout, each
/// settlement is sent in a separate call, because a single settlement may have caused the timeouts.
/// For example, very many jobs may wait for the end of its job.
const TIMEOUTS: u32 = 1;
/// The maximum number of settlements that are sent at the same time in separate calls. It is
/// smaller than a store's default connection pool, because each call may occupy a connection until
/// its deadline.
const APART: usize = 5;
/// A warning is logged when the separate calls for one settlement have failed this many times
/// because of contention.
const CONTENTIONS: u32 = 3;

pub(crate) struct SettlerHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) claims: Arc<HeldClaims>,
    pub(crate) fairness: Arc<Fairness>,
    pub(crate) interval: Arc<HeartbeatInterval>,
    pub(crate) client: Client,
    pub(crate) wake_queue: Arc<WakeQueue>,
    pub(crate) totals: Arc<Totals>,
}

/// Runs the settler: sends the buffered settlements to the store in batches. Never returns.
pub(crate) async fn run(run: Arc<SettlerHandles>) {
    let mut settler = Settler::new();
    loop {
        tokio::select! {
            biased;
            () = gather(&run) => {}
            () = settler.retry_is_due() => {}
            () = run.fairness.delayed() => send_hints(&run, HashSet::new()).await,
        }
        settler.tick(&run).await;
    }
}

/// Waits until the buffer has a batch of settlements that should be sent now.
async fn gather(run: &SettlerHandles) {
    let buffer = &run.claims.settlements;
    while buffer.len() == 0 {
        buffer.changed.notified().await;
    }
    let linger = tokio::time::sleep(LINGER);
    tokio::pin!(linger);
    while buffer.awaits(&run.claims.pools) && buffer.len() < ENOUGH {
        tokio::select! {
            biased;
            () = buffer.changed.notified() => {}
            () = &mut linger => return,
        }
    }
}

/// The state that the settler keeps between batches.
struct Settler {
    outage: Outage,
    /// Settlements that failed in a separate call, because the store rejected them or the call
    /// timed out. They are sent again at `retry_at`.
    refused: Batch,
    retry_at: Option<Instant>,
    backoff: RetryDelays,
    /// One task for each settlement that contends with other writes. The task repeats the call as
    /// long as the contention lasts.
    contended: JoinSet<()>,
    apart: Arc<Semaphore>,
}

impl Settler {
    fn new() -> Self {
        Self {
            outage: Outage::of("settler"),
            refused: Batch::default(),
            retry_at: None,
            backoff: RetryDelays::of("settler"),
            contended: JoinSet::new(),
            apart: Arc::new(Semaphore::new(APART)),
        }
    }

    async fn retry_is_due(&self) {
        match self.retry_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Sends the buffered settlements, and retries after transient errors. Settlements that contend
    /// with other writes are passed to separate tasks. Then retries the `refused` settlements if
    /// `retry_at` has passed.
    async fn tick(&mut self, run: &Arc<SettlerHandles>) {
        while self.contended.try_join_next().is_some() {}
        let mut batch = run.claims.settlements.take();
        let mut backoff = RetryDelays::of("settler");
        let (mut timeouts, mut contentions) = (0, 0);
        while !batch.is_empty() {
            match send(run, &batch.settlements).await {
                Ok(answers) => {
                    self.outage.ended();
                    wind_up(run, &batch, &answers).await;
                    break;
                }
                Err(error) if contends(&error, &batch) => {
                    tracing::debug!(%error, jobs = batch.len(), "a settle call contends with other \
                        writes; retrying with fewer jobs");
                    let all = contentions > 0 && error.kind() == StoreErrorKind::Contention;
                    contentions += 1;
                    let ends = batch.into_iter();
                    let contended: Batch;
                    (contended, batch) = ends.partition(|ending| all || ending.of.awaited);
                    if contended.is_empty() {
                        tokio::time::sleep(backoff.next(run.common.random())).await;
                    }
                    self.settle_apart(run, contended);
                }
                Err(error) if error.is_transient() && timeouts < TIMEOUTS => {
                    timeouts += u32::from(error.kind() == StoreErrorKind::Timeout);
                    self.outage.failed(&error);
                    tokio::time::sleep(backoff.next(run.common.random())).await;
                }
                Err(error) => {
                    // One of the settlements is invalid, or takes longer than the deadline.
                    if error.is_transient() {
                        self.outage.failed(&error);
                    }
                    self.one_by_one(run, batch).await;
                    break;
                }
            }
        }
        if self.retry_at.is_some_and(|at| at <= time::monotonic()) {
            self.retry_at = None;
            let again = std::mem::take(&mut self.refused);
            self.one_by_one(run, again).await;
        }
    }

    /// Spawns a task for each settlement. The task sends the settlement in a separate call, and
    /// repeats the call as long as it fails because of other writes. After any other error, the
    /// settlement returns to the buffer.
    fn settle_apart(&mut self, run: &Arc<SettlerHandles>, contended: Batch) {
        for ending in contended.into_iter() {
            let (run, apart) = (Arc::clone(run), Arc::clone(&self.apart));
            self.contended.spawn(async move {
                let mut backoff = RetryDelays::of("settler");
                let job = ending.settlement.token.job;
                let one: Batch = [ending].into_iter().collect();
                let mut contentions = 0;
                loop {
                    let turn = apart.acquire().await;
                    let sent = send(&run, &one.settlements).await;
                    drop(turn);
                    match sent {
                        Ok(answers) => return wind_up(&run, &one, &answers).await,
                        Err(error) if contends(&error, &one) => {
                            contentions += 1;
                            if contentions == CONTENTIONS {
                                tracing::warn!(
                                    %job, %error,
                                    "settling a job contends with other writes or takes too long; \
                                     retrying"
                                );
                            }
                            tokio::time::sleep(backoff.next(run.common.random())).await;
                        }
                        Err(_) => return run.claims.settlements.put_back(one.into_iter()),
                    }
                }
            });
        }
    }

    /// Sends each settlement in a separate call. If the store rejects a settlement, or takes too
    /// long to write it, this affects only the job of this settlement.
    ///
    /// A settlement that is rejected or times out is retried later. If the store rejects its
    /// content as invalid, the job fails instead, with the store's error as the reason. If the
    /// store becomes unavailable, the current settlement and all remaining ones return to the
    /// buffer.
    async fn one_by_one(&mut self, run: &SettlerHandles, batch: Batch) {
        let mut batch = batch.into_iter();
        let mut timeouts_in_a_row = 0;
        while let Some(ending) = batch.next() {
            let one: Batch = [ending].into_iter().collect();
            match send(run, &one.settlements).await {
                Ok(answers) => {
                    timeouts_in_a_row = 0;
                    self.outage.ended();
                    wind_up(run, &one, &answers).await;
                }
                Err(error)
                    if error.kind() == StoreErrorKind::Timeout && timeouts_in_a_row < TIMEOUTS =>
                {
                    timeouts_in_a_row += 1;
                    self.outage.failed(&error);
                    one.into_iter().for_each(|ending| self.refused.push(ending));
                }
                Err(error) if error.is_transient() => {
                    self.outage.failed(&error);
                    run.claims
                        .settlements
                        .put_back(one.into_iter().chain(batch));
                    tokio::time::sleep(self.backoff.next(run.common.random())).await;
                    break;
                }
                Err(error) => {
                    metrics::settlement_refused();
                    for mut ending in one.into_iter() {
                        if !std::mem::replace(&mut ending.of.refused, true) {
                            let job = ending.settlement.token.job;
                            tracing::error!(%job, %error, "the store rejected the outcome of a job");
                        }
                        if error.kind() == StoreErrorKind::Invalid {
                            ending.settlement = failed(&ending.settlement, &error);
                        }
                        self.refused.push(ending);
                    }
                }
            }
        }
        if self.refused.is_empty() {
            self.backoff.reset();
            self.retry_at = None;
        } else if self.retry_at.is_none() {
            let wait = self.backoff.next(run.common.random());
            self.retry_at = Some(time::monotonic() + wait);
        }
    }
}

/// Returns whether the call may have failed because other calls blocked it. After a timeout, this
/// is likely only if other jobs wait for a job of the batch: the call then also writes rows that
/// other calls may have locked.
fn contends(error: &StoreError, batch: &Batch) -> bool {
    match error.kind() {
        StoreErrorKind::Contention => true,
        StoreErrorKind::Timeout => batch.of.iter().any(|of| of.awaited),
        _ => false,
    }
}

async fn send(run: &SettlerHandles, batch: &[Settlement]) -> Result<Vec<Fenced>> {
    let asked = time::monotonic();
    let calls = &run.common.calls;
    let settle = calls.call("settle", |store| store.jobs().settle(batch));
    let answers = settle.await;
    match &answers {
        Ok(_) => metrics::settled(batch.len(), asked.elapsed()),
        Err(error) => metrics::settle_failed(error.kind()),
    }
    answers
}

/// Settles claims that this node does not hold.
///
/// Sends all settlements in one call first. If this call fails because of contention or a timeout,
/// sends each settlement in a separate call. So the caller learns which claims have ended, even if
/// some claims cannot be settled. The caller cannot learn this later, because the store does not
/// list ended claims again.
///
/// No separate call starts later than one store deadline after the first call failed. Settlements
/// that are not sent in time get a `Timeout` error. If the first call fails for another reason, the
/// result has that error as its only element.
pub(crate) async fn settle_each(common: &Common, ends: &[Settlement]) -> Vec<Result<Fenced>> {
    let all = common
        .calls
        .call("settle", |store| store.jobs().settle(ends));
    let error = match all.await {
        Ok(answers) => return answers.into_iter().map(Ok).collect(),
        Err(error) => error,
    };
    let in_the_way = [StoreErrorKind::Contention, StoreErrorKind::Timeout];
    if !in_the_way.contains(&error.kind()) || ends.len() == 1 {
        return vec![Err(error)];
    }
    let until = time::monotonic() + common.config.store_deadline;
    let mut each = Vec::with_capacity(ends.len());
    for end in ends {
        each.push(settle_one(common, end.clone(), until));
    }
    stream::iter(each).buffered(APART).collect().await
}

async fn settle_one(common: &Common, end: Settlement, until: Instant) -> Result<Fenced> {
    if time::monotonic() > until {
        return Err(StoreError::new(StoreErrorKind::Timeout, "settle"));
    }
    let end = [end];
    let one = common
        .calls
        .call("settle", |store| store.jobs().settle(&end));
    Ok(one.await?.first().copied().unwrap_or(Fenced::Stale))
}

/// Counts the settlements of one pool in a batch: those sent, and those with each result.
#[derive(Clone, Copy, Default)]
struct Tally {
    sent: usize,
    settled: usize,
    finished: usize,
    stale: usize,
}

/// Returns a settlement that fails the job. It replaces `settlement`, which the store rejected with
/// `error`.
fn failed(settlement: &Settlement, error: &StoreError) -> Settlement {
    let error = format!("the outcome could not be stored: {error}");
    let failed = Settlement::new(settlement.token, Outcome::Failed { error });
    match settlement.ran_for {
        Some(ran_for) => failed.ran_for(ran_for),
        None => failed,
    }
}

/// Completes a batch that the store has written: calls [`let_go`], and wakes the pollers of this
/// node that may now find a job to claim. If the batch released permits, other nodes receive hints
/// first. Otherwise this node would claim the permits again before another node can.
async fn wind_up(run: &SettlerHandles, batch: &Batch, answers: &[Fenced]) {
    if !run.interval.is_alone() {
        let released = batch.of.iter().filter_map(|of| of.permit.clone());
        send_hints(run, released.collect()).await;
    }
    let_go(run, batch, answers);
    run.wake_queue.jobs_changed();
    if batch.makes_room {
        run.wake_queue.wake(None);
    }
}

/// Records that jobs of these routes released permits, and sends the hints that are due.
async fn send_hints(run: &SettlerHandles, released: HashSet<Route>) {
    if let Some(hints) = run.fairness.released(released, time::monotonic()) {
        let (routes, others_too) = (&hints.routes, hints.others_too);
        run.client.hint_permits(routes, others_too, SENDING).await;
    }
}

/// Removes the claims of a written batch from the claims that this node holds. Notifies the hooks,
/// and updates the counters of each pool.
fn let_go(run: &SettlerHandles, batch: &Batch, answers: &[Fenced]) {
    run.claims
        .ledger
        .settled(batch.settlements.iter().map(|one| one.token));
    let hooks = &run.claims.hooks;
    let mut tallies = vec![Tally::default(); run.claims.pools.len()];
    for of in &batch.of {
        tallies[of.pool].sent += 1;
    }
    for ((settlement, of), answer) in batch.settlements.iter().zip(&batch.of).zip(answers) {
        let tally = &mut tallies[of.pool];
        match answer {
            Fenced::Stale => {
                tally.stale += 1;
                if let Some(claim) = of.told.as_ref().filter(|_| settlement.ran_for.is_some()) {
                    hooks.tell(|hook| hook.job_lost(claim));
                }
            }
            Fenced::Applied => {
                tally.settled += 1;
                run.totals.ended(&settlement.outcome);
                run.claims.pools[of.pool]
                    .metrics
                    .settled(of.kind, &settlement.outcome);
                tally.finished += usize::from(settlement.effect(false).state.is_terminal());
                if let Some(claim) = &of.told {
                    hooks.tell(|hook| hook.job_ended(claim, settlement));
                }
            }
        }
    }
    let stale: usize = tallies.iter().map(|tally| tally.stale).sum();
    if stale > 0 {
        tracing::warn!(
            stale,
            "the node no longer held the claims of jobs when it settled them"
        );
    }
    for (pool, tally) in run.claims.pools.iter().zip(tallies) {
        if tally.sent > 0 {
            let counters = pool.counters();
            Counters::add(&counters.settled, tally.settled);
            Counters::add(&counters.finished, tally.finished);
            Counters::add(&counters.stale, tally.stale);
            pool.metrics.stale(tally.stale);
            run.claims.let_go(pool, tally.sent);
        }
    }
}
