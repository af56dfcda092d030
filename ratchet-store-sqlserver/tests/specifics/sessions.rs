//! Sessions that were abandoned midway, or whose settings an application has changed.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, exists, job};
use ratchet_core::model::{Detail, JobSelector};
use ratchet_core::store::{Checked, JobStore, NodeStore, Store};
use ratchet_core::{JobAction, JobState, StoreErrorKind};
use ratchet_store_sqlserver::{SqlServerStore, Transaction};

use crate::open;
use crate::server::{self, Client, Schema};

async fn number(tx: &mut Transaction, what: &str) -> i32 {
    let rows = tx.query(&format!("SELECT CAST({what} AS int)"), &[]).await;
    rows.unwrap()[0].get(0).unwrap()
}

/// Returns the session of the pool's only connection. The session must be in no transaction except
/// the one of this query.
async fn session(store: &Checked<SqlServerStore>) -> i32 {
    let mut tx = store.begin().await.unwrap();
    assert_eq!(
        number(&mut tx, "@@TRANCOUNT").await,
        1,
        "expected no other open transaction"
    );
    let session = number(&mut tx, "@@SPID").await;
    tx.commit().await.unwrap();
    assert_eq!(
        store.connections(),
        Some(1),
        "expected the connection to be returned"
    );
    session
}

async fn one(schema: &Schema) -> Checked<SqlServerStore> {
    schema.builder().max_connections(1).connect().await.unwrap()
}

/// Opens a connection outside of the store that runs `hold` in a transaction, which stays open.
async fn holder(schema: &Schema, hold: &str) -> Client {
    let mut rival = server::connect(&schema.url).await.unwrap();
    run(
        &mut rival,
        &schema.sql(&format!("BEGIN TRANSACTION; {hold}")),
    )
    .await;
    rival
}

async fn run(client: &mut Client, sql: &str) {
    let results = client.simple_query(sql).await.unwrap();
    results.into_results().await.unwrap();
}

pub(crate) async fn a_session_is_used_again_and_again(schema: Arc<Schema>) {
    let store = one(&schema).await;
    let first = session(&store).await;
    enqueue(&store, job()).await;
    assert_eq!(session(&store).await, first);
    // Neither invalid input nor a rollback changes the session.
    let refused = store
        .enqueue(&[job().in_batch(ratchet_core::BatchId::new())])
        .await;
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Invalid);
    store.begin().await.unwrap().rollback().await.unwrap();
    assert_eq!(session(&store).await, first);
}

pub(crate) async fn a_dropped_call_takes_its_session_with_it(schema: Arc<Schema>) {
    let store = one(&schema).await;
    let id = enqueue(&store, job()).await;
    let before = session(&store).await;
    let mut rival = holder(&schema, "UPDATE {schema}.jobs SET flags = flags").await;
    let this = JobSelector::Ids(vec![id]);
    let waiting = store.act(&this, JobAction::Cancel);
    let waited = tokio::time::timeout(Duration::from_secs(3), waiting).await;
    assert!(waited.is_err(), "expected the call to wait");
    assert_eq!(
        store.connections(),
        Some(0),
        "expected the connection to be closed"
    );
    assert_ne!(session(&store).await, before);
    run(&mut rival, "ROLLBACK TRANSACTION").await;
    // The server has rolled back the abandoned transaction, so its locks are released.
    let stored = store
        .get(&[id], Detail::Whole)
        .await
        .unwrap()
        .pop()
        .flatten()
        .unwrap();
    assert_eq!(stored.state, JobState::Pending);
    assert_eq!(store.act(&this, JobAction::Cancel).await.unwrap().len(), 1);
}

pub(crate) async fn an_error_leaves_no_transaction_open(schema: Arc<Schema>) {
    let store = one(&schema).await;
    let mut session_before = session(&store).await;
    for rolls_back in [true, false] {
        let mut tx = store.begin().await.unwrap();
        let jobs = [job()];
        store.enqueue_in(&mut tx, &jobs).await.unwrap();
        let error = tx.execute("SELECT 1 / 0", &[]).await;
        // Accepts any error: the server may report the division by zero, or the driver may report
        // that a row cannot be read.
        assert!(error.is_err());
        if rolls_back {
            tx.rollback().await.unwrap();
        } else {
            drop(tx);
            assert_eq!(
                store.connections(),
                Some(0),
                "expected the connection to be closed"
            );
        }
        let now = session(&store).await;
        assert_eq!(now == session_before, rolls_back);
        session_before = now;
        assert!(!exists(&store, jobs[0].id()).await);
    }
}

pub(crate) async fn a_transaction_that_was_ended_or_begun_inside_is_refused(schema: Arc<Schema>) {
    let store = one(&schema).await;
    for (statement, stores) in [("BEGIN TRANSACTION", true), ("COMMIT TRANSACTION", false)] {
        let mut tx = store.begin().await.unwrap();
        let jobs = [job()];
        tx.execute(statement, &[]).await.unwrap();
        // If the statement has ended the transaction, no job is stored.
        match store.enqueue_in(&mut tx, &jobs).await {
            Ok(_) => assert!(stores, "{statement}"),
            Err(error) => {
                assert!(!stores, "{statement}");
                assert_kind(&error, StoreErrorKind::Invalid);
            }
        }
        let refused = tx.commit().await.unwrap_err();
        assert_kind(&refused, StoreErrorKind::Invalid);
        session(&store).await;
        assert!(!exists(&store, jobs[0].id()).await, "{statement}");
    }
}

pub(crate) async fn what_cannot_be_set_back_closes_the_session(schema: Arc<Schema>) {
    let store = one(&schema).await;
    let mut before = session(&store).await;
    for left in ["USE tempdb", "SET DATEFIRST 3"] {
        for commits in [true, false] {
            let mut tx = store.begin().await.unwrap();
            tx.execute(left, &[]).await.unwrap();
            if commits {
                tx.commit().await.unwrap();
            } else {
                tx.rollback().await.unwrap();
            }
            assert_eq!(
                store.connections(),
                Some(0),
                "{left}: expected the connection to be closed"
            );
            let now = session(&store).await;
            assert_ne!(now, before, "{left}");
            before = now;
            enqueue(&store, job()).await;
        }
    }
}

/// The pool does not keep a session whose application locks outlive the transaction.
pub(crate) async fn what_a_procedure_leaves_ends_with_the_transaction(schema: Arc<Schema>) {
    let store = one(&schema).await;
    let lock = format!("own lock of {}", schema.name);
    let own = format!(
        "EXEC sp_getapplock @Resource = N'{lock}', @LockMode = 'Exclusive', @LockOwner = 'Session'"
    );
    for commits in [true, false] {
        let mut tx = store.begin().await.unwrap();
        tx.execute(&own, &[]).await.unwrap();
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(
            store.connections(),
            Some(0),
            "expected the connection to be closed"
        );
    }
}

/// Compares the settings of a session before and after a transaction in which the application
/// changed them.
pub(crate) async fn the_isolation_level_is_the_stores_own(schema: Arc<Schema>) {
    const LEVEL: &str =
        "(SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID)";
    const READ_COMMITTED: i32 = 2;
    let store = one(&schema).await;
    let mut tx = store.begin().await.unwrap();
    assert_eq!(number(&mut tx, LEVEL).await, READ_COMMITTED);
    let options = number(&mut tx, "@@OPTIONS").await;
    let patience = number(&mut tx, "@@LOCK_TIMEOUT").await;
    assert_eq!(patience, 60_000, "expected the deadline");
    let mut sets = vec!["SET LOCK_TIMEOUT 5", "SET ANSI_NULLS OFF", "SET NOCOUNT ON"];
    // Babelfish cannot change this setting within a transaction.
    if !schema.is_babelfish().await {
        sets.push("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
    }
    for set in sets {
        tx.execute(set, &[]).await.unwrap();
    }
    let before = number(&mut tx, "@@SPID").await;
    tx.commit().await.unwrap();
    let mut tx = store.begin().await.unwrap();
    assert_eq!(
        number(&mut tx, "@@SPID").await,
        before,
        "expected the same session"
    );
    assert_eq!(number(&mut tx, LEVEL).await, READ_COMMITTED);
    assert_eq!(number(&mut tx, "@@OPTIONS").await, options);
    assert_eq!(number(&mut tx, "@@LOCK_TIMEOUT").await, patience);
    tx.rollback().await.unwrap();
}

pub(crate) async fn worn_sessions_are_replaced(schema: Arc<Schema>) {
    let worn = schema.builder().max_connections(1);
    let worn = worn.max_lifetime(Duration::from_nanos(1));
    let store = worn.connect().await.unwrap();
    let first = session(&store).await;
    let second = session(&store).await;
    assert_ne!(first, second);
    // A connection in use stays open until it is returned.
    let mut tx = store.begin().await.unwrap();
    let jobs = [job()];
    store.enqueue_in(&mut tx, &jobs).await.unwrap();
    tx.commit().await.unwrap();
    assert!(exists(&store, jobs[0].id()).await);
    store.database_time().await.unwrap();
}

pub(crate) async fn a_session_that_is_killed_in_a_transaction_ends_it(schema: Arc<Schema>) {
    let store = one(&schema).await;
    let mut tx = store.begin().await.unwrap();
    let jobs = [job()];
    store.enqueue_in(&mut tx, &jobs).await.unwrap();
    let this = number(&mut tx, "@@SPID").await;
    schema.execute(&format!("KILL {this}")).await.unwrap();
    let lost = store.enqueue_in(&mut tx, &[job()]).await.unwrap_err();
    assert_kind(&lost, StoreErrorKind::Unavailable);
    assert_kind(&tx.commit().await.unwrap_err(), StoreErrorKind::Unavailable);
    assert_ne!(session(&store).await, this);
    assert!(!exists(&open(&schema).await, jobs[0].id()).await);
}
