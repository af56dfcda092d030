//! The buffer that collects settlements until the settler sends them.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::engine::pools::run_pool::RunPool;
use crate::metrics::JobPlace;
use crate::model::{Claim, Settlement};
use crate::route::Route;

/// Number of collected settlements at which the settler sends them without waiting for more.
pub(super) const ENOUGH: usize = 256;

/// Collects settlements until the settler sends them to the store.
#[derive(Default)]
pub(crate) struct SettleBuffer {
    pending: Mutex<Batch>,
    pub(super) changed: Notify,
}

/// Settlement of a claim, with data that the settler needs after the store has written it.
pub(super) struct Ending {
    pub(super) settlement: Settlement,
    pub(super) of: Of,
    /// Whether other jobs may become due when the settlement is written, so that this node should
    /// claim again.
    pub(super) makes_room: bool,
}

/// Data about the claim that a settlement ends.
pub(super) struct Of {
    /// Index of the pool that holds the claim.
    pub(super) pool: usize,
    /// Index of the job kind's metrics in the metrics of the pool.
    pub(super) kind: JobPlace,
    /// Claim whose end the hooks are notified of. `None` if the hooks are not notified.
    pub(super) told: Option<Arc<Claim>>,
    /// Route of the job, if the claim held a permit. Otherwise `None`.
    pub(super) permit: Option<Route>,
    /// Whether other jobs wait for the end of this job, in its lane or by links. If so, the
    /// settlement also writes rows that concurrent store calls may write.
    pub(super) awaited: bool,
    /// Whether the store has already rejected this settlement.
    pub(super) refused: bool,
}

impl Ending {
    /// Creates a settlement of a claim that this pool holds. Hooks are not notified unless
    /// [`tell`](Self::tell) is called.
    pub(super) fn new(settlement: Settlement, claim: &Claim, pool: &RunPool) -> Self {
        let waited_for = claim.lane.is_some() || claim.awaited;
        let awaited = waited_for && settlement.effect(false).state.is_terminal();
        // Jobs that waited for the claim's permit, for its place of a fair key, or for the end of
        // this job, may become due.
        let makes_room = awaited || claim.limited || claim.route.permit.is_some();
        let permit = claim.route.permit.is_some().then(|| claim.route.clone());
        Self {
            settlement,
            of: Of {
                pool: pool.index,
                kind: pool.metrics.place(&claim.route.kind),
                told: None,
                permit,
                awaited,
                refused: false,
            },
            makes_room,
        }
    }

    /// Requests that the hooks are notified of the end of this claim after the store has written
    /// the settlement.
    pub(super) fn tell(&mut self, claim: &Arc<Claim>) {
        self.of.told = Some(Arc::clone(claim));
    }
}

/// Settlements, and the data of their claims in a second list at the same index. There are two
/// lists because a store call needs a slice of settlements.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) settlements: Vec<Settlement>,
    pub(super) of: Vec<Of>,
    /// Whether other jobs may become due when the settlements are written, so that this node should
    /// claim again.
    pub(super) makes_room: bool,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.settlements.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.settlements.is_empty()
    }

    pub(super) fn push(&mut self, ending: Ending) {
        self.settlements.push(ending.settlement);
        self.of.push(ending.of);
        self.makes_room |= ending.makes_room;
    }

    /// Removes and returns the first `count` settlements.
    pub(super) fn take(&mut self, count: usize) -> Self {
        let rest = Self {
            makes_room: self.makes_room && count < self.len(),
            settlements: self.settlements.split_off(count),
            of: self.of.split_off(count),
        };
        std::mem::replace(self, rest)
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = Ending> {
        let makes_room = self.makes_room;
        let ending = move |(settlement, of)| Ending {
            settlement,
            of,
            makes_room,
        };
        self.settlements.into_iter().zip(self.of).map(ending)
    }
}

impl Extend<Ending> for Batch {
    fn extend<T: IntoIterator<Item = Ending>>(&mut self, endings: T) {
        endings.into_iter().for_each(|ending| self.push(ending));
    }
}

impl FromIterator<Ending> for Batch {
    fn from_iter<T: IntoIterator<Item = Ending>>(endings: T) -> Self {
        let mut batch = Self::default();
        batch.extend(endings);
        batch
    }
}

impl SettleBuffer {
    /// Adds a settlement to the buffer. `more_coming` is whether other settlements will probably be
    /// added within microseconds.
    pub(super) fn push(&self, ending: Ending, more_coming: bool) {
        let mut pending = self.pending();
        pending.push(ending);
        let count = pending.len();
        drop(pending);
        if count == 1 || count == ENOUGH || !more_coming {
            self.changed.notify_one();
        }
    }

    /// Puts settlements at the front of the buffer again, because they could not be sent.
    pub(super) fn put_back(&self, endings: impl Iterator<Item = Ending>) {
        let mut first: Batch = endings.collect();
        let mut pending = self.pending();
        first.settlements.append(&mut pending.settlements);
        first.of.append(&mut pending.of);
        first.makes_room |= pending.makes_room;
        *pending = first;
        drop(pending);
        self.changed.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        self.pending().len()
    }

    /// Returns whether more settlements will probably be added soon: a claim is ready to run in a
    /// pool that has a settlement in this buffer.
    pub(super) fn awaits(&self, pools: &[RunPool]) -> bool {
        let pending = self.pending();
        let mut of = pending.of.iter();
        of.any(|of| pools[of.pool].ready.len() > 0)
    }

    pub(super) fn take(&self) -> Batch {
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
