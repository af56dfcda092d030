//! Functions that most tests of a store need.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use ratchet_conformance::kit::{enqueue, exists, job};
//!
//! let store = ratchet_core::MemoryStore::new();
//! let id = enqueue(&store, job().lane("l")).await;
//! assert!(exists(&store, id).await);
//! # }
//! ```
#![expect(clippy::unwrap_used, reason = "a failed call fails the test")]

use std::time::Duration;

use ratchet_core::model::{
    ClaimRequest, Detail, Heartbeat, NodeStatus, Outcome, PauseRequest, PauseScope, Settlement,
};
use ratchet_core::store::{JobStore, NodeStore, QueueStore};
use ratchet_core::{JobId, Name, NewJob, NodeId, SchemaProblem, StoreError, StoreErrorKind};

/// Converts `text` to a [`Name`].
///
/// # Panics
/// If `text` is not a valid name.
#[must_use]
pub fn name(text: &str) -> Name {
    Name::new("name", text).unwrap()
}

/// Returns a new job whose kind is `kind`.
#[must_use]
pub fn job() -> NewJob {
    NewJob::new("kind", &1)
}

/// Returns a request that pauses this queue, without an operator or a reason.
///
/// # Panics
/// If the text is not a valid name.
#[must_use]
pub fn pause_of_queue(queue: &str) -> PauseRequest {
    PauseRequest::new(PauseScope::queue(queue).unwrap())
}

/// Returns a request that pauses this kind, without an operator or a reason.
///
/// # Panics
/// If the text is not a valid name.
#[must_use]
pub fn pause_of_kind(kind: &str) -> PauseRequest {
    PauseRequest::new(PauseScope::kind(kind).unwrap())
}

/// Returns a claim request for up to 100 jobs of any kind and queue. The request has a new node id.
#[must_use]
pub fn request_all() -> ClaimRequest {
    ClaimRequest::new(NodeId::new(), 100)
}

/// Returns the heartbeat of a new, active node with a heartbeat interval of 5 seconds.
#[must_use]
pub fn heartbeat() -> Heartbeat {
    let interval = Duration::from_secs(5);
    Heartbeat::new(NodeId::new(), name("node"), NodeStatus::Active, interval)
}

/// Enqueues one job and returns its id.
///
/// # Panics
/// If the store returns an error.
pub async fn enqueue(store: &impl JobStore, job: NewJob) -> JobId {
    store.enqueue(&[job]).await.unwrap()[0].id()
}

/// Returns whether the store contains the job with this id.
///
/// # Panics
/// If the store returns an error.
pub async fn exists(store: &impl JobStore, id: JobId) -> bool {
    store.get(&[id], Detail::Whole).await.unwrap()[0].is_some()
}

/// Asserts that `error` has the kind `kind`.
///
/// # Panics
/// If `error` has another kind.
#[track_caller]
pub fn assert_kind(error: &StoreError, kind: StoreErrorKind) {
    assert_eq!(error.kind(), kind, "{error}");
}

/// Asserts that `error` reports an altered schema and that its message contains `part`.
///
/// # Panics
/// If `error` has another kind or its message does not contain `part`.
#[track_caller]
pub fn assert_altered(error: &StoreError, part: &str) {
    assert_kind(
        error,
        StoreErrorKind::SchemaMismatch(SchemaProblem::Altered),
    );
    assert!(error.to_string().contains(part), "{error}");
}

/// Runs `tasks` tasks concurrently. Each task repeats these calls `rounds` times: enqueue jobs,
/// claim jobs, settle the claims, list the queues, and send a heartbeat.
///
/// # Panics
/// If the store returns an error.
pub async fn work_at_once<S>(store: &S, tasks: usize, rounds: usize)
where
    S: JobStore + QueueStore + NodeStore + Clone + 'static,
{
    let work = |task: usize| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..rounds {
                let new = job().queue(&format!("{task}-{round}")).unique_key("one");
                store.enqueue(&[job(), new]).await.unwrap();
                let claimed = store.claim_next_batch(&request_all()).await.unwrap();
                let end = Outcome::Succeeded { result: None };
                let ends = claimed
                    .iter()
                    .map(|job| Settlement::new(job.claim.token, end.clone()));
                store.settle(&ends.collect::<Vec<_>>()).await.unwrap();
                QueueStore::queues(&store).await.unwrap();
                store.heartbeat(&heartbeat()).await.unwrap();
            }
        })
    };
    let tasks: Vec<_> = (0..tasks).map(work).collect();
    for task in tasks {
        task.await.unwrap();
    }
}
