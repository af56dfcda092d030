//! Guarded writes and the lock that they check.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::doc;
use ratchet_conformance::TestClock;
use ratchet_conformance::kit::{enqueue, exists, job};
use ratchet_core::model::{Fenced, Guard, Guarded, JobSelector, PurgeRequest};
use ratchet_core::store::{Acquired, Checked, JobStore, LockStore};
use ratchet_core::{JobAction, JobId, JobState, Name};
use ratchet_store_mongo::MongoStore;

use crate::faults::Fault;
use crate::links::under_way;
use crate::open;
use crate::server::Space;

const TTL: Duration = Duration::from_secs(60);

fn name(name: &str) -> Name {
    Name::new("name", name).unwrap()
}

async fn acquire(store: &Checked<MongoStore>, owner: &str) -> Guard {
    let (lock, owner) = (name("lock"), name(owner));
    match store.acquire(&lock, &owner, TTL).await.unwrap() {
        Acquired::Acquired { fence } => Guard { lock, owner, fence },
        Acquired::Held(by) => panic!("{by:?} has it"),
    }
}

async fn cancelled(store: &Checked<MongoStore>) -> JobId {
    let id = enqueue(store, job()).await;
    let selected = JobSelector::Ids(vec![id]);
    store.act(&selected, JobAction::Cancel).await.unwrap();
    id
}

fn purge(guard: &Guard) -> PurgeRequest {
    let old = PurgeRequest::new(JobState::Cancelled, Duration::from_millis(1), 10);
    old.guarded(Some(guard.clone()))
}

pub(crate) async fn a_lock_is_free_while_a_guarded_write_goes_on_and_the_write_is_stale(
    space: Arc<Space>,
) {
    let fault = Fault::new(&space, &["delete"]).late(2_000);
    let (slow, other) = (fault.open(&space).await, open(&space).await);
    let id = cancelled(&other).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let guard = acquire(&slow, "one").await;
    let connections = fault.name().to_owned();
    let fault = fault.set().await;
    let purging = tokio::spawn({
        let request = purge(&guard);
        async move { slow.purge(&request).await }
    });
    under_way(
        &space,
        &connections,
        doc! { "command.delete": { "$exists": true } },
    )
    .await;
    // The purge began while the guard was valid. The release of the lock ends the guard.
    let released = other.release(&guard.lock, &guard.owner, guard.fence).await;
    assert_eq!(released.unwrap(), Fenced::Applied);
    let successor = acquire(&other, "two").await;
    assert!(successor.fence > guard.fence);
    assert!(
        !purging.is_finished(),
        "expected the lock to change while the purge runs"
    );
    assert_eq!(purging.await.unwrap().unwrap(), Guarded::Stale);
    fault.lift().await;
    assert!(exists(&other, id).await);
    assert_eq!(other.purge(&purge(&guard)).await.unwrap(), Guarded::Stale);
    assert_eq!(
        other.purge(&purge(&successor)).await.unwrap(),
        Guarded::Done(1)
    );
}

pub(crate) async fn a_guarded_write_whose_lock_expires_before_its_end_is_stale(space: Arc<Space>) {
    let fault = Fault::new(&space, &["delete"]).late(2_000);
    let clock = space.name("clock");
    let slow = fault.builder(&space).clock_collection(&clock);
    let slow = slow.connect().await.unwrap();
    let id = cancelled(&slow).await;
    space.advance(TTL).await;
    let guard = acquire(&slow, "one").await;
    let connections = fault.name().to_owned();
    let fault = fault.set().await;
    let purging = tokio::spawn({
        let (slow, request) = (slow.clone(), purge(&guard));
        async move { slow.purge(&request).await }
    });
    under_way(
        &space,
        &connections,
        doc! { "command.delete": { "$exists": true } },
    )
    .await;
    // The lock expires, and no other owner acquires it.
    space.advance(TTL).await;
    assert_eq!(purging.await.unwrap().unwrap(), Guarded::Stale);
    fault.lift().await;
    assert!(exists(&slow, id).await);
}
