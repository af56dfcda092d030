use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::id::{ClaimToken, NodeId};
use crate::model::{Claim, JobInput};

/// Claim whose job body has not begun.
pub(crate) struct Ready {
    pub(crate) claim: Arc<Claim>,
    /// Node id under which the job was claimed. The id of the node may have changed since then.
    pub(crate) node: NodeId,
    /// Input of the job. `None` if the input was not read yet.
    pub(crate) input: Option<JobInput>,
    pub(crate) received: Instant,
}

/// Queue of claims that wait for a slot, in claim order.
pub(crate) struct ReadyQueue {
    items: Mutex<VecDeque<Ready>>,
    /// Semaphore that has at least one permit per waiting claim. A task that gets a permit and
    /// finds no claim waits for another permit.
    permits: Semaphore,
    len: AtomicUsize,
}

impl ReadyQueue {
    pub(crate) fn new() -> Self {
        Self {
            items: Mutex::default(),
            permits: Semaphore::new(0),
            len: AtomicUsize::new(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn push(&self, batch: impl IntoIterator<Item = Ready>) {
        let mut items = self.items();
        let before = items.len();
        items.extend(batch);
        let added = items.len() - before;
        self.len.store(items.len(), Ordering::Release);
        drop(items);
        self.permits.add_permits(added);
    }

    /// Waits until the queue has a claim. Removes and returns the first claim.
    ///
    /// # Cancel safety
    /// If the future is dropped, no claim is removed.
    pub(crate) async fn pop(&self) -> Ready {
        loop {
            match self.permits.acquire().await {
                Ok(permit) => permit.forget(),
                // `acquire` fails only if the semaphore is closed, which never happens.
                Err(_) => std::future::pending().await,
            }
            let mut items = self.items();
            if let Some(item) = items.pop_front() {
                self.len.store(items.len(), Ordering::Release);
                return item;
            }
        }
    }

    /// Removes and returns all claims.
    pub(crate) fn take_all(&self) -> Vec<Ready> {
        self.take_while(|_| true)
    }

    /// Removes and returns the claims that have waited for longer than `age` at the time `now`.
    pub(crate) fn take_older(&self, age: Duration, now: Instant) -> Vec<Ready> {
        self.take_while(|item| now.saturating_duration_since(item.received) > age)
    }

    fn take_while(&self, taken: impl Fn(&Ready) -> bool) -> Vec<Ready> {
        let mut items = self.items();
        let count = items.iter().take_while(|item| taken(item)).count();
        let out = items.drain(..count).collect();
        self.len.store(items.len(), Ordering::Release);
        out
    }

    /// Removes and returns the claims with these tokens. Ignores tokens that are not in the queue.
    pub(crate) fn take_these(&self, tokens: &[ClaimToken]) -> Vec<Ready> {
        if tokens.is_empty() {
            return Vec::new();
        }
        let mut items = self.items();
        let (taken, kept): (VecDeque<Ready>, VecDeque<Ready>) = items
            .drain(..)
            .partition(|item| tokens.contains(&item.claim.token));
        *items = kept;
        self.len.store(items.len(), Ordering::Release);
        Vec::from(taken)
    }

    /// Returns the tokens of the first `limit` claims whose job input was not read yet.
    pub(crate) fn unread(&self, limit: usize) -> Vec<ClaimToken> {
        let items = self.items();
        let unread = items.iter().filter(|item| item.input.is_none());
        unread.take(limit).map(|item| item.claim.token).collect()
    }

    /// Adds job inputs to the waiting claims with these tokens.
    pub(crate) fn fill(&self, inputs: impl IntoIterator<Item = (ClaimToken, JobInput)>) {
        let mut inputs: std::collections::HashMap<ClaimToken, JobInput> =
            inputs.into_iter().collect();
        for item in self.items().iter_mut().filter(|item| item.input.is_none()) {
            item.input = inputs.remove(&item.claim.token);
        }
    }

    fn items(&self) -> MutexGuard<'_, VecDeque<Ready>> {
        self.items
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}
