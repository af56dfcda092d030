//! The door of a store: checks, deadlines and repetitions that are the same for every store.
//!
//! There is one file per trait. A method checks its input, and returns at once if the result needs
//! no store, as for an empty batch or a limit of 0. Otherwise the method calls the store through
//! [`Checked::call`], which applies the deadline and repeats the call after contention.
//! [`ContentionBackoff`] decides, without I/O, whether a call is repeated.

mod archive;
mod contention;
mod diagnostics;
mod fair;
mod gather;
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

use self::gather::Gather;
use super::{
    ArchiveStore, DiagnosticStore, FairStore, JobFeatures, JobStore, LockStore, NodeStore,
    PermitStore, QueueStore, RateStore, RecurringStore, SharedStore, SignalStore, Store,
    StoreFeature, StoreInfo, TransactionStore, VersionStore, WorkflowStore,
};
use crate::cluster::{ClusterCoordinator, InProcessCoordinator};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::model::NewJob;
use crate::time;

/// The door: a wrapper around a store that checks the input of calls, ends calls at a deadline, and
/// repeats calls after contention.
///
/// The stores of this project that connect to a database already have this wrapper.
/// [`Ratchet`](crate::Ratchet) and the conformance suite add it to every other store, so no store
/// checks its input itself. Methods of the inner store that are not in the traits are available
/// through [`Deref`]. Clones share the inner store, and their clients and nodes wake each other up.
///
/// A call of a part that the inner store lacks fails with `Misconfigured`. The methods of [`Store`]
/// show which parts a store has.
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
    /// Sends wakeups between the clients and nodes of this process that share the door. The door
    /// uses this coordinator if the store has none.
    nearby: InProcessCoordinator,
    gather: Gather,
}

impl<S: Store> Checked<S> {
    /// Wraps a store in the door.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self {
            store: Arc::new(store),
            nearby: InProcessCoordinator::new(),
            gather: Gather::default(),
        }
    }
}

impl Checked<dyn Store> {
    /// Wraps a store in the door unless it is already [checked](Store::is_checked).
    #[must_use]
    pub fn shared(store: SharedStore) -> SharedStore {
        if store.is_checked() {
            return store;
        }
        Arc::new(Self {
            store,
            nearby: InProcessCoordinator::new(),
            gather: Gather::default(),
        })
    }
}

/// The deadline and the number of repetitions with which the [door](Checked) calls a store.
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
    /// Maximum duration of a call, including its repetitions.
    pub deadline: Duration,
    /// Maximum number of times that a call is repeated after
    /// [`Contention`](StoreErrorKind::Contention).
    pub retries: u32,
    /// Whether concurrent enqueues of single jobs are sent to the store together, in groups of at
    /// most 100. This is useful for stores whose calls cost a round trip or a commit each.
    pub gathers: bool,
}

impl CallPolicy {
    /// Returns a policy with this deadline and the default number of repetitions.
    #[must_use]
    pub const fn within(deadline: Duration) -> Self {
        Self {
            deadline,
            retries: 8,
            gathers: false,
        }
    }

    /// Returns how long some calls are repeated after contention: a tenth of the deadline. This
    /// shorter limit applies to calls that can return a partial result, and to calls whose caller
    /// has an alternative to waiting.
    #[must_use]
    pub fn brief_patience(&self) -> Duration {
        self.deadline / 10
    }

    /// Returns the time at which a call that began at `began` should stop and return a partial
    /// result: after 8/10 of the deadline. Another tenth is for repetitions
    /// ([`brief_patience`](Self::brief_patience)), so one tenth remains for the answer.
    #[must_use]
    pub fn timely_end(&self, began: Instant) -> Instant {
        // Adding a very long deadline to an `Instant` would overflow, so at most a year is added.
        const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        began + (self.deadline / 10 * 8).min(YEAR)
    }

    /// Sets the maximum number of times that a call is repeated after contention.
    #[must_use]
    pub const fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets whether concurrent enqueues of single jobs are sent to the store together.
    #[must_use]
    pub const fn gathers(mut self, gathers: bool) -> Self {
        self.gathers = gathers;
        self
    }
}

impl Default for CallPolicy {
    /// Returns a policy with a deadline of 10 s and up to eight repetitions, which does not gather
    /// enqueues.
    fn default() -> Self {
        Self::within(Duration::from_secs(10))
    }
}

/// Checks that a store may receive these jobs.
///
/// The function refuses jobs that [`NewJob::validate_all`] refuses, and jobs that need a part or a
/// [feature](StoreFeature) which the store lacks. The [door](Checked) calls this function before every enqueue. A store calls the
/// function itself before it stores jobs in a transaction of the application.
///
/// # Errors
/// [`StoreErrorKind::Invalid`] for `operation`, with the first problem found.
pub fn check_enqueue(
    operation: &'static str,
    store: &(impl Store + ?Sized),
    jobs: &[NewJob],
) -> Result<()> {
    NewJob::validate_all(jobs).map_err(|error| error.during(operation))?;
    let features = JobFeatures::of(store);
    check(
        operation,
        jobs.iter().try_for_each(|job| features.check_new(job)),
    )
}

/// Adds the name of the operation to the error of a failed check.
fn check<E: Into<StoreError>>(operation: &'static str, checked: Result<(), E>) -> Result<()> {
    checked.map_err(|problem| problem.into().during(operation))
}

/// Returns a part of a store, or an error if the store does not have the part.
pub(super) fn part<P>(operation: &'static str, part: Option<P>) -> Result<P> {
    part.ok_or_else(|| {
        StoreError::new(StoreErrorKind::Misconfigured, operation)
            .with_source("the store does not support this operation")
    })
}

/// How long a call may be repeated after contention.
#[derive(Clone, Copy)]
enum Repeat {
    /// The call may be repeated until its deadline.
    UntilDeadline,
    /// The call may be repeated for [`CallPolicy::brief_patience`]. This value is for calls whose
    /// caller has an alternative to waiting: for example, several claims can be settled one by one.
    /// It is also for calls that return a partial result shortly before the deadline, such as
    /// claims.
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
                let text = format!("the store did not answer within {:?}", policy.deadline);
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

    fn lacks(&self, feature: StoreFeature) -> Option<&'static str> {
        self.store.lacks(feature)
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

    fn fair(&self) -> Option<&dyn FairStore> {
        self.store.fair().map(|_| self as _)
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

    /// Returns the coordinator of the store. If the store has none, returns a coordinator that
    /// sends wakeups between the clients and nodes that share this door.
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
            gather: self.gather.clone(),
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
