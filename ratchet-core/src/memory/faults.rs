use std::sync::Arc;
use std::time::Duration;

use crate::error::{Result, StoreError, StoreErrorKind};

/// A fault that a test injects into one call of a [`MemoryStore`](super::MemoryStore).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
/// # use std::sync::Arc;
/// use ratchet::{MemoryStore, NewJob, Ratchet};
/// use ratchet_core::memory::Fault;
///
/// let store = MemoryStore::new().with_faults(|operation| match operation {
///     "enqueue" => Fault::ErrorAfterCommit,
///     _ => Fault::None,
/// });
/// let client = Ratchet::client(Arc::new(store));
/// let job = NewJob::new("greet", "Ada");
/// let id = job.id();
/// assert!(client.enqueue(job).await.is_err());
/// assert!(client.job(id).await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// The call waits for this time before it takes effect.
    Delay(Duration),
    /// The call takes effect at once, and returns after this time.
    DelayedAnswer(Duration),
    /// The call fails with an error of this kind, and changes nothing.
    Failure(StoreErrorKind),
    /// The call fails like a call whose connection is lost before the commit. It changes nothing.
    ErrorBeforeCommit,
    /// The call fails like a call whose connection is lost during the commit. Its changes take
    /// effect.
    ErrorAfterCommit,
}

type Plan = dyn Fn(&'static str) -> Fault + Send + Sync;

/// Decides for every call which fault is injected.
#[derive(Clone, Default)]
pub(super) struct FaultPlan(Option<Arc<Plan>>);

impl FaultPlan {
    pub(super) fn new(plan: impl Fn(&'static str) -> Fault + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(plan)))
    }

    /// Runs `work`, and injects the fault that the plan returns for `operation`.
    pub(super) async fn around<T: Send>(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let fault = self.0.as_ref().map_or(Fault::None, |plan| plan(operation));
        match fault {
            Fault::None => work(),
            Fault::Delay(delay) => {
                tokio::time::sleep(delay).await;
                work()
            }
            Fault::DelayedAnswer(delay) => {
                let answer = work();
                tokio::time::sleep(delay).await;
                answer
            }
            Fault::Failure(kind) => {
                Err(StoreError::new(kind, operation).with_source("injected fault"))
            }
            Fault::ErrorBeforeCommit => Err(injected(operation, "before the commit")),
            Fault::ErrorAfterCommit => {
                work()?;
                Err(injected(operation, "after the commit"))
            }
        }
    }
}

fn injected(operation: &'static str, when: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, operation)
        .with_source(format!("injected fault {when}"))
}
