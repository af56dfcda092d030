//! Migrations on files, and schemas that were changed or are incomplete.

use ratchet_conformance::kit::{assert_altered, assert_kind, enqueue, exists, job};
use ratchet_core::store::Store;
use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_store_sqlite::SqliteStore;
use rusqlite::Connection;

use crate::TempDatabase;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_starters_migrate_once() {
    let db = TempDatabase::new();
    let starters: Vec<_> = (0..8)
        .map(|_| {
            let path = db.path();
            tokio::spawn(async move { SqliteStore::builder(path).connect().await })
        })
        .collect();
    for starter in starters {
        let store = starter.await.unwrap().unwrap();
        enqueue(&store, job()).await;
    }
    assert_eq!(applied(&db.sql()), known());
}

/// The number of migrations that this program knows.
fn known() -> usize {
    SqliteStore::migrations().len()
}

fn applied(database: &Connection) -> usize {
    let count = "SELECT count(*) FROM ratchet_migrations";
    let applied: u32 = database.query_row(count, [], |row| row.get(0)).unwrap();
    applied as usize
}

#[tokio::test]
async fn a_second_start_keeps_everything() {
    let db = TempDatabase::new();
    let first = db.open().await;
    let id = enqueue(&first, job()).await;
    first.close().await;
    assert!(exists(&db.open().await, id).await);
    assert_eq!(applied(&db.sql()), known());
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_both_versions() {
    let db = TempDatabase::new();
    drop(db.open().await);
    db.sql()
        .execute(
            "INSERT INTO ratchet_migrations VALUES (99, 'later', '', 0)",
            [],
        )
        .unwrap();
    let error = db.refusal().await;
    assert_kind(&error, StoreErrorKind::SchemaMismatch(SchemaProblem::Newer));
    assert!(error.to_string().contains("99"), "{error}");
    let version = format!("version {} that this", known());
    assert!(error.to_string().contains(&version), "{error}");
}

#[tokio::test]
async fn tables_without_a_record_of_migrations_are_refused() {
    let db = TempDatabase::new();
    db.sql()
        .execute_batch("CREATE TABLE ratchet_jobs (mine)")
        .unwrap();
    let error = db.refusal().await;
    assert_altered(&error, "not Ratchet's");
    let tables: i64 = db
        .sql()
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 1, "nothing was added");
}

#[tokio::test]
async fn an_empty_record_of_migrations_is_refused() {
    let db = TempDatabase::new();
    drop(db.open().await);
    db.sql()
        .execute("DELETE FROM ratchet_migrations", [])
        .unwrap();
    assert_altered(&db.refusal().await, "is empty");
}

#[tokio::test]
async fn a_missing_table_or_index_is_refused_by_name() {
    for drop_one in [
        "DROP TABLE ratchet_locks",
        "DROP INDEX ratchet_jobs_finished",
    ] {
        let db = TempDatabase::new();
        drop(db.open().await);
        db.sql().execute_batch(drop_one).unwrap();
        let error = db.refusal().await;
        assert_altered(&error, drop_one.rsplit(' ').next().unwrap());
    }
}

#[tokio::test]
async fn the_applications_own_tables_and_version_stay() {
    let db = TempDatabase::new();
    db.sql()
        .execute_batch(
            "PRAGMA user_version = 7;
             PRAGMA application_id = 9;
             CREATE TABLE jobs (mine);
             INSERT INTO jobs VALUES ('kept');",
        )
        .unwrap();
    let store = db.open().await;
    enqueue(&store, job()).await;
    let kept: (i64, i64, String) = db
        .sql()
        .query_row(
            "SELECT user_version, application_id, (SELECT mine FROM jobs)
             FROM pragma_user_version, pragma_application_id",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(kept, (7, 9, "kept".to_owned()));
}

#[tokio::test]
async fn the_printed_migrations_make_the_schema() {
    let db = TempDatabase::new();
    drop(db.open().await);
    let by_hand = Connection::open_in_memory().unwrap();
    for migration in SqliteStore::migrations() {
        by_hand.execute_batch(&migration.sql).unwrap();
    }
    let objects = |database: &Connection| -> Vec<String> {
        let sql = "SELECT name FROM sqlite_schema
                   WHERE name LIKE 'ratchet%' AND name <> 'ratchet_migrations' ORDER BY name";
        let mut statement = database.prepare(sql).unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect()
    };
    assert_eq!(objects(&by_hand), objects(&db.sql()));
}
