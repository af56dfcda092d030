//! The poller: claims as many jobs as its pool has room for. Every pool has one.
//!
//! The poller asks for no more jobs than the pool can hold, and makes no call when there is no
//! room. After a full batch it asks again at once. After a short batch no more jobs are due, so it
//! waits. If a job of the batch had been due for some time, the wait is `poll_interval.min`.
//! Otherwise each wait is longer than the one before, up to `poll_interval.max`. Each wait has
//! jitter, and a wakeup ends it. If the store fails, the poller retries with growing delays.
//!
//! While another loop looks for due jobs on behalf of all nodes, and its beacons reach this node,
//! an idle poller polls only every [`QUIET`] times `poll_interval.max`: see
//! [`due_watch`](crate::engine::maintain::due_watch).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::prefetch::FinishRate;
use crate::client::{RetryDelays, Seat, WakeQueue};
use crate::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use crate::engine::common::Common;
use crate::engine::execute::running::RunningSet;
use crate::engine::lead::gate::Gate;
use crate::engine::membership::beacons::Beacons;
use crate::engine::membership::heartbeat_interval::HeartbeatInterval;
use crate::engine::membership::identity::Identity;
use crate::engine::pools::counters::Counters;
use crate::engine::pools::ready::Ready;
use crate::engine::pools::run_pool::RunPool;
use crate::engine::settle::fairness::Fairness;
use crate::engine::settle::held_claims::HeldClaims;
use crate::error::Result;
use crate::id::NodeId;
use crate::metrics;
use crate::model::{Claim, ClaimRequest, ClaimedJob};
use crate::name::Name;
use crate::route::Selection;
use crate::time::{self, millis_between, to_millis};

/// The factor by which each wait of an idle poller is longer than the one before, up to [`GROWN`].
const GROWTH: f64 = 1.5;
/// Once the wait of an idle poller has reached this time, its next wait is `poll_interval.max`.
const GROWN: Duration = Duration::from_secs(1);
/// The factor by which the wait of an idle poller is longer than `poll_interval.max` while another
/// loop looks for due jobs. With the defaults this wait is 15 s.
const QUIET: u32 = 15;
/// The most jobs that one call asks for. The number is large enough to spread the cost of a call.
/// In the benchmark, emptying a queue on PostgreSQL reached 0.68 of the throughput of a
/// hand-written loop with 256, and 0.73 with 320. With 512 it reached only 0.50, because claims and
/// settlements wait for each other.
const MAX_CLAIM: usize = 320;
/// How many batches a pool that prefetches holds at once: one is claimed while the other one runs
/// and is settled. If a batch fills more than half of the capacity, the next claim waits until the
/// batch is settled. Then fewer jobs end per second, the pool prefetches less, and batches go on to
/// fill more than half of its capacity.
const BATCHES: usize = 2;

/// The handles that the pollers use.
pub(crate) struct PollerHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) interval: Arc<HeartbeatInterval>,
    pub(crate) claims: Arc<HeldClaims>,
    pub(crate) running: Arc<RunningSet>,
    pub(crate) fairness: Arc<Fairness>,
    pub(crate) gate: Gate,
    pub(crate) beacons: Arc<Beacons>,
    pub(crate) coordinator: Arc<dyn ClusterCoordinator>,
    /// The id under which the node sends its wakeups.
    pub(crate) source: NodeId,
    pub(crate) wake_queue: Arc<WakeQueue>,
    /// Cancelled when the run stops claiming.
    pub(crate) draining: CancellationToken,
}

/// Claims for one pool until the node drains.
pub(crate) async fn run(run: Arc<PollerHandles>, pool: usize) {
    let pool = &run.claims.pools[pool];
    let mut poller = Poller::new(&run, pool);
    let mut wakeups = run.coordinator.subscribe();
    let seat = run.wake_queue.seat(pool.index);
    while !run.draining.is_cancelled() {
        seat.set_room(0);
        if let Some(gate) = run.gate.closed() {
            let mut watch = gate.watch();
            tokio::select! {
                biased;
                () = run.draining.cancelled() => return,
                _ = watch.elected() => {}
            }
        }
        if let Some(until) = run.fairness.until(time::monotonic()) {
            pool.metrics.permit_rest();
            tokio::select! {
                biased;
                () = run.draining.cancelled() => return,
                () = tokio::time::sleep_until(until) => {}
            }
            continue;
        }
        let Some(limit) = poller.room(pool) else {
            // The room also depends on the rate at which jobs end, so it is computed again
            // regularly.
            tokio::select! {
                biased;
                () = run.draining.cancelled() => return,
                () = pool.room.notified() => {}
                () = tokio::time::sleep(run.common.config.poll_max) => {}
            }
            continue;
        };
        let free = || pool.share().concurrency.saturating_sub(pool.held());
        seat.set_room(free());
        wakeups.clear();
        let wait = poller.tick(&run, pool, limit).await;
        if !wait.is_zero() {
            pool.metrics.poll_delay(wait);
        }
        seat.set_room(if poller.failing { 0 } else { free() });
        if wait.is_zero() {
            continue;
        }
        let longest = poller.quiet_wait(&run, pool, wait);
        let failing = poller.failing;
        let idle = idle(&run, pool, &seat, (wait, longest), failing, &mut wakeups);
        if idle.await {
            poller.wake();
        }
    }
}

/// The state of a poller from one poll to the next.
struct Poller {
    request: ClaimRequest,
    rate: FinishRate,
    delay: Duration,
    backoff: RetryDelays,
    failing: bool,
    /// When to poll next for all kinds that are not throttled.
    due_at: Instant,
}

impl Poller {
    fn new(run: &PollerHandles, pool: &RunPool) -> Self {
        let config = &run.common.config;
        let share = pool.share();
        let request = share.request(run.identity.node());
        let request = request.aging(config.aging).payloads(!config.lazy_payloads);
        Self {
            request,
            rate: FinishRate::new(time::monotonic()),
            delay: config.poll_min,
            backoff: RetryDelays::of("poller").about(&share.name),
            failing: false,
            due_at: time::monotonic(),
        }
    }

    /// Makes the next poll due at once.
    fn wake(&mut self) {
        self.due_at = time::monotonic();
    }

    /// Returns how many jobs to ask for. `None` while there is too little room for a call.
    fn room(&mut self, pool: &RunPool) -> Option<usize> {
        let share = pool.share();
        let finished = Counters::read(&pool.counters().finished);
        self.rate.measure(finished, time::monotonic());
        let capacity = share.concurrency + self.rate.prefetch(share.prefetch);
        let (refill_at, batch) = refill(share.concurrency, capacity);
        pool.refill_at.store(refill_at, Ordering::SeqCst);
        let held = pool.held();
        (held <= refill_at).then(|| (capacity - held).min(batch))
    }

    /// Polls at most once, for a throttled kind if its poll is due. Returns how long to wait before
    /// the next poll.
    async fn tick(&mut self, run: &PollerHandles, pool: &RunPool, limit: usize) -> Duration {
        let throttles = &pool.throttles;
        let began = time::monotonic();
        // If both polls are due, the one that was due earlier is made first, so that neither delays
        // the other for long.
        let asks = throttles
            .next()
            .filter(|at| *at <= self.due_at || self.due_at > began);
        if let Some((kind, share)) = asks.and_then(|_| throttles.due(began)) {
            let limit = limit.min(share);
            let (claimed, wait) = self.poll(run, pool, limit, vec![kind.clone()]).await;
            match claimed {
                Some(claimed) if claimed < limit => throttles.lift(&kind),
                Some(_) => {}
                None => self.due_at = time::monotonic() + wait,
            }
        } else if self.due_at <= began {
            let kinds = throttles.open_ones(&pool.share().kinds);
            let wait = if kinds.is_empty() {
                run.common.config.poll_max
            } else {
                self.poll(run, pool, limit, kinds).await.1
            };
            self.due_at = time::monotonic() + wait;
        }
        let next = throttles.next().filter(|_| !self.failing);
        let next = next.map_or(self.due_at, |at| at.min(self.due_at));
        next.saturating_duration_since(time::monotonic())
    }

    /// Returns how long to wait before the next poll while another loop looks for due jobs. The
    /// result is longer than `wait` if the last polls found few jobs.
    fn quiet_wait(&self, run: &PollerHandles, pool: &RunPool, wait: Duration) -> Duration {
        let longest = run.common.config.poll_max;
        if self.failing || self.delay < longest {
            return wait;
        }
        let quiet = run.common.pause(longest * QUIET);
        let throttled = pool.throttles.next();
        throttled.map_or(quiet, |at| {
            let until = at.saturating_duration_since(time::monotonic());
            quiet.min(until).max(wait)
        })
    }

    /// Asks for jobs of these kinds. Returns how many jobs the store returned, or `None` if the
    /// call failed, and how long to wait before asking for more of them.
    async fn poll(
        &mut self,
        run: &PollerHandles,
        pool: &RunPool,
        limit: usize,
        kinds: Vec<Name>,
    ) -> (Option<usize>, Duration) {
        let config = &run.common.config;
        self.request.node = run.identity.node();
        self.request.limit = limit;
        self.request.kinds = Selection::Only(kinds);
        // The requested claims count as held before the call, so that a drain that begins in the
        // meantime waits for the answer.
        pool.hold(limit);
        let asked = time::monotonic();
        let answer = claim(run, pool, &self.request).await;
        pool.metrics
            .polled(limit, answer.as_ref().map(Vec::len).ok());
        let claimed = answer.as_ref().map_or(0, Vec::len);
        // A store must not return more jobs than asked for, but if it does, the node holds them.
        pool.hold(claimed.saturating_sub(limit));
        run.claims.let_go(pool, limit.saturating_sub(claimed));
        match answer {
            Ok(batch) => {
                self.rate.called(asked.elapsed());
                self.backoff.reset();
                if std::mem::take(&mut self.failing) || run.claims.ledger.awaits_calls() {
                    run.interval.doubt_claims();
                }
                // A job that a wakeup announced is claimed at once, so it does not count as late.
                // More frequent polls would not find it sooner.
                let late = batch
                    .iter()
                    .any(|ready| was_due_for(&ready.claim) >= config.poll_min);
                accept(run, pool, batch);
                if claimed == limit {
                    self.delay = config.poll_min;
                    return (Some(claimed), Duration::ZERO);
                }
                let delay = if late { config.poll_min } else { self.delay };
                self.delay = match delay < GROWN {
                    true => delay.mul_f64(GROWTH).min(config.poll_max),
                    false => config.poll_max,
                };
                let wait = run.common.pause(delay).min(config.poll_max);
                (Some(claimed), wait)
            }
            Err(error) => {
                // The call may have claimed jobs although it failed. Once the store works again,
                // another heartbeat finds the claims of calls that took effect late.
                if !std::mem::replace(&mut self.failing, true) {
                    run.interval.doubt_claims();
                }
                (None, self.backoff.failed(&error, run.common.random()))
            }
        }
    }
}

/// Returns up to how many held claims a pool asks for more, and the most that it asks for at once.
/// `capacity` is the number of claims that it holds at most, with those that it prefetches.
///
/// A pool that prefetches refills when half of its capacity is free, so that batches stay large. A
/// free slot never waits for that.
fn refill(concurrency: usize, capacity: usize) -> (usize, usize) {
    let refill_at = (capacity / 2).max(concurrency - 1);
    let batch = (capacity / BATCHES).max(concurrency).min(MAX_CLAIM);
    (refill_at, batch)
}

/// Returns how long the job had been due when it was claimed.
fn was_due_for(claim: &Claim) -> Duration {
    let (due, claimed) = (to_millis(claim.run_at), to_millis(claim.token.claimed_at));
    millis_between(due, claimed)
}

/// Makes one claim call, and records the claims that it returns as held.
pub(crate) async fn claim(
    run: &PollerHandles,
    pool: &RunPool,
    request: &ClaimRequest,
) -> Result<Vec<Ready>> {
    let counters = pool.counters();
    Counters::add(&counters.claim_calls, 1);
    let under_way = run.claims.ledger.begin_call();
    let calls = &run.common.calls;
    let claim = calls.call("claim", |store| store.jobs().claim_next_batch(request));
    let ready = |job: ClaimedJob| Ready {
        claim: Arc::new(job.claim),
        node: request.node,
        input: job.input,
        received: time::monotonic(),
    };
    let batch: Vec<Ready> = claim.await?.into_iter().map(ready).collect();
    under_way.deliver(batch.iter().map(|ready| ready.claim.token));
    // If a body of a claimed job still runs on this node, the store has already taken back its
    // earlier claim.
    run.running
        .lose(batch.iter().map(|ready| ready.claim.token.job));
    Counters::add(&counters.claimed, batch.len());
    Ok(batch)
}

/// Passes a batch to the slots, or hands it back if the node has begun to drain or may not claim.
fn accept(run: &PollerHandles, pool: &RunPool, batch: Vec<Ready>) {
    if !batch.is_empty() {
        run.interval.at_work();
    }
    if run.draining.is_cancelled() || run.gate.is_closed() {
        run.claims.hand_back(pool, batch);
    } else {
        pool.ready.push(batch);
        pool.metrics.waiting.set(pool.ready.len());
    }
}

/// Waits for `wait`, or for up to `longest` while another loop looks for due jobs. Returns `true`
/// if a wakeup ended the wait. While the store fails, wakeups do not end it.
async fn idle(
    run: &PollerHandles,
    pool: &RunPool,
    seat: &Seat<'_>,
    (wait, longest): (Duration, Duration),
    failing: bool,
    wakeups: &mut WakeupStream,
) -> bool {
    let began = time::monotonic();
    let mut waited = wait;
    loop {
        tokio::select! {
            biased;
            () = run.draining.cancelled() => return false,
            () = seat.woken(), if !failing => return true,
            wakeup = wakeups.next(), if !failing => {
                if concerns(run, pool, &wakeup) {
                    metrics::wakeup_received(&pool.share().name);
                    return true;
                }
            }
            () = tokio::time::sleep_until(began + waited) => {
                if waited >= longest || run.beacons.leader().is_none() {
                    return false;
                }
                waited = longest.min(waited + run.common.config.poll_max);
            }
        }
    }
}

/// Returns whether a wakeup concerns this pool. The wakeup must be about a queue of this pool, and
/// either be addressed to this node or be sent by another node to all. A beacon concerns no pool.
fn concerns(run: &PollerHandles, pool: &RunPool, wakeup: &Wakeup) -> bool {
    let queues = &pool.share().queues;
    let is_for_this_node = match wakeup.to {
        Some(_) if wakeup.wakes_no_node() => false,
        Some(to) => to == run.source || to == run.identity.node(),
        None => !wakeup.is_echo_of(run.source),
    };
    is_for_this_node
        && wakeup
            .queue
            .as_ref()
            .is_none_or(|queue| queues.contains(queue))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_pool_that_prefetches_claims_while_it_settles(concurrency in 1..500_usize, prefetch in 0..10_000_usize) {
            let capacity = concurrency + prefetch;
            let (refill_at, batch) = refill(concurrency, capacity);
            prop_assert!((1..=MAX_CLAIM).contains(&batch));
            prop_assert!(concurrency <= refill_at + 1, "a free slot waits");
            if prefetch >= concurrency {
                prop_assert!(batch <= refill_at, "a batch that is settled keeps the pool waiting");
            }
        }
    }
}
