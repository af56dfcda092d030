//! The findings in a database with problems.

use std::sync::Arc;

use ratchet_core::model::{Finding, Severity};
use ratchet_core::store::{Checked, DiagnosticStore};
use ratchet_store_postgres::PostgresStore;
use sqlx::{Connection, PgConnection, Row};

use crate::open;
use crate::server::Schema;

async fn found(store: &Checked<PostgresStore>, code: &str) -> Vec<Finding> {
    let mut findings = store.findings().await.unwrap();
    findings.retain(|finding| finding.code == code);
    findings
}

pub(crate) async fn indexes_that_are_missing_or_not_valid_are_found(schema: Arc<Schema>) {
    let store = open(&schema).await;
    assert_eq!(found(&store, "missing_object").await, []);
    schema
        .execute("DROP INDEX {schema}.jobs_claim")
        .await
        .unwrap();
    let missing = [Finding::missing("jobs_claim")];
    assert_eq!(found(&store, "missing_object").await, missing);
    assert_eq!(found(&store, "invalid_index").await, []);
    let break_one = "UPDATE pg_index SET indisvalid = false
                     WHERE indexrelid = '{schema}.links_open'::regclass";
    schema.execute(break_one).await.unwrap();
    let invalid = found(&store, "invalid_index").await;
    assert_eq!(invalid.len(), 1);
    assert_eq!(invalid[0].severity, Severity::Error);
    let remedy = invalid[0].remedy.clone().unwrap();
    schema.execute(&remedy).await.unwrap();
    assert_eq!(found(&store, "invalid_index").await, []);
}

pub(crate) async fn a_table_without_autovacuum_is_found(schema: Arc<Schema>) {
    let store = open(&schema).await;
    assert_eq!(found(&store, "autovacuum_off").await, []);
    let off = "ALTER TABLE {schema}.jobs SET (autovacuum_enabled = off)";
    schema.execute(off).await.unwrap();
    let findings = found(&store, "autovacuum_off").await;
    assert_eq!(findings.len(), 1);
    assert!(findings[0].summary.ends_with("jobs"), "{findings:?}");
    let remedy = findings[0].remedy.clone().unwrap();
    schema.execute(&remedy).await.unwrap();
    assert_eq!(found(&store, "autovacuum_off").await, []);
}

pub(crate) async fn a_session_that_holds_a_snapshot_is_seen(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut holder = PgConnection::connect(&schema.url).await.unwrap();
    let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    sqlx::raw_sql(hold).execute(&mut holder).await.unwrap();
    let pid = sqlx::query("SELECT pg_backend_pid()::text");
    let pid: String = pid.fetch_one(&mut holder).await.unwrap().get(0);
    let file = ratchet_sql::statement(include_str!("../../src/sql/schema.sql"), "held_by_sessions");
    let lines = file.lines().filter(|line| !line.starts_with("--"));
    let sql = lines.collect::<Vec<_>>().join("\n").replace("$1", "'x'");
    let seen = async || {
        let rows = schema.rows(&sql).await.unwrap();
        let row = rows.iter().find(|row| row.get::<String, _>(0) == pid)?;
        Some((row.get::<Option<i64>, _>(2)?, row.get::<Option<i32>, _>(3)?))
    };
    let (age, transactions) = seen().await.unwrap();
    assert!(age >= 0 && transactions >= 0, "{age} ms, {transactions}");
    // The transaction is too short to be a finding.
    assert_eq!(found(&store, "held_snapshot").await, []);
    assert_eq!(found(&store, "not_seen").await, []);
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut holder)
        .await
        .unwrap();
    assert_eq!(seen().await, None);
}
