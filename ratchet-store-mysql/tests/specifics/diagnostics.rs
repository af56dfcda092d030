//! The findings in a database with problems.

use std::sync::Arc;

use ratchet_core::model::Finding;
use ratchet_core::store::{Checked, DiagnosticStore};
use ratchet_store_mysql::MysqlStore;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;

use crate::open;
use crate::server::Database;

async fn found(store: &Checked<MysqlStore>, code: &str) -> Vec<Finding> {
    let mut findings = store.findings().await.unwrap();
    findings.retain(|finding| finding.code == code);
    findings
}

pub(crate) async fn indexes_that_are_missing_are_found(database: Arc<Database>) {
    let store = open(&database).await;
    assert_eq!(found(&store, "missing_object").await, []);
    let drop = "DROP INDEX jobs_claim ON {database}.ratchet_jobs";
    database.execute(drop).await.unwrap();
    let missing = [Finding::missing("jobs_claim")];
    assert_eq!(found(&store, "missing_object").await, missing);
    assert_eq!(found(&store, "table_engine").await, []);
    let engine = "ALTER TABLE {database}.ratchet_rates ENGINE = MyISAM";
    database.execute(engine).await.unwrap();
    let findings = found(&store, "table_engine").await;
    assert_eq!(findings.len(), 1);
    let mut fixing = MySqlConnection::connect(&database.url).await.unwrap();
    let remedy = sqlx::AssertSqlSafe(findings[0].remedy.clone().unwrap());
    sqlx::raw_sql(remedy).execute(&mut fixing).await.unwrap();
    assert_eq!(found(&store, "table_engine").await, []);
}

pub(crate) async fn settings_that_risk_jobs_are_found(database: Arc<Database>) {
    let store = open(&database).await;
    let flush = "SELECT CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS SIGNED)";
    let flush = database.number(flush).await.unwrap();
    assert_eq!(found(&store, "durability").await.is_empty(), flush == 1);
    let logs = "SELECT CAST(@@GLOBAL.log_bin AND @@GLOBAL.sync_binlog <> 1 AS SIGNED)";
    let risky = database.number(logs).await.unwrap() == 1;
    assert_eq!(!found(&store, "binlog_durability").await.is_empty(), risky);
}

pub(crate) async fn a_session_that_holds_old_rows_is_seen(database: Arc<Database>) {
    let store = open(&database).await;
    let mut holder = MySqlConnection::connect(&database.url).await.unwrap();
    let hold = "START TRANSACTION; SELECT COUNT(*) FROM ratchet_jobs";
    sqlx::raw_sql(hold).fetch_all(&mut holder).await.unwrap();
    let file = ratchet_sql::statement(include_str!("../../src/sql/schema.sql"), "held_by_sessions");
    let lines = file.lines().filter(|line| !line.starts_with("--"));
    let sql = lines.collect::<Vec<_>>().join("\n");
    let own = format!(
        "SELECT COUNT(*) FROM ({}) AS held JOIN information_schema.processlist AS session
         ON session.id = held.id WHERE session.db = '{}' AND held.age >= 0",
        sql.replacen("AS CHAR),", "AS CHAR) AS id,", 1)
            .replace("session.command),", "session.command) AS words,")
            .replace("* 1000\n", "* 1000 AS age\n"),
        database.name
    );
    let until = async |count: i64| {
        while database.number(&own).await.unwrap() != count {
            // The server refreshes this table only after it was not read for 100 ms.
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        }
    };
    until(1).await;
    // The transaction is too short to be a finding.
    assert_eq!(found(&store, "held_snapshot").await, []);
    assert_eq!(found(&store, "not_seen").await, []);
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut holder)
        .await
        .unwrap();
    until(0).await;
}
