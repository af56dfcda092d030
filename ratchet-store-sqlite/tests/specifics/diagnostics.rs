//! What diagnostics find in unusual or damaged files.

use std::fs::File;

use ratchet_conformance::kit::{enqueue, job};
use ratchet_core::model::{Finding, Severity};
use ratchet_core::store::{Checked, DiagnosticStore};
use ratchet_store_sqlite::SqliteStore;

use crate::TempDatabase;

async fn found(store: &Checked<SqliteStore>, code: &str) -> Vec<Finding> {
    let mut findings = store.findings().await.unwrap();
    findings.retain(|finding| finding.code == code);
    findings
}

#[tokio::test]
async fn a_sound_file_says_its_version_and_nothing_else() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let known = SqliteStore::migrations().len() as u64;
    assert_eq!(
        store.findings().await.unwrap(),
        [Finding::schema(known, known)]
    );
}

#[tokio::test]
async fn a_dropped_index_is_missing() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let drop = "DROP INDEX ratchet_jobs_claim; DROP INDEX ratchet_links_open";
    db.sql().execute_batch(drop).unwrap();
    let missing = [
        Finding::missing("ratchet_jobs_claim"),
        Finding::missing("ratchet_links_open"),
    ];
    assert_eq!(found(&store, "missing_object").await, missing);
    assert_eq!(store.findings().await.unwrap().len(), 3, "and the version");
}

#[tokio::test]
async fn an_upgraded_schema_is_newer() {
    let db = TempDatabase::new();
    let store = db.open().await;
    let later = "INSERT INTO ratchet_migrations VALUES (99, 'later', '', 0)";
    db.sql().execute(later, []).unwrap();
    let known = SqliteStore::migrations().len() as u64;
    let newer = [Finding::schema(known + 1, known)];
    assert_eq!(found(&store, "schema_version").await, newer);
    assert_eq!(newer[0].severity, Severity::Warning);
}

#[tokio::test]
async fn a_log_that_does_not_shrink_is_told_of() {
    let db = TempDatabase::new();
    let store = db.open().await;
    enqueue(&store, job()).await;
    let log = db.path().with_extension("db-wal");
    // SQLite does not read the log after the last commit, so the added bytes do no harm.
    let log = File::options().write(true).open(log).unwrap();
    log.set_len(Finding::LARGE_LOG).unwrap();
    let large: Vec<Finding> = Finding::log_size(Finding::LARGE_LOG).into_iter().collect();
    assert_eq!(found(&store, "large_log").await, large);
    log.set_len(Finding::LARGE_LOG - 1).unwrap();
    assert_eq!(found(&store, "large_log").await, []);
}

#[tokio::test]
async fn what_is_only_in_memory_is_told_of() {
    let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
    assert_eq!(found(&store, "volatile").await.len(), 1);
}
