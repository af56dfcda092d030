//! Jobs in transactions of the application.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, exists, job};
use ratchet_core::StoreErrorKind;
use ratchet_core::model::{Detail, Enqueued};
use ratchet_core::store::{Checked, JobStore, Store};
use ratchet_core::{BatchId, Condition, JobId, NewJob, Ratchet};
use ratchet_sql::JOB_TABLES;
use ratchet_store_sqlserver::SqlServerStore;

use crate::open;
use crate::server::Schema;

/// Returns how many connections a store has in its pool.
fn open_connections(store: &Checked<SqlServerStore>) -> u32 {
    Store::connections(store).unwrap()
}

async fn notes(schema: &Schema) -> i32 {
    let rows = schema.rows("SELECT COUNT(*) FROM {schema}.notes").await;
    rows.unwrap()[0].get(0).unwrap()
}

/// Creates a table of the application.
async fn make_notes(schema: &Schema) {
    let make = "CREATE TABLE {schema}.notes (note nvarchar(100) NOT NULL PRIMARY KEY)";
    schema.execute(make).await.unwrap();
}

fn insert(schema: &Schema) -> String {
    schema.sql("INSERT INTO {schema}.notes VALUES (@P1)")
}

pub(crate) async fn a_rollback_leaves_no_rows(schema: Arc<Schema>) {
    let store = open(&schema).await;
    make_notes(&schema).await;
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.execute(&insert(&schema), &[&"a"]).await.unwrap(), 1);
    let jobs = [job(), job().unique_key("u").idempotency_key("i").lane("l")];
    let enqueued = store.enqueue_in(&mut tx, &jobs).await.unwrap();
    tx.rollback().await.unwrap();
    for job in enqueued {
        assert!(!exists(&store, job.id()).await);
    }
    let others = ["idempotency_keys", "lanes", "notes"];
    for table in JOB_TABLES.iter().chain(&others) {
        let count = format!("SELECT COUNT(*) FROM {{schema}}.{table}");
        let rows = schema.rows(&count).await.unwrap();
        assert_eq!(rows[0].get::<i32, _>(0), Some(0), "{table}");
    }
    assert_eq!(
        open_connections(&store),
        1,
        "expected the connection to be returned"
    );
}

pub(crate) async fn a_commit_brings_them(schema: Arc<Schema>) {
    let store = open(&schema).await;
    make_notes(&schema).await;
    let mut tx = store.begin().await.unwrap();
    tx.execute(&insert(&schema), &[&"a"]).await.unwrap();
    let jobs = [job(), job().delay(Duration::from_secs(60)), job().lane("l")];
    let enqueued = store.enqueue_in(&mut tx, &jobs).await.unwrap();
    let own = schema.sql("SELECT note FROM {schema}.notes");
    let read = tx.query(&own, &[]).await.unwrap();
    assert_eq!(read[0].get::<&str, _>(0), Some("a"));
    assert!(
        !exists(&store, enqueued[0].id()).await,
        "expected the job to be invisible before the commit"
    );
    tx.commit().await.unwrap();
    for job in enqueued {
        assert!(exists(&store, job.id()).await);
    }
    assert_eq!(notes(&schema).await, 1);
}

pub(crate) async fn a_dropped_transaction_leaves_nothing(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(1).connect().await.unwrap();
    make_notes(&schema).await;
    let mut tx = store.begin().await.unwrap();
    tx.execute(&insert(&schema), &[&"a"]).await.unwrap();
    let jobs = [job()];
    store.enqueue_in(&mut tx, &jobs).await.unwrap();
    drop(tx);
    assert_eq!(
        open_connections(&store),
        0,
        "expected the connection to be closed"
    );
    assert!(!exists(&store, jobs[0].id()).await);
    assert_eq!(notes(&schema).await, 0);
}

pub(crate) async fn a_dropped_call_throws_its_connection_away(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(1).connect().await.unwrap();
    make_notes(&schema).await;
    // Another transaction has inserted the key that this one inserts, so the call waits.
    let mut rival = crate::server::connect(&schema.url).await.unwrap();
    let hold = schema.sql("BEGIN TRANSACTION; INSERT INTO {schema}.notes VALUES (N'a')");
    let held = rival.simple_query(hold).await.unwrap();
    held.into_results().await.unwrap();
    let mut tx = store.begin().await.unwrap();
    let insert = insert(&schema);
    let waiting = tx.execute(&insert, &[&"a"]);
    let waited = tokio::time::timeout(Duration::from_millis(300), waiting).await;
    assert!(waited.is_err(), "expected the call to wait");
    let jobs = [job()];
    let error = store.enqueue_in(&mut tx, &jobs).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    let error = tx.commit().await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    assert_eq!(
        open_connections(&store),
        0,
        "expected the connection to be closed"
    );
    // The pool may have only one connection. The closed connection does not count, so the pool can
    // open another one.
    let id = enqueue(&store, job()).await;
    assert!(exists(&store, id).await);
    let end = rival.simple_query("ROLLBACK TRANSACTION").await.unwrap();
    end.into_results().await.unwrap();
    assert!(!exists(&store, jobs[0].id()).await);
}

pub(crate) async fn a_refused_enqueue_leaves_the_transaction_usable(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut tx = store.begin().await.unwrap();
    let good = [job()];
    store.enqueue_in(&mut tx, &good).await.unwrap();
    // The first job is stored before the store finds that the batch of the second is unknown.
    let bad = [job().lane("l"), job().in_batch(BatchId::new())];
    let error = store.enqueue_in(&mut tx, &bad).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Invalid);
    let orphan = job().after(JobId::new(), Condition::Ended);
    let error = store.enqueue_in(&mut tx, &[orphan]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Invalid);
    tx.commit().await.unwrap();
    assert!(exists(&store, good[0].id()).await);
    for job in &bad {
        assert!(
            !exists(&store, job.id()).await,
            "expected the rejected enqueue to leave nothing"
        );
    }
    let lanes = schema.rows("SELECT lane FROM {schema}.lanes").await;
    assert!(
        lanes.unwrap().is_empty(),
        "expected the rejected enqueue to leave nothing"
    );
}

pub(crate) async fn an_error_of_the_server_fails_the_transaction(schema: Arc<Schema>) {
    let store = open(&schema).await;
    make_notes(&schema).await;
    let mut tx = store.begin().await.unwrap();
    let jobs = [job()];
    store.enqueue_in(&mut tx, &jobs).await.unwrap();
    tx.execute(&insert(&schema), &[&"a"]).await.unwrap();
    let error = tx.execute(&insert(&schema), &[&"a"]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Contention);
    // No later call can write outside of the failed transaction.
    let error = tx.execute(&insert(&schema), &[&"b"]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    assert_kind(&tx.commit().await.unwrap_err(), StoreErrorKind::Unavailable);
    assert!(!exists(&store, jobs[0].id()).await);
    assert_eq!(notes(&schema).await, 0);
    let first = enqueue(&store, job().unique_key("u")).await;
    let mut tx = store.begin().await.unwrap();
    let again = store.enqueue_in(&mut tx, &[job().unique_key("u")]).await;
    assert_eq!(again.unwrap(), [Enqueued::Duplicate(first)]);
    tx.commit().await.unwrap();
}

pub(crate) async fn a_key_that_two_transactions_want_is_had_by_one(schema: Arc<Schema>) {
    let store = open(&schema).await;
    for first_commits in [true, false] {
        let key = || job().unique_key(if first_commits { "a" } else { "b" });
        let (mut first, mut second) = (store.begin().await.unwrap(), store.begin().await.unwrap());
        let (one, other) = ([key()], [key()]);
        store.enqueue_in(&mut first, &one).await.unwrap();
        let mut waiting = Box::pin(store.enqueue_in(&mut second, &other));
        let waited = tokio::time::timeout(Duration::from_secs(2), &mut waiting).await;
        assert!(waited.is_err(), "expected the call to wait");
        if first_commits {
            first.commit().await.unwrap();
            let lost = waiting.await.unwrap_err();
            assert_kind(&lost, StoreErrorKind::Contention);
            assert_kind(
                &second.commit().await.unwrap_err(),
                StoreErrorKind::Unavailable,
            );
            // Begins the transaction again, as the caller must.
            let mut again = store.begin().await.unwrap();
            let told = store.enqueue_in(&mut again, &other).await.unwrap();
            assert_eq!(told, [Enqueued::Duplicate(one[0].id())]);
            again.commit().await.unwrap();
        } else {
            first.rollback().await.unwrap();
            assert_eq!(waiting.await.unwrap(), [Enqueued::Created(other[0].id())]);
            second.commit().await.unwrap();
        }
        assert_eq!(exists(&store, one[0].id()).await, first_commits);
        assert_eq!(exists(&store, other[0].id()).await, !first_commits);
    }
}

/// Settings that a statement without parameters changes last exactly until the transaction ends.
/// Babelfish does not undo settings at the end of a procedure. There, settings that a statement
/// with parameters changes last until the transaction ends too.
pub(crate) async fn what_an_application_sets_lasts_until_the_end(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(1).connect().await.unwrap();
    for commits in [true, false] {
        let mut tx = store.begin().await.unwrap();
        for set in ["SET ROWCOUNT 1", "SET LOCK_TIMEOUT 0", "SET XACT_ABORT OFF"] {
            tx.execute(set, &[]).await.unwrap();
        }
        let three = "SELECT a FROM (VALUES (1), (2), (3)) AS three (a)";
        assert_eq!(
            tx.query(three, &[]).await.unwrap().len(),
            1,
            "expected the setting to last"
        );
        let some = format!("{three} WHERE a > @P1");
        assert_eq!(
            tx.query(&some, &[&0]).await.unwrap().len(),
            1,
            "expected the setting to last"
        );
        tx.execute("SET ROWCOUNT 2", &[]).await.unwrap();
        assert_eq!(
            tx.query(&some, &[&0]).await.unwrap().len(),
            2,
            "expected the setting to be changed"
        );
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(
            open_connections(&store),
            1,
            "expected the connection to be kept"
        );
        let jobs = [job(), job(), job()];
        store.enqueue(&jobs).await.unwrap();
        let ids: Vec<JobId> = jobs.iter().map(NewJob::id).collect();
        let found = store.get(&ids, Detail::Whole).await.unwrap();
        assert_eq!(
            found.iter().flatten().count(),
            3,
            "expected the setting to be reset"
        );
    }
}

pub(crate) async fn a_temporary_table_made_without_parameters_lasts(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut tx = store.begin().await.unwrap();
    let make = "CREATE TABLE #own (note nvarchar(100) NOT NULL)";
    tx.execute(make, &[]).await.unwrap();
    let insert = "INSERT INTO #own VALUES (@P1), (@P2)";
    assert_eq!(tx.execute(insert, &[&"a", &"b"]).await.unwrap(), 2);
    let read = tx.query("SELECT note FROM #own ORDER BY note", &[]).await;
    assert_eq!(read.unwrap()[1].get::<&str, _>(0), Some("b"));
    tx.execute("DROP TABLE #own", &[]).await.unwrap();
    tx.commit().await.unwrap();
}

/// Checks the number of changed rows that `execute` returns, with and without parameters.
pub(crate) async fn the_last_statement_is_counted(schema: Arc<Schema>) {
    let store = open(&schema).await;
    make_notes(&schema).await;
    let mut tx = store.begin().await.unwrap();
    let table = schema.sql("{schema}.notes");
    let both = format!(
        "INSERT INTO {table} VALUES (N'a'); INSERT INTO {table} VALUES (N'b'), (N'c') -- two"
    );
    assert_eq!(tx.execute(&both, &[]).await.unwrap(), 2);
    let both = format!(
        "INSERT INTO {table} VALUES (@P1); UPDATE {table} SET note = note + N'x' WHERE note > @P2"
    );
    assert_eq!(tx.execute(&both, &[&"d", &"b"]).await.unwrap(), 2);
    let none = format!("DELETE FROM {table} WHERE note = N'none'");
    assert_eq!(tx.execute(&none, &[]).await.unwrap(), 0);
    tx.commit().await.unwrap();
    assert_eq!(notes(&schema).await, 4);
}

pub(crate) async fn a_closed_store_refuses(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut tx = store.begin().await.unwrap();
    store.close().await;
    let error = store.begin().await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    let error = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    let error = store.enqueue_in(&mut tx, &[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
}

/// Without a reset, the application's settings would prevent rows from being stored.
pub(crate) async fn an_enqueue_stores_every_job_whatever_was_set_before(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut tx = store.begin().await.unwrap();
    for set in ["SET ROWCOUNT 1", "SET NOCOUNT ON", "SET XACT_ABORT OFF"] {
        tx.execute(set, &[]).await.unwrap();
    }
    let plain = [job(), job(), job()];
    store.enqueue_in(&mut tx, &plain).await.unwrap();
    tx.execute("SET ROWCOUNT 1", &[]).await.unwrap();
    let keyed = [job().unique_key("a").lane("l"), job().unique_key("b")];
    store.enqueue_in(&mut tx, &keyed).await.unwrap();
    tx.commit().await.unwrap();
    for job in plain.iter().chain(&keyed) {
        assert!(exists(&store, job.id()).await);
    }
}

pub(crate) async fn a_transaction_of_another_store_is_refused(schema: Arc<Schema>) {
    let (store, other) = (open(&schema).await, open(&schema).await);
    let mut tx = store.begin().await.unwrap();
    let jobs = [job()];
    let error = other.enqueue_in(&mut tx, &jobs).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Invalid);
    // A clone counts as the same store, and the transaction continues.
    store.clone().enqueue_in(&mut tx, &jobs).await.unwrap();
    tx.commit().await.unwrap();
    assert!(exists(&store, jobs[0].id()).await);
}

/// A statement of the application that fails, here a second COMMIT, fails the transaction
/// permanently.
pub(crate) async fn a_refused_statement_fails_the_transaction(schema: Arc<Schema>) {
    let store = open(&schema).await;
    make_notes(&schema).await;
    let mut tx = store.begin().await.unwrap();
    tx.execute("COMMIT TRANSACTION", &[]).await.unwrap();
    assert!(tx.execute("COMMIT TRANSACTION", &[]).await.is_err());
    let error = tx.execute(&insert(&schema), &[&"a"]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    tx.rollback().await.unwrap();
    assert_eq!(
        notes(&schema).await,
        0,
        "expected nothing to be written outside a transaction"
    );
}

pub(crate) async fn a_client_enqueues_in_transactions(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let client = Ratchet::client(Arc::new(store.clone()));
    let mut tx = store.begin().await.unwrap();
    let enqueued = client.enqueue_in(&mut tx, job()).await.unwrap();
    tx.commit().await.unwrap();
    assert!(exists(&store, enqueued.id()).await);
}
