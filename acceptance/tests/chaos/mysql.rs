//! The disturbances of MySQL and MariaDB. Each case has a database of its own.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::time::sleep;

use crate::worker::Order;

/// Returns the URL of the case's database.
pub(crate) fn url(order: &Order) -> String {
    let (place, query) = order.url.split_once('?').unwrap_or((&order.url, ""));
    let (server, _) = place.rsplit_once('/').unwrap();
    format!("{server}/{}?{query}", order.schema)
}

/// Runs statements on a connection that no case disturbs.
async fn run(order: &Order, sql: String) -> u64 {
    let mut admin = MySqlConnection::connect(&order.url).await.unwrap();
    let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await;
    done.unwrap().rows_affected()
}

pub(crate) async fn create_database(order: &Order) {
    run(order, format!("CREATE DATABASE {}", order.schema)).await;
}

pub(crate) async fn create_clock(order: &Order, view: &str) {
    let offset = format!("{}.chaos_offset", order.schema);
    let sql = format!(
        "CREATE TABLE {offset} (ms BIGINT NOT NULL);
         INSERT INTO {offset} VALUES (0);
         CREATE VIEW {}.ratchet_{view} AS
         SELECT ms + TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 AS now_ms
         FROM {offset}",
        order.schema
    );
    run(order, sql).await;
}

pub(crate) async fn step_clock(order: &Order, by_ms: i64) {
    let database = &order.schema;
    let step = format!("UPDATE {database}.chaos_offset SET ms = ms + ({by_ms})");
    assert_eq!(run(order, step).await, 1);
}

/// Kills the sessions of the workers and the producer: one every 20 ms, and all of them at the end.
pub(crate) async fn kill_sessions(order: &Order) {
    let mut admin = MySqlConnection::connect(&order.url).await.unwrap();
    let mut killed = 0;
    for limit in [1; 40].into_iter().chain([1_000]) {
        let theirs = format!(
            "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = '{}'
             ORDER BY RAND() LIMIT {limit}",
            order.schema
        );
        let theirs = sqlx::raw_sql(AssertSqlSafe(theirs)).fetch_all(&mut admin);
        for session in theirs.await.unwrap() {
            let kill = format!("KILL CONNECTION {}", session.get::<i64, _>(0));
            // The kill fails if the session has already ended.
            let kill = sqlx::raw_sql(AssertSqlSafe(kill)).execute(&mut admin);
            killed += u32::from(kill.await.is_ok());
        }
        sleep(Duration::from_millis(20)).await;
    }
    println!("    {killed} sessions killed");
    assert!(killed > 0, "expected at least one session to kill");
}

pub(crate) async fn drop_database(order: &Order) {
    run(order, format!("DROP DATABASE {}", order.schema)).await;
}
