//! Lanes and the transactions that lock them.

use std::sync::Arc;

use ratchet_conformance::kit::{enqueue, job};
use ratchet_core::model::Detail;
use ratchet_core::store::{Checked, JobStore};
use ratchet_core::{JobId, JobState};
use ratchet_store_mysql::MysqlStore;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;

use crate::open;
use crate::server::Database;

async fn state(store: &Checked<MysqlStore>, id: JobId) -> JobState {
    let found = store.get(&[id], Detail::Whole).await.unwrap().remove(0);
    found.unwrap().state
}

pub(crate) async fn an_enqueue_sees_the_end_it_waited_for(database: Arc<Database>) {
    let store = open(&database).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let head = enqueue(&store, job().lane("l")).await;
    let mut tx = application.begin().await.unwrap();
    // Another transaction is about to end the last job of the lane and delete the lane.
    let end = "UPDATE {database}.ratchet_jobs SET state = 6, finished_at = 0;
               DELETE FROM {database}.ratchet_lane_jobs; DELETE FROM {database}.ratchet_lanes";
    let end = end.replace("{database}", &format!("`{}`", database.name));
    let end = sqlx::AssertSqlSafe(end);
    sqlx::raw_sql(end).execute(&mut *tx).await.unwrap();
    let next = job().lane("l");
    let enqueueing = tokio::spawn({
        let (store, next) = (store.clone(), next.clone());
        async move { store.enqueue(&[next]).await }
    });
    database.until_a_call_waits().await;
    tx.commit().await.unwrap();
    enqueueing.await.unwrap().unwrap();
    assert_eq!(state(&store, head).await, JobState::Cancelled);
    assert_eq!(state(&store, next.id()).await, JobState::Pending);
}
