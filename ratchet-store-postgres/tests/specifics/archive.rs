//! The archive and rows that cannot be read.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{enqueue, exists, job, request_all};
use ratchet_core::model::{
    ArchiveFilter, ArchivePurge, Detail, Guarded, JobOrder, JobSelector, Outcome, PageRequest,
    PurgeRequest, Settlement,
};
use ratchet_core::store::{ArchiveStore, Checked, JobStore, WorkflowStore};
use ratchet_core::{BatchId, Condition, JobAction, JobId, JobState};
use ratchet_store_postgres::PostgresStore;
use sqlx::Row;

use crate::open;
use crate::server::Schema;

/// Enqueues and cancels jobs, and makes them old enough to be archived.
async fn cancelled(schema: &Schema, store: &Checked<PostgresStore>, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(enqueue(store, job()).await);
    }
    let jobs = JobSelector::Ids(ids.clone());
    store.act(&jobs, JobAction::Cancel).await.unwrap();
    let age = "UPDATE {schema}.jobs SET finished_at = 1";
    schema.execute(age).await.unwrap();
    ids
}

async fn archive(store: &Checked<PostgresStore>, limit: usize) -> Guarded<u64> {
    let request = PurgeRequest::new(JobState::Cancelled, Duration::from_secs(60), limit);
    store.archive(&request).await.unwrap()
}

pub(crate) async fn a_job_that_cannot_be_read_at_all_stays_and_keeps_no_other(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let ids = cancelled(&schema, &store, 5).await;
    let damage = "UPDATE {schema}.jobs SET route = 4711 WHERE id IN ('{0}', '{1}')";
    let damage = damage.replace("{0}", &ids[0].to_string());
    let damage = damage.replace("{1}", &ids[1].to_string());
    schema.execute(&damage).await.unwrap();
    assert_eq!(archive(&store, 2).await, Guarded::Done(2));
    assert_eq!(archive(&store, 2).await, Guarded::Done(1));
    assert_eq!(archive(&store, 2).await, Guarded::Done(0));
    let archived = store.archived(&ids).await.unwrap();
    let archived: Vec<bool> = archived.iter().map(Option::is_some).collect();
    assert_eq!(archived, [false, false, true, true, true]);
    let left = schema.rows("SELECT FROM {schema}.jobs").await.unwrap();
    assert_eq!(left.len(), 2);
}

pub(crate) async fn a_document_that_cannot_be_read_harms_only_itself(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let ids = cancelled(&schema, &store, 4).await;
    assert_eq!(archive(&store, 10).await, Guarded::Done(4));
    for (id, document) in [(ids[1], "{"), (ids[3], "{\"v\":2}")] {
        let damage = "UPDATE {schema}.archive SET document = '{new}' WHERE id = '{id}'";
        let damage = damage
            .replace("{new}", document)
            .replace("{id}", &id.to_string());
        schema.execute(&damage).await.unwrap();
    }
    let archived = store.archived(&ids).await.unwrap();
    let archived: Vec<bool> = archived.iter().map(Option::is_some).collect();
    assert_eq!(archived, [true, false, true, false]);
    let mut page = PageRequest::first(1).order(JobOrder::OldestFirst);
    let mut listed = Vec::new();
    loop {
        let read = store
            .list_archived(&ArchiveFilter::all(), &page)
            .await
            .unwrap();
        listed.extend(read.jobs.iter().map(|one| one.job.id));
        if read.next.is_none() {
            break;
        }
        page = page.after(read.next);
    }
    assert_eq!(listed, [ids[0], ids[2]]);
    // The unreadable documents can be deleted like the others.
    let purge = ArchivePurge::new(Duration::from_secs(60), 10);
    assert_eq!(store.purge_archive(&purge).await.unwrap(), Guarded::Done(4));
}

pub(crate) async fn a_pool_of_one_is_enough_to_archive(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(1).connect().await.unwrap();
    let ids = cancelled(&schema, &store, 3).await;
    assert_eq!(archive(&store, 10).await, Guarded::Done(3));
    assert!(!exists(&store, ids[0]).await);
}

pub(crate) async fn a_pool_of_one_is_enough_for_linked_jobs(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(1).connect().await.unwrap();
    let batch = BatchId::new();
    store.create_batch(batch).await.unwrap();
    let parent = enqueue(&store, job()).await;
    let waiting = job().after(parent, Condition::Succeeded).in_batch(batch);
    let child = enqueue(&store, waiting.wait_for("s", Duration::from_secs(60))).await;
    let read = store
        .get(&[child], Detail::Whole)
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    assert_eq!((read.spec.after.len(), read.spec.batch), (1, Some(batch)));
    assert!(read.signal.is_some());
    let cancel = JobSelector::Ids(vec![child]);
    store.act(&cancel, JobAction::Cancel).await.unwrap();
    let age = "UPDATE {schema}.jobs SET finished_at = 1 WHERE state = 6";
    schema.execute(age).await.unwrap();
    assert_eq!(archive(&store, 10).await, Guarded::Done(1));
    for table in ["links", "batch_jobs", "signals"] {
        assert_eq!(count(&schema, table).await, 0, "{table}");
    }
}

async fn count(schema: &Schema, table: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {{schema}}.{table}");
    schema.rows(&count).await.unwrap()[0].get(0)
}

pub(crate) async fn a_job_that_goes_leaves_nothing_but_the_idempotency_key(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let request = PurgeRequest::new(JobState::Failed, Duration::from_secs(60), 10);
    for way in 0..3 {
        let key = way.to_string();
        let new = job().unique_key("u").tag("t").idempotency_key(&key);
        let id = enqueue(&store, new).await;
        let claimed = store.claim_next_batch(&request_all()).await.unwrap();
        let error = "it failed".to_owned();
        let end = Settlement::new(claimed[0].claim.token, Outcome::Failed { error });
        store.settle(&[end]).await.unwrap();
        let age = "UPDATE {schema}.jobs SET finished_at = 1";
        schema.execute(age).await.unwrap();
        for table in ["jobs", "job_data", "job_notes", "attempts", "job_tags"] {
            assert_eq!(count(&schema, table).await, 1, "{table}");
        }
        match way {
            0 => assert_eq!(store.purge(&request).await.unwrap(), Guarded::Done(1)),
            1 => {
                let jobs = JobSelector::Ids(vec![id]);
                store.act(&jobs, JobAction::Delete).await.unwrap();
            }
            _ => assert_eq!(store.archive(&request).await.unwrap(), Guarded::Done(1)),
        }
        for table in ratchet_sql::JOB_TABLES {
            assert_eq!(count(&schema, table).await, 0, "{table}");
        }
    }
    assert_eq!(count(&schema, "idempotency_keys").await, 3);
    assert_eq!(count(&schema, "archive").await, 1);
}
