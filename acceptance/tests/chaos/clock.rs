//! A database clock that a case can step: a view that adds an offset to the server's clock.

use ratchet::{JobState, NodeStatus};
use sqlx::AssertSqlSafe;

use crate::field::{Field, admin, all_jobs};
use crate::worker::{Backend, Order};
use crate::{mongodb, mysql, sqlserver};

/// The name of the view, which is in the schema or the database of the case.
pub(crate) const VIEW: &str = "chaos_clock";

/// Creates the view, and the schema that contains it.
pub(crate) async fn create(order: &Order) {
    let schema = &order.schema;
    match order.backend {
        Backend::Postgres => {
            let sql = format!(
                "CREATE SCHEMA {schema};
                 CREATE TABLE {schema}.chaos_offset (ms bigint NOT NULL);
                 INSERT INTO {schema}.chaos_offset VALUES (0);
                 CREATE VIEW {schema}.{VIEW} AS
                 SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + ms AS now_ms
                 FROM {schema}.chaos_offset"
            );
            let mut admin = admin(&order.url).await;
            let made = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin);
            made.await.unwrap();
        }
        Backend::MySql => mysql::create_clock(order, VIEW).await,
        Backend::MongoDb => mongodb::create_clock(order, VIEW).await,
        Backend::SqlServer => sqlserver::create_clock(order, VIEW).await,
    }
}

/// Moves the database clock of the case by `by_ms` milliseconds, or back if the number is negative.
pub(crate) async fn step(order: &Order, by_ms: i64) {
    let schema = &order.schema;
    match order.backend {
        Backend::Postgres => {
            let sql = format!("UPDATE {schema}.chaos_offset SET ms = ms + {by_ms}");
            let mut admin = admin(&order.url).await;
            let moved = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin);
            assert_eq!(moved.await.unwrap().rows_affected(), 1);
        }
        Backend::MySql => mysql::step_clock(order, by_ms).await,
        Backend::MongoDb => mongodb::step_clock(order, by_ms).await,
        Backend::SqlServer => sqlserver::step_clock(order, by_ms).await,
    }
    println!("    the clock of the database stepped by {by_ms} ms");
}

/// Checks that no node counts as dead and no job as crashed, because no node died during the case.
pub(crate) async fn check_no_node_was_buried(field: &Field) {
    for node in field.client.nodes().await.unwrap() {
        assert_ne!(node.status, NodeStatus::Dead, "{node:?}");
    }
    let jobs = all_jobs(&field.client).await;
    for job in jobs.values() {
        assert_eq!(
            (job.state, job.crash_count),
            (JobState::Succeeded, 0),
            "{job:?}"
        );
    }
    println!("    no node was counted as dead, and no crash was counted");
}
