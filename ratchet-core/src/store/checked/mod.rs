//! The door of a store: what is the same for every call of every store, done once.
//!
//! One file for each trait. A method checks its input, answers what needs no store (an empty batch,
//! a limit of 0), and makes the call through [`Checked::call`]: within the deadline, and again
//! after contention. Whether it is made again, [`ContentionBackoff`] decides, without I/O.

mod archive;
mod contention;
mod diagnostics;
mod jobs;
mod locks;
mod losses;
mod nodes;
mod permits;
mod queues;
mod rates;
mod recurring;
mod signals;
mod transactions;
mod versions;
mod workflows;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

pub use contention::ContentionBackoff;
pub use losses::LossRepeats;

use super::{
    ArchiveStore, DiagnosticStore, JobStore, LockStore, NodeStore, PermitStore, QueueStore,
    RateStore, RecurringStore, SharedStore, SignalStore, Store, StoreInfo, TransactionStore,
    VersionStore, WorkflowStore,
};
use crate::cluster::{ClusterCoordinator, InProcessCoordinator};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::model::NewJob;
use crate::time;

/// A store whose calls are checked before it sees them, end at its deadline, and are repeated after
/// contention.
///
/// The stores of this project that connect to a database are handed out like this.
/// [`Ratchet`](crate::Ratchet) and the conformance suite wrap every other store, so no store checks
/// its input itself. What a store has beside the traits is reached through [`Deref`]. Clones share
/// the store, and wake each other's nodes up.
///
/// A call of a part that the store does not have is `Misconfigured`; [`Store`] shows which parts it
/// has.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use ratchet_core::store::{Checked, JobStore};
/// use ratchet::{MemoryStore, NewJob};
///
/// let store = Checked::new(MemoryStore::new());
/// let error = store.enqueue(&[NewJob::new("greet", "world").queue("")]).await.unwrap_err();
/// assert_eq!(error.to_string(), "enqueue: invalid input: queue is empty");
/// # }
/// ```
pub struct Checked<S: ?Sized> {
    store: Arc<S>,
    /// Carries wakeups where the database cannot: in this process, between all that share the door.
    nearby: InProcessCoordinator,
}

impl<S: Store> Checked<S> {
    /// Wraps a store.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self {
            store: Arc::new(store),
            nearby: InProcessCoordinator::new(),
        }
    }
}

impl Checked<dyn Store> {
    /// Wraps a store unless it [is checked](Store::is_checked) already.
    #[must_use]
    pub fn shared(store: SharedStore) -> SharedStore {
        if store.is_checked() {
            return store;
        }
        Arc::new(Self {
            store,
            nearby: InProcessCoordinator::new(),
        })
    }
}

/// How the [door](Checked) calls a store.
///
/// ```
/// # use std::time::Duration;
/// use ratchet_core::store::CallPolicy;
///
/// let policy = CallPolicy::within(Duration::from_secs(30)).retries(2);
/// assert_eq!(policy.brief_patience(), Duration::from_secs(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPolicy {
    /// How long a call may take, its repetitions included.
    pub deadline: Duration,
    /// How many times a call is repeated after [`Contention`](StoreErrorKind::Contention).
    pub retries: u32,
}

impl CallPolicy {
    /// Returns a policy with this deadline and the default number of repetitions.
    #[must_use]
    pub const fn within(deadline: Duration) -> Self {
        Self {
            deadline,
            retries: 8,
        }
    }

    /// Returns for how long contention is repeated where the caller has an alternative, or takes a
    /// part of the result: a tenth of the deadline.
    #[must_use]
    pub fn brief_patience(&self) -> Duration {
        self.deadline / 10
    }

    /// Returns when a call that began at this time should end with what it has: after 8/10 of the
    /// deadline. With [`brief_patience`](Self::brief_patience) before it, that leaves a tenth for
    /// the answer.
    #[must_use]
    pub fn timely_end(&self, began: Instant) -> Instant {
        // A time that no clock reaches overflows.
        const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        began + (self.deadline / 10 * 8).min(YEAR)
    }

    /// Sets how many times a call is repeated after contention.
    #[must_use]
    pub const fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }
}

impl Default for CallPolicy {
    /// 10 s, and eight repetitions.
    fn default() -> Self {
        Self::within(Duration::from_secs(10))
    }
}

/// Refuses jobs that the store must not be given: those that [`NewJob::validate_all`] refuses, and
/// those that need a part which the store does not have. Stores call it where they store jobs in a
/// transaction of the application; the [door](Checked) calls it before every enqueue.
///
/// # Errors
/// [`StoreErrorKind::Invalid`] of this operation, with the first problem found.
pub fn check_enqueue(
    operation: &'static str,
    store: &(impl Store + ?Sized),
    jobs: &[NewJob],
) -> Result<()> {
    let (workflows, signals) = (store.workflows().is_some(), store.signals().is_some());
    NewJob::validate_all(jobs)
        .and_then(|()| NewJob::refuse_beyond(jobs, workflows, signals, store.permits().is_some()))
        .map_err(|error| error.during(operation))
}

/// Names the operation that refuses its input.
fn check<E: Into<StoreError>>(operation: &'static str, checked: Result<(), E>) -> Result<()> {
    checked.map_err(|problem| problem.into().during(operation))
}

/// Returns a part of a store, or the error of a call of a part that is not there.
pub(super) fn part<P>(operation: &'static str, part: Option<P>) -> Result<P> {
    part.ok_or_else(|| {
        StoreError::new(StoreErrorKind::Misconfigured, operation)
            .with_source("the store does not have this part")
    })
}

/// How much of its deadline a call may spend before it is repeated for the last time.
#[derive(Clone, Copy)]
enum Repeat {
    /// All of it.
    UntilDeadline,
    /// [`CallPolicy::brief_patience`]. For calls whose caller can do better than wait, such as a
    /// settlement of several claims, which can be made one by one; and for those that end a little
    /// before the deadline with what they have done, such as claims.
    Briefly,
}

impl<S: Store + ?Sized> Checked<S> {
    async fn call<T, F>(
        &self,
        operation: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
        T: Send,
    {
        self.call_and_repeat(operation, Repeat::UntilDeadline, call)
            .await
    }

    async fn call_and_repeat<T, F>(
        &self,
        operation: &'static str,
        repeat: Repeat,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
        T: Send,
    {
        let policy = self.store.call_policy();
        let patience = match repeat {
            Repeat::UntilDeadline => policy.deadline,
            Repeat::Briefly => policy.brief_patience(),
        };
        let tries = async {
            let began = time::monotonic();
            let mut backoff = ContentionBackoff::new(policy.retries, patience);
            loop {
                let error = match call().await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                };
                let pause = backoff.failed(error.kind(), began.elapsed(), fastrand::f64());
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                }
            }
        };
        match tokio::time::timeout(policy.deadline, tries).await {
            Ok(answer) => answer,
            Err(_) => {
                self.store.call_timed_out();
                let text = format!("no answer within {:?}", policy.deadline);
                Err(StoreError::new(StoreErrorKind::Timeout, operation).with_source(text))
            }
        }
    }
}

impl<S: Store + ?Sized> Store for Checked<S> {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        self
    }

    fn queues(&self) -> &dyn QueueStore {
        self
    }

    fn nodes(&self) -> &dyn NodeStore {
        self
    }

    fn locks(&self) -> &dyn LockStore {
        self
    }

    fn versions(&self) -> &dyn VersionStore {
        self
    }

    fn guards(&self) -> bool {
        self.store.guards()
    }

    fn is_checked(&self) -> bool {
        true
    }

    fn call_policy(&self) -> CallPolicy {
        self.store.call_policy()
    }

    fn call_timed_out(&self) {
        self.store.call_timed_out();
    }

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        self.store.recurring().map(|_| self as _)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        self.store.archive().map(|_| self as _)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        self.store.permits().map(|_| self as _)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        self.store.rates().map(|_| self as _)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        self.store.workflows().map(|_| self as _)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        self.store.signals().map(|_| self as _)
    }

    fn transactions(&self) -> Option<&dyn TransactionStore> {
        self.store.transactions().map(|_| self as _)
    }

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        self.store.diagnostics().map(|_| self as _)
    }

    fn connections(&self) -> Option<u32> {
        self.store.connections()
    }

    /// Where the store has none, one that carries wakeups between the clients and nodes that share
    /// this door.
    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        let of_store = self.store.coordinator();
        of_store.or_else(|| Some(Arc::new(self.nearby.clone())))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}

impl<S: ?Sized> Deref for Checked<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.store
    }
}

impl<S: ?Sized> Clone for Checked<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            nearby: self.nearby.clone(),
        }
    }
}

impl<S: fmt::Debug + ?Sized> fmt::Debug for Checked<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[cfg(test)]
mod tests;
