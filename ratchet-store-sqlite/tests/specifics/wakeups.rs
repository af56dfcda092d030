//! Wakeups, and how a store that a node owns is closed.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, exists, job};
use ratchet_core::cluster::{Wakeup, WakeupStream};
use ratchet_core::model::JobFilter;
use ratchet_core::store::{JobStore, Store};
use ratchet_core::{JobState, Name, Ratchet, StoreErrorKind, Wakes};
use ratchet_store_sqlite::SqliteStore;

use crate::TempDatabase;

/// The timeout of a wait, which is reached only if the test fails.
const SAFETY_NET: Duration = Duration::from_secs(60);

async fn next(wakeups: &mut WakeupStream) -> Wakeup {
    tokio::time::timeout(SAFETY_NET, wakeups.next())
        .await
        .expect("no wakeup came")
}

#[tokio::test]
async fn jobs_of_another_process_wake_up_who_listens() {
    let db = TempDatabase::new();
    let (store, other) = (db.open().await, db.open().await);
    let mut wakeups = store.coordinator().unwrap().subscribe();
    // The coordinator sends this wakeup once it watches the file.
    assert_eq!(next(&mut wakeups).await, Wakeup::any());
    for _ in 0..3 {
        enqueue(&other, job()).await;
        assert_eq!(next(&mut wakeups).await, Wakeup::any());
    }
    // The commit of an application's transaction wakes nodes, too.
    let mut database = db.sql();
    let tx = database.transaction().unwrap();
    other.enqueue_in_blocking(&tx, &[job()]).unwrap();
    tx.commit().unwrap();
    assert_eq!(next(&mut wakeups).await, Wakeup::any());
}

#[tokio::test]
async fn only_the_wakeups_of_a_store_in_memory_reach_all_nodes() {
    let db = TempDatabase::new();
    let file = db.open().await.coordinator().unwrap();
    assert!(!file.reaches_all_nodes());
    let memory = SqliteStore::connect("sqlite::memory:").await.unwrap();
    assert!(memory.coordinator().unwrap().reaches_all_nodes());
}

#[tokio::test]
async fn own_jobs_that_are_to_wake_no_node_wake_none() {
    let db = TempDatabase::new();
    let (store, other) = (db.open().await, db.open().await);
    let mut wakeups = store.coordinator().unwrap().subscribe();
    next(&mut wakeups).await;
    let client = Ratchet::client(Arc::new(store.clone())).with_wakes(Wakes::Never);
    for _ in 0..100 {
        client.enqueue(job()).await.unwrap();
    }
    // Once the watcher has seen this commit, it has seen all earlier ones.
    enqueue(&other, job()).await;
    let mut woken = 0;
    while next(&mut wakeups).await == Wakeup::any() {
        woken += 1;
        let seen = store.count_jobs(&JobFilter::all()).await.unwrap();
        if seen[&JobState::Pending] == 101 {
            break;
        }
    }
    // The watcher may check after the store's own jobs are counted but before they are committed.
    // It may later mistake these jobs for those of another process. So the test accepts a few
    // wakeups.
    assert!(woken < 50, "{woken}");
}

#[tokio::test]
async fn a_close_that_is_dropped_closes_all_the_same() {
    let db = TempDatabase::new();
    let store = db.open().await;
    drop(store.close());
    assert!(
        store.enqueue(&[job()]).await.is_ok(),
        "expected the enqueue to succeed before the close begins"
    );
    let mut closing = store.close();
    let _ = futures_util::poll!(&mut closing);
    drop(closing);
    let refused = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn clients_and_nodes_of_one_store_wake_each_other_with_the_queue() {
    let db = TempDatabase::new();
    for store in [
        SqliteStore::connect("sqlite::memory:").await.unwrap(),
        db.open().await,
    ] {
        let mut wakeups = store.coordinator().unwrap().subscribe();
        let client = Ratchet::client(Arc::new(store.clone()));
        client.enqueue(job().queue("mail")).await.unwrap();
        let queue = Name::new("queue", "mail").unwrap();
        let wanted = Wakeup::queue(queue);
        while next(&mut wakeups).await != wanted {}
    }
}

#[tokio::test]
async fn a_store_that_its_node_owns_is_closed_when_the_run_ends() {
    for owned in [true, false] {
        let db = TempDatabase::new();
        let store = db.open().await;
        let node = Ratchet::builder(Arc::new(store.clone()));
        let node = if owned { node.owns_store() } else { node };
        let node = node.daemon("idle", |_| async { Ok(()) }).build().unwrap();
        let id = enqueue(&store, job()).await;
        let mut wakeups = store.coordinator().unwrap().subscribe();
        next(&mut wakeups).await;
        node.run_until(std::future::ready(())).await.unwrap();
        assert_eq!(db.path().with_extension("db-wal").exists(), !owned);
        if owned {
            let refused = store.enqueue(&[job()]).await.unwrap_err();
            assert_kind(&refused, StoreErrorKind::Unavailable);
            // A copy of the file, without the log, contains everything.
            let copy = TempDatabase::new();
            std::fs::copy(db.path(), copy.path()).unwrap();
            assert!(exists(&copy.open().await, id).await);
        } else {
            assert!(exists(&store, id).await);
        }
    }
}
