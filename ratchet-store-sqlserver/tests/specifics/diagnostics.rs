//! The findings in a database with problems.
//!
//! On Babelfish only some of them can be tested: indexes have other names there and are not
//! checked, READ_COMMITTED_SNAPSHOT cannot be turned off, and no view shows which sessions keep row
//! versions.

use std::sync::Arc;

use ratchet_core::model::{Finding, Severity};
use ratchet_core::store::{Checked, DiagnosticStore, Store};
use ratchet_store_sqlserver::SqlServerStore;

use crate::open;
use crate::rights::Login;
use crate::server::{self, Schema};

async fn found(store: &Checked<SqlServerStore>, code: &str) -> Vec<Finding> {
    let mut findings = store.findings().await.unwrap();
    findings.retain(|finding| finding.code == code);
    findings
}

pub(crate) async fn tables_and_indexes_that_are_missing_are_found(schema: Arc<Schema>) {
    let store = open(&schema).await;
    assert_eq!(found(&store, "missing_object").await, []);
    schema.execute("DROP TABLE {schema}.rates").await.unwrap();
    let mut missing = vec![Finding::missing("rates")];
    if !schema.is_babelfish().await {
        let drop = "DROP INDEX jobs_claim ON {schema}.jobs";
        schema.execute(drop).await.unwrap();
        missing.insert(0, Finding::missing("jobs_claim"));
    }
    assert_eq!(found(&store, "missing_object").await, missing);
}

pub(crate) async fn a_schema_of_another_version_is_found(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let known = SqlServerStore::migrations(&schema.name).len() as u64;
    let version = async || found(&store, "schema_version").await;
    assert_eq!(version().await, [Finding::schema(known, known)]);
    let newer = format!(
        "INSERT INTO {{schema}}.migrations (version, name, checksum, applied_at)
         SELECT version + 1, N'newer', checksum, applied_at
         FROM {{schema}}.migrations WHERE version = {known}"
    );
    schema.execute(&newer).await.unwrap();
    assert_eq!(version().await, [Finding::schema(known + 1, known)]);
    let older = format!("DELETE FROM {{schema}}.migrations WHERE version >= {known}");
    schema.execute(&older).await.unwrap();
    assert_eq!(version().await, [Finding::schema(known - 1, known)]);
    assert_eq!(version().await[0].severity, Severity::Error);
}

/// On SQL Server, READ_COMMITTED_SNAPSHOT is off in a new database. Babelfish always reports it as
/// on.
pub(crate) async fn readers_that_wait_for_writers_are_found(schema: Arc<Schema>) {
    let database = format!("ratchet_{}", &schema.name[20..]);
    let create = format!("CREATE DATABASE [{database}]");
    schema.execute(&create).await.unwrap();
    let mut url = url::Url::parse(&schema.url).unwrap();
    url.set_path(&format!("/{database}"));
    let builder = SqlServerStore::builder(url.as_str()).locking_reads(true);
    let store = builder.connect().await.unwrap();
    let reads = found(&store, "locking_reads").await;
    if schema.is_babelfish().await {
        assert_eq!(reads, []);
    } else {
        assert_eq!(reads.len(), 1);
        assert_eq!(reads[0].detail.as_deref(), Some(&*database));
        let remedy = reads[0].remedy.clone().unwrap();
        schema.execute(&remedy).await.unwrap();
        assert_eq!(found(&store, "locking_reads").await, []);
    }
    store.close().await;
    schema.drop_database(&database).await;
}

/// Babelfish lacks the view that shows such sessions. The store reports a missing view as a
/// finding, not as an error.
pub(crate) async fn a_session_that_keeps_versions_is_seen(schema: Arc<Schema>) {
    let store = open(&schema).await;
    if schema.is_babelfish().await {
        let unseen = found(&store, "not_seen").await;
        assert_eq!(unseen.len(), 1, "{unseen:?}");
        let (what, why) = (&unseen[0].summary, unseen[0].detail.as_deref());
        assert!(
            what.contains("transactions of other sessions"),
            "{unseen:?}"
        );
        assert!(
            why.is_some_and(|why| why.contains("dm_tran_active_snapshot")),
            "{unseen:?}"
        );
        return;
    }
    let mut holder = server::connect(&schema.url).await.unwrap();
    let hold = schema.sql(
        "BEGIN TRANSACTION; UPDATE {schema}.test_clock SET now_ms = now_ms;
         SELECT CAST(@@SPID AS nvarchar(20))",
    );
    let held = holder.simple_query(hold).await.unwrap();
    let results = held.into_results().await.unwrap();
    let session: &str = results.iter().flatten().find_map(|row| row.get(0)).unwrap();
    let file = ratchet_sql::statement(include_str!("../../src/sql/schema.sql"), "held_by_sessions");
    let seen = async || {
        let rows = schema.rows(file).await.unwrap();
        let row = rows
            .iter()
            .find(|row| row.get::<&str, _>(0) == Some(session))?;
        Some((row.get::<&str, _>(1)?.to_owned(), row.get::<i64, _>(2)?))
    };
    let (words, seconds) = seen().await.unwrap();
    assert!(!words.is_empty() && seconds >= 0, "{words}, {seconds} s");
    // The transaction is too short to be a finding.
    assert_eq!(found(&store, "held_snapshot").await, []);
    assert_eq!(found(&store, "not_seen").await, []);
    let end = holder.simple_query("ROLLBACK TRANSACTION").await.unwrap();
    end.into_results().await.unwrap();
    assert_eq!(seen().await, None);
}

/// A user who may only read sees the tables, but not other sessions.
pub(crate) async fn who_may_not_look_gets_the_other_findings(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let login = Login::create(&schema).await;
    let read = format!("GRANT SELECT ON SCHEMA::{{schema}} TO [{}]", login.name);
    schema.execute(&read).await.unwrap();
    let store = login.builder().connect().await.unwrap();
    schema.execute("DROP TABLE {schema}.rates").await.unwrap();
    let missing = [Finding::missing("rates")];
    assert_eq!(found(&store, "missing_object").await, missing);
    let unseen = found(&store, "not_seen").await;
    assert_eq!(unseen.len(), 1, "{unseen:?}");
    let what = "could not check the transactions of other sessions";
    assert_eq!(unseen[0].summary, what);
    store.close().await;
    login.drop().await;
}
