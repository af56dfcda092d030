//! Purging and archiving old jobs with many children.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use ratchet_conformance::kit::{exists, job};
use ratchet_core::model::{Condition, Enqueued, Guarded, JobSelector, PurgeRequest, Settlement};
use ratchet_core::store::{ArchiveStore, Checked, JobStore};
use ratchet_core::{JobAction, JobId, JobState, NewJob};
use ratchet_store_mongo::MongoStore;

use crate::faults::Fault;
use crate::links::{done, running, under_way};
use crate::open;
use crate::plans::{own, profile, profile_of};
use crate::server::Space;

/// Enqueues jobs and ends them, and returns their ids.
pub(crate) async fn ended(store: &Checked<MongoStore>, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let jobs: Vec<NewJob> = (ids.len()..count).take(100).map(|_| job()).collect();
        let claimed = running(store, &jobs).await;
        ids.extend(claimed.iter().map(|one| one.claim.token.job));
        let done: Vec<Settlement> = claimed.iter().map(done).collect();
        store.settle(&done).await.unwrap();
    }
    ids
}

/// Stores children of a job that are due in the far future.
pub(crate) async fn children(
    store: &Checked<MongoStore>,
    parent: JobId,
    count: usize,
) -> Vec<JobId> {
    let child = || {
        job()
            .after(parent, Condition::Ended)
            .delay(Duration::from_secs(3_600))
    };
    let jobs: Vec<NewJob> = (0..count).map(|_| child()).collect();
    for jobs in jobs.chunks(1_000) {
        store.enqueue(jobs).await.unwrap();
    }
    let mut ids: Vec<JobId> = jobs.iter().map(NewJob::id).collect();
    ids.sort_unstable();
    ids
}

/// Returns a request to remove up to `limit` jobs that have succeeded.
pub(crate) fn all(limit: usize) -> PurgeRequest {
    PurgeRequest::new(JobState::Succeeded, Duration::from_millis(1), limit)
}

async fn cancel(store: &Checked<MongoStore>, jobs: &[JobId]) {
    for jobs in jobs.chunks(1_000) {
        let selected = JobSelector::Ids(jobs.to_vec());
        store.act(&selected, JobAction::Cancel).await.unwrap();
    }
}

pub(crate) async fn a_parent_stays_for_the_last_of_many_children(space: Arc<Space>) {
    let store = open(&space).await;
    let parent = ended(&store, 1).await[0];
    // These are more children than one command reads.
    let children = children(&store, parent, 1_100).await;
    let (last, others) = children.split_last().unwrap();
    cancel(&store, others).await;
    assert_eq!(store.purge(&all(10)).await.unwrap(), Guarded::Done(0));
    let archived = ArchiveStore::archive(&store, &all(10)).await.unwrap();
    assert_eq!(archived, Guarded::Done(0));
    cancel(&store, &[*last]).await;
    assert_eq!(store.purge(&all(10)).await.unwrap(), Guarded::Done(1));
    assert!(!exists(&store, parent).await);
}

/// Returns the transactions of these profiled statements.
fn transactions(rows: &[Document]) -> BTreeSet<String> {
    let commands = rows
        .iter()
        .filter_map(|row| row.get_document("command").ok());
    let numbers = commands.filter_map(|command| {
        let of = command.get_document("lsid").ok()?;
        Some(format!("{of} {}", command.get("txnNumber")?))
    });
    numbers.collect()
}

pub(crate) async fn kept_parents_in_front_are_passed_in_several_transactions(space: Arc<Space>) {
    let (own, store) = own(&space).await;
    let parents = ended(&store, 500).await;
    for parents in parents.chunks(100) {
        let child = |parent: &JobId| {
            let child = job().after(*parent, Condition::Ended);
            child.delay(Duration::from_secs(3_600))
        };
        let children: Vec<NewJob> = parents.iter().map(child).collect();
        store.enqueue(&children).await.unwrap();
    }
    // These two jobs end after all the parents.
    let (purged, archived) = (ended(&store, 1).await[0], ended(&store, 1).await[0]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let rows = profile(&own, async {
        assert_eq!(store.purge(&all(1)).await.unwrap(), Guarded::Done(1));
    })
    .await;
    // Each transaction skips at most two hundred parents.
    assert_eq!(transactions(&rows).len(), 3, "{rows:#?}");
    assert!(!exists(&store, purged).await);
    let done = ArchiveStore::archive(&store, &all(10)).await.unwrap();
    assert_eq!(done, Guarded::Done(1));
    assert!(!exists(&store, archived).await);
    for parent in parents {
        assert!(exists(&store, parent).await);
    }
    own.database.drop().await.unwrap();
}

pub(crate) async fn a_job_is_archived_as_one_transaction_sees_it(space: Arc<Space>) {
    let (own, store) = own(&space).await;
    let parent = ended(&store, 1).await[0];
    let child = job().after(parent, Condition::Succeeded);
    let child = running(&store, &[child]).await;
    store.settle(&[done(&child[0])]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let rows = profile_of(&own, "links", async {
        let done = ArchiveStore::archive(&store, &all(10)).await.unwrap();
        assert_eq!(done, Guarded::Done(2));
    })
    .await;
    own.database.drop().await.unwrap();
    let reads = rows
        .iter()
        .filter(|row| row.get_str("op").is_ok_and(|op| op == "query"));
    let reads: Vec<&Document> = reads.collect();
    assert!(!reads.is_empty(), "{rows:#?}");
    for row in reads {
        let command = row.get_document("command").unwrap();
        assert!(
            command.contains_key("txnNumber"),
            "expected the read inside the transaction: \
             {row:#?}"
        );
    }
}

pub(crate) async fn a_key_stays_the_first_jobs_before_during_and_after_its_purge(
    space: Arc<Space>,
) {
    let fault = Fault::new(&space, &["commitTransaction"]).late(1_500);
    let (slow, other) = (fault.open(&space).await, open(&space).await);
    let keyed = || job().idempotency_key("i");
    let first = running(&other, &[keyed()]).await;
    other.settle(&[done(&first[0])]).await.unwrap();
    let first = first[0].claim.token.job;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let answer = || async { other.enqueue(&[keyed()]).await.unwrap() };
    assert_eq!(answer().await, [Enqueued::Duplicate(first)]);
    let name = fault.name().to_owned();
    let fault = fault.set().await;
    let purging = tokio::spawn(async move { slow.purge(&all(10)).await });
    // The job is deleted, but the deletion is not visible yet.
    let commit = doc! { "command.commitTransaction": { "$exists": true } };
    under_way(&space, &name, commit).await;
    assert_eq!(answer().await, [Enqueued::Duplicate(first)]);
    assert!(!purging.is_finished());
    assert_eq!(purging.await.unwrap().unwrap(), Guarded::Done(1));
    fault.lift().await;
    assert!(!exists(&other, first).await);
    assert_eq!(answer().await, [Enqueued::Duplicate(first)]);
}
