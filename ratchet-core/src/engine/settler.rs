//! The settler: ends claims, many at a time.
//!
//! Settlements gather in a buffer and go to the store in one call: at once when no other claim of
//! their pools is ready to run, since then nothing is about to join them; otherwise when there are enough of them
//! or [`LINGER`] is over. While one call is under way the next batch gathers. A store that fails is
//! tried again until it works; meanwhile the claims count as held, so that the poller takes no
//! more. What a store refuses for good, though it takes others, waits apart.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::run::Run;
use super::shared::Counters;
use crate::client::Backoff;
use crate::error::{Result, StoreErrorKind};
use crate::model::{Fenced, Outcome, Settlement};
use crate::time;

/// How long a settlement waits for others while more bodies are about to run.
const LINGER: Duration = Duration::from_millis(2);
/// How many settlements are enough to go.
const ENOUGH: usize = 256;

/// Settlements that are to be sent.
#[derive(Default)]
pub(super) struct SettleBuffer {
    pending: Mutex<Batch>,
    changed: Notify,
}

/// Settlements, and beside each the place of the pool whose claim it ends: the store is given the
/// settlements as they lie.
#[derive(Default)]
struct Batch {
    settlements: Vec<Settlement>,
    pools: Vec<usize>,
    /// Whether one of them lets others go, by its lane or by links: those are due once it is settled.
    heads: bool,
}

impl Batch {
    fn len(&self) -> usize {
        self.settlements.len()
    }

    fn is_empty(&self) -> bool {
        self.settlements.is_empty()
    }

    fn push(&mut self, settlement: Settlement, pool: usize) {
        self.settlements.push(settlement);
        self.pools.push(pool);
    }

    /// Takes the first `count`.
    fn take(&mut self, count: usize) -> Self {
        let rest = Self {
            heads: self.heads && count < self.len(),
            settlements: self.settlements.split_off(count),
            pools: self.pools.split_off(count),
        };
        std::mem::replace(self, rest)
    }

    fn into_iter(self) -> impl Iterator<Item = (Settlement, usize)> {
        self.settlements.into_iter().zip(self.pools)
    }
}

impl SettleBuffer {
    /// Adds one that ends a claim of this pool, perhaps one that lets others go (`head`);
    /// `more_coming` says that others are likely to follow within microseconds.
    pub(super) fn push(&self, settlement: Settlement, pool: usize, head: bool, more_coming: bool) {
        let mut pending = self.pending();
        pending.push(settlement, pool);
        pending.heads |= head;
        let count = pending.len();
        drop(pending);
        if count == 1 || count == ENOUGH || !more_coming {
            self.changed.notify_one();
        }
    }

    /// Puts back what could not be sent, before the others.
    fn put_back(&self, settlements: impl Iterator<Item = (Settlement, usize)>) {
        let (settlements, pools): (Vec<_>, Vec<_>) = settlements.unzip();
        let mut pending = self.pending();
        pending.settlements.splice(0..0, settlements);
        pending.pools.splice(0..0, pools);
        drop(pending);
        self.changed.notify_one();
    }

    fn len(&self) -> usize {
        self.pending().len()
    }

    /// Whether others are likely to join: a body is about to begin in a pool of which something is
    /// to be settled. What waits in other pools holds nothing up.
    fn awaits(&self, run: &Run) -> bool {
        let pending = self.pending();
        let mut pools = pending.pools.iter();
        pools.any(|pool| run.pools[*pool].ready.len() > 0)
    }

    fn take(&self) -> Batch {
        let mut pending = self.pending();
        let count = pending.len().min(crate::limits::MAX_BATCH);
        pending.take(count)
    }

    fn pending(&self) -> MutexGuard<'_, Batch> {
        self.pending
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Settles for as long as the node runs.
pub(super) async fn run(run: Arc<Run>) {
    let mut settler = Settler::default();
    loop {
        tokio::select! {
            biased;
            () = gather(&run) => {}
            () = settler.retry_is_due() => {}
        }
        settler.tick(&run).await;
    }
}

/// Waits until there is a batch to send.
async fn gather(run: &Run) {
    let buffer = &run.settlements;
    while buffer.len() == 0 {
        buffer.changed.notified().await;
    }
    let linger = tokio::time::sleep(LINGER);
    tokio::pin!(linger);
    while buffer.awaits(run) && buffer.len() < ENOUGH {
        tokio::select! {
            biased;
            () = buffer.changed.notified() => {}
            () = &mut linger => return,
        }
    }
}

/// What a settler remembers from one batch to the next.
#[derive(Default)]
pub(super) struct Settler {
    /// Settlements that the store does not take, though it takes others.
    refused: Batch,
    retry_at: Option<Instant>,
    backoff: Backoff,
}

impl Settler {
    async fn retry_is_due(&self) {
        match self.retry_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Sends what has gathered, until the store has taken it, and again what it refused before.
    pub(super) async fn tick(&mut self, run: &Run) {
        let batch = run.settlements.take();
        let mut backoff = Backoff::default();
        while !batch.is_empty() {
            match send(run, &batch.settlements).await {
                Ok(answers) => {
                    count(run, &batch.settlements, &batch.pools, &answers);
                    if batch.heads {
                        run.shared.bells.ring(None);
                    }
                    break;
                }
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, jobs = batch.len(), "settling failed, trying again");
                    tokio::time::sleep(backoff.next(run.shared.random())).await;
                }
                Err(error) => {
                    tracing::error!(%error, "the store refused settlements");
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

    /// Settles each by itself, so that one that the store refuses harms only its own job. One that
    /// is invalid is failed with the reason; the others are tried again later. If the store fails
    /// meanwhile, the rest goes back to where it came from.
    async fn one_by_one(&mut self, run: &Run, batch: Batch) {
        let mut batch = batch.into_iter();
        while let Some((settlement, pool)) = batch.next() {
            let one = std::slice::from_ref(&settlement);
            match send(run, one).await {
                Ok(answers) => count(run, one, &[pool], &answers),
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, "settling failed, trying again");
                    let rest = std::iter::once((settlement, pool)).chain(batch);
                    run.settlements.put_back(rest);
                    tokio::time::sleep(self.backoff.next(run.shared.random())).await;
                    break;
                }
                Err(error) if error.kind() == StoreErrorKind::Invalid => {
                    let error = format!("the outcome could not be stored: {error}");
                    let failed = Outcome::Failed { error };
                    let settlement = Settlement::new(settlement.token, failed);
                    self.refused.push(settlement, pool);
                }
                Err(_) => self.refused.push(settlement, pool),
            }
        }
        if self.refused.is_empty() {
            self.backoff.reset();
            self.retry_at = None;
        } else if self.retry_at.is_none() {
            let wait = self.backoff.next(run.shared.random());
            self.retry_at = Some(time::monotonic() + wait);
        }
    }
}

async fn send(run: &Run, batch: &[Settlement]) -> Result<Vec<Fenced>> {
    run.shared
        .calls
        .call("settle", |store| store.jobs().settle(batch))
        .await
}

/// What became of the claims of one pool.
#[derive(Clone, Copy, Default)]
struct Tally {
    sent: usize,
    settled: usize,
    finished: usize,
    stale: usize,
}

/// Counts what was settled, pool by pool, and lets it go.
fn count(run: &Run, batch: &[Settlement], pools: &[usize], answers: &[Fenced]) {
    let mut tallies = vec![Tally::default(); run.pools.len()];
    for pool in pools {
        tallies[*pool].sent += 1;
    }
    for ((settlement, pool), answer) in batch.iter().zip(pools).zip(answers) {
        let tally = &mut tallies[*pool];
        match answer {
            Fenced::Stale => tally.stale += 1,
            Fenced::Applied => {
                tally.settled += 1;
                tally.finished += usize::from(settlement.effect(false).state.is_terminal());
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
    for (pool, tally) in run.pools.iter().zip(tallies) {
        if tally.sent > 0 {
            let counters = pool.counters(&run.shared);
            Counters::add(&counters.settled, tally.settled);
            Counters::add(&counters.finished, tally.finished);
            Counters::add(&counters.stale, tally.stale);
            run.let_go(pool, tally.sent);
        }
    }
}
