//! Files that are unusual, damaged, locked, read-only or full.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, exists, job, request_all};
use ratchet_core::model::Detail;
use ratchet_core::store::{JobStore, NodeStore, Store};
use ratchet_core::{JobId, NewJob, StoreErrorKind};
use ratchet_store_sqlite::{SqliteStore, Synchronous};

use crate::TempDatabase;

#[tokio::test]
async fn odd_file_names_work() {
    for name in [
        "with space.db",
        "100%25.db",
        "größe 日本.db",
        "file:a?mode=memory",
        "a#b;'\"",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        let store = SqliteStore::builder(&path).connect().await.unwrap();
        enqueue(&store, job()).await;
        assert!(path.exists(), "{name}");
    }
}

#[tokio::test]
async fn a_url_names_the_same_file_as_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a b%.db");
    let url = format!("sqlite://{}/a%20b%25.db", directory.path().display());
    let by_url = SqliteStore::connect(&url).await.unwrap();
    let by_path = SqliteStore::builder(&path).connect().await.unwrap();
    let id = enqueue(&by_url, job()).await;
    assert!(exists(&by_path, id).await);
}

#[tokio::test]
async fn a_missing_directory_is_named_and_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none/jobs.db");
    let error = SqliteStore::builder(&path).connect().await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("none/jobs.db"), "{error}");
    assert!(!directory.path().join("none").exists());
}

#[tokio::test]
async fn a_directory_is_no_database() {
    let directory = tempfile::tempdir().unwrap();
    let refused = SqliteStore::builder(directory.path()).connect().await;
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Misconfigured);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_corrupt_and_kept() {
    let db = TempDatabase::new();
    let content = "not a database, but ordinary text. ".repeat(100);
    fs::write(db.path(), &content).unwrap();
    assert_kind(&db.refusal().await, StoreErrorKind::Corrupt);
    assert_eq!(fs::read_to_string(db.path()).unwrap(), content);
}

#[tokio::test]
async fn a_read_only_file_is_refused() {
    let db = TempDatabase::new();
    db.open().await.close().await;
    let path = db.path();
    let Some(_guard) = ReadOnly::make(&path) else {
        eprintln!("skipped: this user can write even read-only files");
        return;
    };
    assert_kind(&db.refusal().await, StoreErrorKind::ReadOnly);
}

/// A file that no user can write, until this is dropped. Permissions do not stop root, but the
/// attribute `immutable` does.
struct ReadOnly<'a>(&'a Path);

impl<'a> ReadOnly<'a> {
    fn make(path: &'a Path) -> Option<Self> {
        let mut permissions = fs::metadata(path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(path, permissions).unwrap();
        let writable = || fs::OpenOptions::new().append(true).open(path).is_ok();
        if writable() {
            let _ = Command::new("chattr").arg("+i").arg(path).output();
        }
        (!writable()).then_some(Self(path))
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        let _ = Command::new("chattr").arg("-i").arg(self.0).output();
    }
}

#[tokio::test]
async fn a_file_locked_by_another_program_is_contention_until_it_is_released() {
    let db = TempDatabase::new();
    let store = db.open_impatient().await;
    let other = db.sql();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Contention);
    other.execute_batch("COMMIT").unwrap();
    enqueue(&store, job()).await;
}

#[tokio::test]
async fn a_fresh_file_locked_by_another_program_is_contention() {
    let db = TempDatabase::new();
    let other = db.sql();
    other
        .execute_batch("CREATE TABLE mine (a); BEGIN EXCLUSIVE")
        .unwrap();
    assert_kind(&db.refusal().await, StoreErrorKind::Contention);
    other.execute_batch("COMMIT").unwrap();
    enqueue(&db.open().await, job()).await;
}

#[tokio::test]
async fn a_lock_that_is_released_in_time_is_waited_for() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let other = db.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let call = tokio::spawn({
        let store = store.clone();
        async move { store.enqueue(&[job()]).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!call.is_finished());
    other.execute_batch("COMMIT").unwrap();
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_deadline_bounds_a_call() {
    let db = TempDatabase::new();
    drop(db.open().await);
    let builder = SqliteStore::builder(db.path()).deadline(Duration::from_millis(100));
    let store = builder.connect().await.unwrap();
    let other = db.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
}

#[tokio::test]
async fn an_idle_claim_needs_no_write_lock() {
    let db = TempDatabase::new();
    let store = db.open_impatient().await;
    enqueue(&store, job().delay(Duration::from_secs(3_600))).await;
    enqueue(&store, job().capability("gpu")).await;
    let other = db.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(store.claim_next_batch(&request_all()).await.unwrap(), []);
    store.database_time().await.unwrap();
}

#[tokio::test]
async fn a_full_database_loses_nothing_and_works_again_when_there_is_room() {
    let db = TempDatabase::new();
    let builder = SqliteStore::builder(db.path()).max_pages(100);
    let store = builder.connect().await.unwrap();
    let large = "x".repeat(20_000);
    let mut stored = Vec::new();
    let error = loop {
        match store.enqueue(&[NewJob::new("kind", &large), job()]).await {
            Ok(enqueued) => stored.extend(enqueued),
            Err(error) => break error,
        }
    };
    assert_kind(&error, StoreErrorKind::Full);
    assert!(stored.len() > 10, "{}", stored.len());
    let claimed = store.claim_next_batch(&request_all()).await;
    assert_eq!(claimed.unwrap().len(), stored.len(), "none half stored");
    let roomy = db.open().await;
    enqueue(&roomy, NewJob::new("kind", &large)).await;
}

#[tokio::test]
async fn a_closed_store_has_tidied_up_and_says_so() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let clone = store.clone();
    enqueue(&store, job()).await;
    store.close().await;
    assert!(!db.path().with_extension("db-wal").exists());
    let error = clone.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    assert_kind(
        &clone.get(&[JobId::new()], Detail::Whole).await.unwrap_err(),
        StoreErrorKind::Unavailable,
    );
    clone.close().await;
}

#[tokio::test]
async fn a_dropped_store_finishes_what_was_asked() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let other = db.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let call = tokio::spawn(async move { store.enqueue(&[job()]).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    other.execute_batch("COMMIT").unwrap();
    let id = call.await.unwrap().unwrap()[0].id();
    assert!(exists(&db.open().await, id).await);
}

#[tokio::test]
async fn a_private_database_in_memory_does_everything() {
    let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
    let id = enqueue(&store, job()).await;
    assert!(exists(&store, id).await);
    assert_eq!(
        store.claim_next_batch(&request_all()).await.unwrap().len(),
        1
    );
    let other = SqliteStore::connect("sqlite::memory:").await.unwrap();
    assert!(!exists(&other, id).await);
}

#[tokio::test]
async fn a_database_in_memory_cannot_be_found_up_to_date() {
    let builder = SqliteStore::builder("sqlite::memory:").migrate(false);
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    assert_eq!(error.invalid_input().unwrap().field(), "migrate");
}

#[tokio::test]
async fn the_handle_says_what_it_is_and_how_it_syncs() {
    let db = TempDatabase::new();
    let builder = SqliteStore::builder(db.path()).synchronous(Synchronous::Normal);
    let store = builder.connect().await.unwrap();
    assert_eq!(store.info().backend, "sqlite");
    assert!(format!("{store:?}").contains("Normal"));
    let mode: String = db
        .sql()
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}
