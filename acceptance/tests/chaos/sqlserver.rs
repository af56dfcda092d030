//! The disturbances of SQL Server.

use std::time::Duration;

use ratchet::sqlserver::{DriverConnection, SqlServerStore};
use tokio::time::sleep;

use crate::clock::VIEW;
use crate::worker::Order;

async fn admin(order: &Order) -> DriverConnection {
    let builder = SqlServerStore::builder(&order.url).application_name("chaos");
    builder.connect_driver().await.unwrap()
}

/// Returns the first column of a statement's result.
async fn numbers(admin: &mut DriverConnection, sql: String) -> Vec<i16> {
    let rows = admin.simple_query(sql).await.unwrap();
    let rows = rows.into_first_result().await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

pub(crate) async fn create_clock(order: &Order, view: &str) {
    let mut admin = admin(order).await;
    let schema = &order.schema;
    // Each statement is a separate batch, as `CREATE VIEW` requires.
    for sql in [
        format!("CREATE SCHEMA [{schema}]"),
        format!("CREATE TABLE [{schema}].chaos_offset (ms bigint NOT NULL)"),
        format!("INSERT INTO [{schema}].chaos_offset VALUES (0)"),
        format!(
            "CREATE VIEW [{schema}].{view} AS SELECT ms + DATEDIFF_BIG(millisecond, \
             CONVERT(datetime2, '19700101'), SYSUTCDATETIME()) AS now_ms \
             FROM [{schema}].chaos_offset"
        ),
    ] {
        admin.simple_query(sql).await.unwrap();
    }
}

pub(crate) async fn step_clock(order: &Order, by_ms: i64) {
    let step = format!(
        "UPDATE [{}].chaos_offset SET ms = ms + ({by_ms})",
        order.schema
    );
    admin(order).await.simple_query(step).await.unwrap();
}

/// Kills the sessions of the workers and the producer: one every 20 ms, and all of them at the end.
pub(crate) async fn kill_sessions(order: &Order) {
    let mut admin = admin(order).await;
    let mut killed = 0;
    for limit in [1; 40].into_iter().chain([1_000]) {
        let theirs = format!(
            "SELECT TOP ({limit}) CONVERT(smallint, spid) FROM sys.sysprocesses \
             WHERE program_name = '{}' ORDER BY NEWID()",
            order.schema
        );
        for session in numbers(&mut admin, theirs).await {
            // The kill fails if the session has already ended.
            if admin.simple_query(format!("KILL {session}")).await.is_ok() {
                killed += 1;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    println!("    {killed} sessions killed");
    assert!(killed > 0, "expected at least one session to kill");
}

pub(crate) async fn drop_schema(order: &Order) {
    let mut admin = admin(order).await;
    if order.steps_clock {
        let drop = format!("DROP VIEW [{}].{VIEW}", order.schema);
        admin.simple_query(drop).await.unwrap();
    }
    let tables = format!(
        "SELECT CONVERT(nvarchar(128), t.name) FROM sys.tables AS t \
         JOIN sys.schemas AS s ON s.schema_id = t.schema_id WHERE s.name = '{}'",
        order.schema
    );
    let rows = admin.simple_query(tables).await.unwrap();
    for table in rows.into_first_result().await.unwrap() {
        let table: &str = table.get(0).unwrap();
        let drop = format!("DROP TABLE [{}].[{table}]", order.schema);
        admin.simple_query(drop).await.unwrap();
    }
    let drop = format!("DROP SCHEMA [{}]", order.schema);
    admin.simple_query(drop).await.unwrap();
}
