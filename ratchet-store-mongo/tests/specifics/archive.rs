//! The archive: attempts in two places, and concurrent passes.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::doc;
use ratchet_conformance::kit::{enqueue, exists, job, request_all};
use ratchet_core::model::{
    ArchivePurge, BatchPurge, Guarded, JobSelector, Outcome, PurgeRequest, Settlement,
};
use ratchet_core::store::{ArchiveStore, Checked, JobStore, WorkflowStore};
use ratchet_core::{JobAction, JobState};
use ratchet_store_mongo::MongoStore;

use crate::open;
use crate::server::Space;

async fn snooze(store: &Checked<MongoStore>, times: usize) {
    for _ in 0..times {
        let claimed = store.claim_next_batch(&request_all()).await.unwrap();
        let delay = Duration::ZERO;
        let again = Settlement::new(claimed[0].claim.token, Outcome::Snoozed { delay });
        store.settle(&[again]).await.unwrap();
    }
}

async fn count(space: &Space, collection: &str) -> u64 {
    let rows = space.of_majority(collection);
    rows.count_documents(doc! {}).await.unwrap()
}

/// Archives all cancelled jobs, after the clock has moved on.
async fn pass(store: &Checked<MongoStore>) -> u64 {
    tokio::time::sleep(Duration::from_millis(5)).await;
    let old = PurgeRequest::new(JobState::Cancelled, Duration::from_millis(1), 1_000);
    match ArchiveStore::archive(store, &old).await.unwrap() {
        Guarded::Done(archived) => archived,
        Guarded::Stale => panic!("a call without a guard should not be stale"),
    }
}

pub(crate) async fn a_long_history_is_archived_whole_and_leaves_nothing(space: Arc<Space>) {
    let store = open(&space).await;
    let id = enqueue(&store, job()).await;
    snooze(&store, 60).await;
    assert!(count(&space, "attempts").await > 0);
    let selected = JobSelector::Ids(vec![id]);
    store.act(&selected, JobAction::Cancel).await.unwrap();
    assert_eq!(pass(&store).await, 1);
    let archived = store.archived(&[id]).await.unwrap().remove(0).unwrap();
    let seqs: Vec<u64> = archived.history.iter().map(|attempt| attempt.seq).collect();
    assert_eq!(seqs, (1..=60).collect::<Vec<u64>>());
    assert!(!exists(&store, id).await);
    assert_eq!(count(&space, "attempts").await, 0);
}

pub(crate) async fn a_purge_leaves_the_documents_of_other_programs(space: Arc<Space>) {
    let store = open(&space).await;
    for (collection, field) in [("archive", "finished_at"), ("batches", "ended_at")] {
        let theirs = doc! { "_id": "theirs", field: 0_i64 };
        let rows = space.of_majority(collection);
        rows.insert_one(theirs).await.unwrap();
    }
    let age = Duration::from_millis(1);
    let request = ArchivePurge::new(age, 100);
    let purged = store.purge_archive(&request).await.unwrap();
    assert!(matches!(purged, Guarded::Done(0)), "{purged:?}");
    let batches = BatchPurge::new(age, 100);
    let purged = store.purge_batches(&batches).await.unwrap();
    assert!(matches!(purged, Guarded::Done(0)), "{purged:?}");
    for collection in ["archive", "batches"] {
        assert_eq!(count(&space, collection).await, 1, "{collection}");
    }
}

pub(crate) async fn two_passes_at_once_archive_each_job_once(space: Arc<Space>) {
    let (a, b) = (open(&space).await, open(&space).await);
    let jobs: Vec<_> = (0..250).map(|_| job()).collect();
    a.enqueue(&jobs).await.unwrap();
    let ids: Vec<_> = jobs.iter().map(ratchet_core::NewJob::id).collect();
    let all = JobSelector::Ids(ids.clone());
    a.act(&all, JobAction::Cancel).await.unwrap();
    let (first, second) = tokio::join!(pass(&a), pass(&b));
    assert_eq!(first + second, 250);
    assert_eq!(count(&space, "archive").await, 250);
    assert_eq!(count(&space, "jobs").await, 0);
    let archived = b.archived(&ids).await.unwrap();
    assert!(archived.iter().all(Option::is_some));
}
