//! The archive, and unreadable rows in it.

use std::time::Duration;

use ratchet_conformance::kit::{enqueue, job};
use ratchet_core::model::{
    ArchiveFilter, ArchivePurge, Guarded, JobOrder, JobSelector, PageRequest, PurgeRequest,
};
use ratchet_core::store::{ArchiveStore, Checked, JobStore};
use ratchet_core::{JobAction, JobId, JobState};
use ratchet_store_sqlite::SqliteStore;

use crate::{TempDatabase, statement};

/// Stores cancelled jobs that are old enough to be archived.
async fn cancelled(db: &TempDatabase, store: &Checked<SqliteStore>, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(enqueue(store, job()).await);
    }
    let jobs = JobSelector::Ids(ids.clone());
    store.act(&jobs, JobAction::Cancel).await.unwrap();
    let age = "UPDATE ratchet_jobs SET finished_at = 1";
    db.sql().execute_batch(age).unwrap();
    ids
}

async fn archive(store: &Checked<SqliteStore>, limit: usize) -> Guarded<u64> {
    let request = PurgeRequest::new(JobState::Cancelled, Duration::from_secs(60), limit);
    store.archive(&request).await.unwrap()
}

#[tokio::test]
async fn a_job_that_cannot_be_read_at_all_stays_and_keeps_no_other() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let ids = cancelled(&db, &store, 5).await;
    for id in &ids[..2] {
        let damage = "UPDATE ratchet_jobs SET route = 4711 WHERE id = ?1";
        db.sql().execute(damage, [id.as_bytes()]).unwrap();
    }
    assert_eq!(archive(&store, 2).await, Guarded::Done(2));
    assert_eq!(archive(&store, 2).await, Guarded::Done(1));
    assert_eq!(archive(&store, 2).await, Guarded::Done(0));
    let archived = store.archived(&ids).await.unwrap();
    let archived: Vec<bool> = archived.iter().map(Option::is_some).collect();
    assert_eq!(archived, [false, false, true, true, true]);
    let count = "SELECT count(*) FROM ratchet_jobs";
    let left: i64 = db.sql().query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 2);
}

#[tokio::test]
async fn a_document_that_cannot_be_read_harms_only_itself() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let ids = cancelled(&db, &store, 4).await;
    assert_eq!(archive(&store, 10).await, Guarded::Done(4));
    for (id, document) in [(ids[1], "CAST(x'ff' AS TEXT)"), (ids[3], "'{\"v\":2}'")] {
        let damage = format!("UPDATE ratchet_archive SET document = {document} WHERE id = ?1");
        db.sql().execute(&damage, [id.as_bytes()]).unwrap();
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

#[tokio::test]
async fn what_is_asked_by_tag_reads_only_jobs_that_have_it() {
    let db = TempDatabase::new();
    drop(db.open().await);
    let sql = db.sql();
    let statements = ["list_tagged_oldest", "list_tagged_newest", "count_tagged"];
    for name in statements {
        let statement = statement(include_str!("../../src/sql/lists.sql"), name);
        let mut explain = sql
            .prepare(&format!("EXPLAIN QUERY PLAN {statement}"))
            .unwrap();
        let count = explain.parameter_count();
        let nulls = rusqlite::params_from_iter(vec![rusqlite::types::Null; count]);
        let steps = explain.query_map(nulls, |row| row.get(3)).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        let whole = |step: &&String| step.starts_with("SCAN") && !step.contains("json_each");
        assert_eq!(steps.iter().find(whole), None, "{steps:?}");
        assert!(
            steps[0].contains("SEARCH tagged USING PRIMARY KEY (tag=?"),
            "{steps:?}"
        );
    }
}
