//! The settler: ends claims in batches.
//!
//! Settlements are collected in a buffer and sent to the store in one call. They are sent at once
//! if no other claim of their pools is ready to run, because then no settlement is about to join
//! them. Otherwise they are sent when there are enough of them, or when [`LINGER`] has passed.
//! While one call is under way, the next batch is collected.
//!
//! If the store fails, the settler retries until it works. In the meantime the claims count as
//! held, so that the poller does not claim more jobs than fit. A settlement that the store rejects
//! permanently, although it accepts others, is retried separately. So is a settlement that contends
//! with a transaction that stays open, such as the end of a job whose lane is locked by a producer
//! that was killed. Each such settlement is sent in calls of its own, and does not delay the
//! others.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::buffer::{Batch, ENOUGH, MakesRoom};
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
use crate::time;

/// How long a settlement waits for others while more bodies are about to run.
const LINGER: Duration = Duration::from_millis(2);
/// How long settlements wait for the transport to accept the hint that permits are free.
pub(crate) const TELL: Duration = Duration::from_millis(20);
/// How often a batch may exceed the store's deadline before its settlements are sent one by one.
/// One of them may take too long, such as the end of a job that very many others wait for.
const TIMEOUTS: u32 = 1;
/// How many contended settlements are sent at once, each in a call of its own. It is less than the
/// number of connections in a store's default pool, because each call may occupy a connection until
/// its deadline.
const APART: usize = 5;
/// How often a settlement contends before a warning is logged.
const CONTENTIONS: u32 = 3;

/// The handles that the settler uses.
pub(crate) struct SettlerHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) claims: Arc<HeldClaims>,
    pub(crate) fairness: Arc<Fairness>,
    pub(crate) interval: Arc<HeartbeatInterval>,
    pub(crate) client: Client,
    pub(crate) wake_queue: Arc<WakeQueue>,
    pub(crate) totals: Arc<Totals>,
}

/// Settles claims, as long as the node runs.
pub(crate) async fn run(run: Arc<SettlerHandles>) {
    let mut settler = Settler::new();
    loop {
        tokio::select! {
            biased;
            () = gather(&run) => {}
            () = settler.retry_is_due() => {}
            () = run.fairness.owed() => {
                run.fairness.told(time::monotonic());
                run.client.wake_others(TELL).await;
            }
        }
        settler.tick(&run).await;
    }
}

/// Waits until there is a batch to send.
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

/// The state of a settler from one batch to the next.
struct Settler {
    outage: Outage,
    /// Settlements that the store rejects, although it accepts others.
    refused: Batch,
    retry_at: Option<Instant>,
    backoff: RetryDelays,
    /// Settlements that contend, each in a task of its own.
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

    /// Sends the collected settlements, and retries until the store has accepted them. Then retries
    /// the rejected settlements if their retry is due.
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
                    tracing::debug!(%error, jobs = batch.len(), "settlements contend with other writes, trying again");
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

    /// Settles each claim in a task of its own, which retries while the settlement contends.
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
                                    "settling a job contends with other writes or takes too long, trying again"
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

    /// Settles each claim in a call of its own, so that a settlement that the store rejects, or
    /// that takes too long, affects only its own job. An invalid settlement is replaced by a
    /// failure with the reason. The others are retried later. If the store fails in the meantime,
    /// the remaining settlements are put back into the buffer.
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

/// Returns whether other calls may have blocked this batch. If other jobs wait for a job of the
/// batch, a timeout counts too, because a store that waits for a lock may exceed its deadline.
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
/// If one of them contends, or takes too long, each is settled in a call of its own. So the caller
/// learns which claims have ended, which the store will not list again. No call begins later than
/// one deadline after the first call failed; the remaining claims get a `Timeout`. On any other
/// failure the only answer is the error.
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

/// Counts the claims of one pool in a batch, by the store's answer.
#[derive(Clone, Copy, Default)]
struct Tally {
    sent: usize,
    settled: usize,
    finished: usize,
    stale: usize,
}

/// Returns the settlement for a claim whose outcome cannot be stored.
fn failed(settlement: &Settlement, error: &StoreError) -> Settlement {
    let error = format!("the outcome could not be stored: {error}");
    let failed = Settlement::new(settlement.token, Outcome::Failed { error });
    match settlement.ran_for {
        Some(ran_for) => failed.ran_for(ran_for),
        None => failed,
    }
}

/// Stops holding the claims of a batch that was written, and wakes the nodes that may now have a
/// job to claim. If permits were released, the other nodes are woken first, because this node asks
/// for jobs as soon as it has room.
async fn wind_up(run: &SettlerHandles, batch: &Batch, answers: &[Fenced]) {
    if batch.makes_room == MakesRoom::Everywhere
        && !run.interval.is_alone()
        && run.fairness.freed(time::monotonic())
    {
        run.client.wake_others(TELL).await;
    }
    let_go(run, batch, answers);
    if batch.makes_room != MakesRoom::No {
        run.wake_queue.wake(None);
    }
}

/// Notifies the hooks of the ends, counts the claims of each pool, and stops holding them.
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
            "jobs were taken away from this node before it settled them"
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
