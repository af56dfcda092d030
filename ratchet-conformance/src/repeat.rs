//! Repeats calls that failed with contention or a timeout, as the engine does. Under load, the
//! calls of a store may fail in this way, and the contract allows repeating them.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::*;
use ratchet_core::store::{Acquired, Changed, IfKnown, Layered, LockInfo, Store, StoreLayer};
use ratchet_core::time::Timestamp;
use ratchet_core::{
    BatchId, ClaimToken, Enqueued, Fence, JobAction, JobId, JobRecord, JobState, Name, NewJob,
    NodeId, Result, SharedStore, StoreErrorKind,
};

use crate::notes::Notes;

/// A handle on a store that repeats calls after contention or a timeout. It counts the repetitions
/// in the [`Notes`] of the case.
pub(crate) struct Repeating {
    inner: SharedStore,
    notes: Arc<Notes>,
}

/// The kinds of errors after which a call is repeated.
#[derive(Clone, Copy)]
enum Repeat {
    /// Repeats a call only after contention. A call that fails with contention has changed nothing.
    AfterContention,
    /// Repeats a call after contention or a timeout. The repetition returns the same result,
    /// whether or not the first call took effect.
    AfterContentionOrTimeout,
}

impl Repeat {
    const fn after(self, kind: StoreErrorKind) -> bool {
        match kind {
            StoreErrorKind::Contention => true,
            StoreErrorKind::Timeout => matches!(self, Self::AfterContentionOrTimeout),
            _ => false,
        }
    }
}

impl Repeating {
    const FIRST_PAUSE: Duration = Duration::from_millis(5);
    const LONGEST_PAUSE: Duration = Duration::from_millis(500);

    pub(crate) fn layered(inner: SharedStore, notes: Arc<Notes>) -> Layered<Self> {
        Layered::new(Self { inner, notes })
    }

    /// Repeats `call` while it fails with an error that `repeat` allows. Returns such an error only
    /// after three quarters of the case's time limit have passed.
    async fn call<T, F>(&self, repeat: Repeat, call: impl Fn() -> F + Send + Sync) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
        T: Send,
    {
        let mut pause = Self::FIRST_PAUSE;
        loop {
            let error = match call().await {
                Err(error) if repeat.after(error.kind()) && !self.notes.is_late() => error,
                answered => return answered,
            };
            self.notes.repeated(&error);
            drop(error);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Self::LONGEST_PAUSE);
        }
    }
}

impl fmt::Debug for Repeating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

macro_rules! part {
    (required, $store:expr, $part:ident) => {
        $store.$part()
    };
    (optional, $store:expr, $part:ident) => {
        $store.$part().expect(
            "the store should have the part, because the case reached the part through its \
             accessor",
        )
    };
}

macro_rules! repeat {
    (idempotent) => {
        Repeat::AfterContentionOrTimeout
    };
    (once) => {
        Repeat::AfterContention
    };
}

macro_rules! repeating {
    ($($need:ident $part:ident as $accessor:ident {
        $($repeat:ident $method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+
    })+) => {
        #[async_trait]
        impl StoreLayer for Repeating {
            fn inner(&self) -> &dyn Store {
                &*self.inner
            }

            $($(
                async fn $method(&self, $($argument: $type),*) -> Result<$answer> {
                    let part = part!($need, self.inner, $accessor);
                    self.call(repeat!($repeat), || part.$method($($argument),*)).await
                }
            )+)+
        }
    };
}

ratchet_core::store_calls!(repeating);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use ratchet_core::memory::{Fault, MemoryStore};

    use super::*;
    use crate::build::job;
    use crate::runner::time_limit;

    /// Returns a handle on an empty store, and the notes in which the handle counts repetitions.
    /// The first `count` calls of the store fail with an error of this kind.
    fn failing(kind: StoreErrorKind, count: u64) -> (Layered<Repeating>, Arc<Notes>) {
        let (calls, notes) = (AtomicU64::new(0), Arc::new(Notes::default()));
        let store = MemoryStore::new().with_faults(move |_| {
            match calls.fetch_add(1, Ordering::Relaxed) < count {
                true => Fault::Failure(kind),
                false => Fault::None,
            }
        });
        (
            Repeating::layered(Arc::new(store), Arc::clone(&notes)),
            notes,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_contended_call_is_repeated_and_counted() {
        let (store, notes) = failing(StoreErrorKind::Contention, 3);
        let request = ClaimRequest::new(NodeId::new(), 1);
        store.jobs().claim_next_batch(&request).await.unwrap();
        let (repeated, last) = notes.repeats();
        assert_eq!(repeated, 3);
        assert!(last.unwrap().contains("claim_next_batch: contention"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_call_whose_second_answer_is_the_first_is_repeated_after_a_timeout() {
        let (store, notes) = failing(StoreErrorKind::Timeout, 1);
        store.jobs().enqueue(&[job()]).await.unwrap();
        assert_eq!(notes.repeats().0, 1);
        let (store, notes) = failing(StoreErrorKind::Timeout, 1);
        let request = ClaimRequest::new(NodeId::new(), 1);
        let error = store.jobs().claim_next_batch(&request).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Timeout);
        assert_eq!(notes.repeats().0, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn every_other_error_is_returned_at_once() {
        for kind in [
            StoreErrorKind::Unavailable,
            StoreErrorKind::Corrupt,
            StoreErrorKind::Misconfigured,
        ] {
            let (store, notes) = failing(kind, 1);
            let error = store.jobs().enqueue(&[job()]).await.unwrap_err();
            assert_eq!((error.kind(), notes.repeats().0), (kind, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn contention_that_does_not_end_is_returned_before_the_case_must_end() {
        let (store, notes) = failing(StoreErrorKind::Contention, u64::MAX);
        let ended = tokio::time::timeout(time_limit(""), store.jobs().enqueue(&[job()])).await;
        let error = ended.expect("before the deadline").unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Contention);
        assert!(notes.repeats().0 > 1);
    }
}
