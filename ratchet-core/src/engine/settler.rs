//! The settler: ends claims, many at a time.
//!
//! Settlements gather in a buffer and go to the store in one call: at once when no other claim is
//! ready to run, since then nothing is about to join them; otherwise when there are enough of them
//! or [`LINGER`] is over. While one call is under way the next batch gathers. A store that fails is
//! tried again until it works; meanwhile the claims count as held, so that the poller takes no
//! more.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::run::Run;
use super::shared::Counters;
use crate::client::Backoff;
use crate::error::{Result, StoreErrorKind};
use crate::model::{Fenced, Outcome, Settlement};

/// How long a settlement waits for others while more bodies are about to run.
const LINGER: Duration = Duration::from_millis(2);
/// How many settlements are enough to go.
const ENOUGH: usize = 256;

/// Settlements that are to be sent.
#[derive(Default)]
pub(super) struct SettleBuffer {
    pending: Mutex<Vec<Settlement>>,
    changed: Notify,
}

impl SettleBuffer {
    /// Adds one; `more_coming` says that others are likely to follow within microseconds.
    pub(super) fn push(&self, settlement: Settlement, more_coming: bool) {
        let mut pending = self.pending();
        pending.push(settlement);
        let count = pending.len();
        drop(pending);
        if count == 1 || count == ENOUGH || !more_coming {
            self.changed.notify_one();
        }
    }

    fn len(&self) -> usize {
        self.pending().len()
    }

    fn take(&self) -> Vec<Settlement> {
        let mut pending = self.pending();
        let count = pending.len().min(crate::limits::MAX_BATCH);
        let rest = pending.split_off(count);
        std::mem::replace(&mut *pending, rest)
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Settlement>> {
        self.pending
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Settles for as long as the node runs.
pub(super) async fn run(run: Arc<Run>) {
    loop {
        gather(&run).await;
        tick(&run).await;
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

/// Sends what has gathered, until the store has taken it.
pub(super) async fn tick(run: &Run) {
    let mut batch = run.settlements.take();
    let mut backoff = Backoff::default();
    while !batch.is_empty() {
        match send(run, &batch).await {
            Ok(answers) => {
                count(run, &answers);
                run.let_go(batch.len());
                return;
            }
            Err(error) if error.kind() == StoreErrorKind::Invalid => {
                tracing::error!(%error, "the store refused settlements");
                batch = settle_one_by_one(run, batch).await;
            }
            Err(error) => {
                tracing::warn!(%error, jobs = batch.len(), "settling failed, trying again");
                tokio::time::sleep(backoff.next(run.shared.random())).await;
            }
        }
    }
}

async fn send(run: &Run, batch: &[Settlement]) -> Result<Vec<Fenced>> {
    run.shared
        .calls
        .call("settle", |store| store.jobs().settle(batch))
        .await
}

fn count(run: &Run, answers: &[Fenced]) {
    let stale = answers
        .iter()
        .filter(|answer| **answer == Fenced::Stale)
        .count();
    let counters = &run.shared.counters;
    Counters::add(&counters.settled, answers.len() - stale);
    Counters::add(&counters.stale, stale);
    if stale > 0 {
        tracing::warn!(
            stale,
            "jobs were taken away from this node before it settled them"
        );
    }
}

/// Settles each by itself, so that one that the store refuses harms only its own job: that one is
/// then failed with the reason. Returns what is still to be sent.
async fn settle_one_by_one(run: &Run, batch: Vec<Settlement>) -> Vec<Settlement> {
    let mut left = Vec::new();
    for settlement in batch {
        match send(run, std::slice::from_ref(&settlement)).await {
            Ok(answers) => {
                count(run, &answers);
                run.let_go(1);
            }
            Err(error) if error.kind() == StoreErrorKind::Invalid => {
                let error = format!("the outcome could not be stored: {error}");
                left.push(Settlement::new(settlement.token, Outcome::Failed { error }));
            }
            Err(_) => left.push(settlement),
        }
    }
    left
}
