//! Group commit: calls of many callers in one transaction.

use std::time::Duration;

use ratchet_conformance::kit::{enqueue, exists, job, request_all};
use ratchet_core::model::Detail;
use ratchet_core::store::{Checked, JobStore, NodeStore, QueueStore};
use ratchet_core::{NewJob, Priority};
use ratchet_store_sqlite::SqliteStore;
use tokio::task::JoinHandle;

use crate::{TempDatabase, refuse_critical_jobs};

fn call(store: &Checked<SqliteStore>, jobs: Vec<NewJob>) -> JoinHandle<bool> {
    let store = store.clone();
    tokio::spawn(async move { store.enqueue(&jobs).await.is_ok() })
}

/// Waits until the calls made so far are in the writer's queue.
async fn settle_down() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn a_failing_call_fails_no_other_wherever_it_stands() {
    for failing in 0..4 {
        let db = TempDatabase::new();
        let store = db.open().await;
        let other = db.sql();
        refuse_critical_jobs(&other);
        // All calls wait for the lock, so they form one group.
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut calls = Vec::new();
        let mut ids = Vec::new();
        for index in 0..4 {
            let queue = format!("queue {index}");
            let mut jobs = vec![job().queue(&queue)];
            if index == failing {
                jobs.push(job().priority(Priority::Critical));
            }
            ids.push(jobs[0].id());
            calls.push(call(&store, jobs));
            settle_down().await;
        }
        other.execute_batch("COMMIT").unwrap();
        for (index, call) in calls.into_iter().enumerate() {
            let good = index != failing;
            assert_eq!(
                call.await.unwrap(),
                good,
                "unexpected result of call {index} while call \
                 {failing} fails"
            );
            assert_eq!(exists(&store, ids[index]).await, good);
        }
        // The rollback of the failed call removed a route that the store had just cached. The store
        // must store this route again.
        let again = enqueue(&store, job().queue(&format!("queue {failing}"))).await;
        let record = store
            .get(&[again], Detail::Whole)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(record.spec.route.queue, format!("queue {failing}").as_str());
        let from_elsewhere = db.open().await;
        assert_eq!(from_elsewhere.queues().await.unwrap().len(), 4);
    }
}

#[tokio::test]
async fn a_call_without_a_waiter_is_not_begun() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let other = db.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = call(&store, vec![job()]);
    settle_down().await;
    let abandoned = job();
    let id = abandoned.id();
    let second = call(&store, vec![abandoned]);
    settle_down().await;
    second.abort();
    settle_down().await;
    other.execute_batch("COMMIT").unwrap();
    assert!(first.await.unwrap());
    assert!(!exists(&store, id).await);
}

#[tokio::test]
async fn dropped_futures_leave_the_store_usable() {
    let db = TempDatabase::new();
    let store = db.open().await;
    enqueue(&store, job()).await;
    for micros in 0..200 {
        let wait = Duration::from_micros(micros * 5);
        let jobs = [job()];
        let _ = tokio::time::timeout(wait, store.enqueue(&jobs)).await;
        let request = request_all();
        let _ = tokio::time::timeout(wait, store.claim_next_batch(&request)).await;
        let _ = tokio::time::timeout(wait, store.database_time()).await;
    }
    let id = enqueue(&store, job()).await;
    assert!(exists(&store, id).await);
    let consistent: String = db
        .sql()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(consistent, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_few_commits() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let other = db.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let calls: Vec<_> = (0..200).map(|_| call(&store, vec![job()])).collect();
    settle_down().await;
    let before = commits(&db);
    other.execute_batch("COMMIT").unwrap();
    for call in calls {
        assert!(call.await.unwrap());
    }
    let taken = commits(&db) - before;
    assert!(
        taken <= 20,
        "expected at most 20 commits for 200 calls, found {taken}"
    );
}

/// Counts the commits in the write-ahead log. A frame ends a commit if its second number, the size
/// of the database after the commit, is not 0.
fn commits(db: &TempDatabase) -> usize {
    const HEADER: usize = 32;
    const FRAME: usize = 24 + 4_096;
    let log = std::fs::read(db.path().with_extension("db-wal")).unwrap();
    let frames = log[HEADER..].chunks_exact(FRAME);
    frames.filter(|frame| frame[4..8] != [0; 4]).count()
}
