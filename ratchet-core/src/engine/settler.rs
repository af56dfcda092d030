//! The settler: ends claims, many at a time.
//!
//! Settlements gather in a buffer and go to the store in one call: at once when no other claim is
//! ready to run, since then nothing is about to join them; otherwise when there are enough of them
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
    pending: Mutex<Pending>,
    changed: Notify,
}

#[derive(Default)]
struct Pending {
    settlements: Vec<Settlement>,
    /// Whether one of them ends the head of a lane.
    heads: bool,
}

impl SettleBuffer {
    /// Adds one; `more_coming` says that others are likely to follow within microseconds.
    pub(super) fn push(&self, settlement: Settlement, more_coming: bool) {
        self.add(settlement, more_coming, false);
    }

    /// Adds one that ends the head of a lane: another job is due once it is settled.
    pub(super) fn push_head(&self, settlement: Settlement, more_coming: bool) {
        self.add(settlement, more_coming, true);
    }

    fn add(&self, settlement: Settlement, more_coming: bool, head: bool) {
        let mut pending = self.pending();
        pending.settlements.push(settlement);
        pending.heads |= head;
        let count = pending.settlements.len();
        drop(pending);
        if count == 1 || count == ENOUGH || !more_coming {
            self.changed.notify_one();
        }
    }

    /// Puts back what could not be sent, before the others.
    fn put_back(&self, settlements: impl Iterator<Item = Settlement>) {
        self.pending().settlements.splice(0..0, settlements);
        self.changed.notify_one();
    }

    fn len(&self) -> usize {
        self.pending().settlements.len()
    }

    /// What is to be sent now, and whether heads of lanes are among it.
    fn take(&self) -> (Vec<Settlement>, bool) {
        let mut pending = self.pending();
        let count = pending.settlements.len().min(crate::limits::MAX_BATCH);
        let rest = pending.settlements.split_off(count);
        let heads = pending.heads;
        pending.heads &= !rest.is_empty();
        (std::mem::replace(&mut pending.settlements, rest), heads)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
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
    while run.ready.len() > 0 && buffer.len() < ENOUGH {
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
    refused: Vec<Settlement>,
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
        let (batch, heads) = run.settlements.take();
        let mut backoff = Backoff::default();
        while !batch.is_empty() {
            match send(run, &batch).await {
                Ok(answers) => {
                    count(run, &batch, &answers);
                    if heads {
                        run.shared.poll.notify_one();
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
    async fn one_by_one(&mut self, run: &Run, batch: Vec<Settlement>) {
        let mut batch = batch.into_iter();
        while let Some(settlement) = batch.next() {
            let one = std::slice::from_ref(&settlement);
            match send(run, one).await {
                Ok(answers) => count(run, one, &answers),
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, "settling failed, trying again");
                    let rest = std::iter::once(settlement).chain(batch);
                    run.settlements.put_back(rest);
                    tokio::time::sleep(self.backoff.next(run.shared.random())).await;
                    break;
                }
                Err(error) if error.kind() == StoreErrorKind::Invalid => {
                    let error = format!("the outcome could not be stored: {error}");
                    let failed = Outcome::Failed { error };
                    self.refused.push(Settlement::new(settlement.token, failed));
                }
                Err(_) => self.refused.push(settlement),
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

/// Counts what was settled, and lets it go.
fn count(run: &Run, batch: &[Settlement], answers: &[Fenced]) {
    let stale = answers
        .iter()
        .filter(|answer| **answer == Fenced::Stale)
        .count();
    let finished = batch
        .iter()
        .zip(answers)
        .filter(|(_, answer)| **answer == Fenced::Applied)
        .filter(|(settlement, _)| settlement.effect(false).state.is_terminal())
        .count();
    let counters = &run.shared.counters;
    Counters::add(&counters.settled, answers.len() - stale);
    Counters::add(&counters.finished, finished);
    Counters::add(&counters.stale, stale);
    if stale > 0 {
        tracing::warn!(
            stale,
            "jobs were taken away from this node before it settled them"
        );
    }
    run.let_go(batch.len());
}
