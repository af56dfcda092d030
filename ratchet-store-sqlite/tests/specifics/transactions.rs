//! `enqueue_in`: jobs in a transaction of the application.

use std::sync::Arc;

use ratchet_conformance::kit::{assert_kind, enqueue, exists, job, request_all};
use ratchet_core::model::{Detail, Enqueued};
use ratchet_core::store::{AppConnection, AppTransaction, JobStore};
use ratchet_core::{
    InvalidInput, JobState, MemoryStore, NewJob, OnConflict, Priority, Ratchet, StoreErrorKind,
};
use rusqlite::TransactionBehavior;

use crate::{TempDatabase, refuse_critical_jobs};

#[tokio::test]
async fn a_commit_stores_the_jobs_with_the_applications_rows() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let mut database = db.sql();
    database.execute_batch("CREATE TABLE orders (n)").unwrap();
    let tx = database
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    tx.execute("INSERT INTO orders VALUES (1)", []).unwrap();
    let enqueued = store.enqueue_in_blocking(&tx, &[job(), job()]).unwrap();
    assert!(!exists(&store, enqueued[0].id()).await);
    tx.commit().unwrap();
    assert_eq!(
        store.claim_next_batch(&request_all()).await.unwrap().len(),
        2
    );
}

#[tokio::test]
async fn a_rollback_leaves_no_row_no_key_and_no_route() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let mut database = db.sql();
    let keyed = || job().queue("new").unique_key("u").idempotency_key("i");
    let tx = database.transaction().unwrap();
    store.enqueue_in_blocking(&tx, &[keyed()]).unwrap();
    tx.rollback().unwrap();
    let rows: i64 = database
        .query_row(
            "SELECT (SELECT count(*) FROM ratchet_jobs) + (SELECT count(*) FROM ratchet_job_data)
                  + (SELECT count(*) FROM ratchet_unique_keys)
                  + (SELECT count(*) FROM ratchet_idempotency_keys)
                  + (SELECT count(*) FROM ratchet_routes)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(rows, 0);
    let again = keyed();
    let id = again.id();
    assert_eq!(
        store.enqueue(&[again]).await.unwrap(),
        [Enqueued::Created(id)]
    );
}

#[tokio::test]
async fn an_error_takes_back_the_call_and_leaves_the_transaction_usable() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let mut database = db.sql();
    refuse_critical_jobs(&database);
    let tx = database.transaction().unwrap();
    let kept = store.enqueue_in_blocking(&tx, &[job()]).unwrap()[0].id();
    let lost = job();
    let lost_id = lost.id();
    let refused = job().priority(Priority::Critical);
    assert!(store.enqueue_in_blocking(&tx, &[lost, refused]).is_err());
    tx.commit().unwrap();
    assert!(exists(&store, kept).await);
    assert!(!exists(&store, lost_id).await);
}

#[tokio::test]
async fn the_holder_of_a_key_changes_with_the_transaction() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let keyed = |number: u32| NewJob::new("kind", &number).unique_key("u");
    let holder = enqueue(&store, keyed(1)).await;
    let mut database = db.sql();
    for (number, commits) in [(2, false), (3, true)] {
        let tx = database.transaction().unwrap();
        let new = [keyed(number).on_conflict(OnConflict::Replace)];
        let enqueued = store.enqueue_in_blocking(&tx, &new).unwrap();
        assert_eq!(enqueued, [Enqueued::Replaced(holder)]);
        if commits {
            tx.commit().unwrap();
        }
    }
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed[0].input.as_ref().unwrap().payload.as_str(), "3");
    let tx = database.transaction().unwrap();
    let new = keyed(4).on_conflict(OnConflict::Restart);
    let id = new.id();
    store.enqueue_in_blocking(&tx, &[new]).unwrap();
    tx.commit().unwrap();
    let jobs = store.get(&[holder, id], Detail::Outline).await.unwrap();
    assert!(jobs[0].as_ref().unwrap().cancel_requested);
    assert_eq!(jobs[1].as_ref().unwrap().state, JobState::Blocked);
}

#[tokio::test]
async fn another_database_and_bad_input_are_refused() {
    let (db, other) = (TempDatabase::new(), TempDatabase::new());
    let store = db.open().await;
    drop(other.open().await);
    let mut elsewhere = other.sql();
    let tx = elsewhere.transaction().unwrap();
    let error = store.enqueue_in_blocking(&tx, &[job()]).unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
    let mut database = db.sql();
    let tx = database.transaction().unwrap();
    let error = store
        .enqueue_in_blocking(&tx, &[NewJob::new("", &1)])
        .unwrap_err();
    assert_kind(&error, StoreErrorKind::Invalid);
}

/// A transaction that belongs to another type of store.
struct Foreign;

impl AppTransaction<Self> for Foreign {
    fn connection(&mut self) -> AppConnection<'_> {
        AppConnection::Exclusive(self)
    }
}

#[tokio::test]
async fn a_client_enqueues_in_the_transactions_of_its_store_and_no_other() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let client = Ratchet::client(Arc::new(store.clone()));
    let mut database = db.sql();
    let mut tx = database.transaction().unwrap();
    let one = client.enqueue_in(&mut tx, job()).await.unwrap();
    let more = client
        .enqueue_all_in(&mut tx, &[job(), job()])
        .await
        .unwrap();
    assert!(!exists(&store, one.id()).await);
    let error = client.enqueue_in(&mut Foreign, job()).await.unwrap_err();
    let field = error.invalid_input().map(InvalidInput::field);
    assert_eq!(field, Some("transaction"), "{error}");
    let refused = client.enqueue_in(&mut tx, job().queue("")).await;
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Invalid);
    tx.commit().unwrap();
    assert!(exists(&store, one.id()).await && exists(&store, more[1].id()).await);
    let without = Ratchet::client(Arc::new(MemoryStore::new()));
    let mut tx = database.transaction().unwrap();
    let refused = without.enqueue_in(&mut tx, job()).await;
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Misconfigured);
}
