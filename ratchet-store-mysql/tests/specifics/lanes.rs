//! Lanes and the transactions that lock them.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, job, request_all};
use ratchet_core::model::{Detail, Fenced, JobSelector, Outcome, Settlement};
use ratchet_core::store::{Checked, JobStore};
use ratchet_core::{JobAction, JobId, JobState, StoreErrorKind};
use ratchet_store_mysql::MysqlStore;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;

use crate::open;
use crate::server::Database;

async fn state(store: &Checked<MysqlStore>, id: JobId) -> JobState {
    let found = store.get(&[id], Detail::Whole).await.unwrap().remove(0);
    found.unwrap().state
}

async fn assert_no_lane(database: &Database) {
    for table in ["lanes", "lane_jobs"] {
        let count = format!("SELECT count(*) FROM {{database}}.ratchet_{table}");
        assert_eq!(database.number(&count).await.unwrap(), 0, "{table}");
    }
}

/// Claims all due jobs, and returns the settlements that end them.
async fn claim(store: &Checked<MysqlStore>) -> Vec<Settlement> {
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let end = |token| Settlement::new(token, Outcome::Succeeded { result: None });
    claimed.iter().map(|job| end(job.claim.token)).collect()
}

pub(crate) async fn a_lane_held_by_a_transaction_holds_up_no_other(database: Arc<Database>) {
    let store = open(&database).await;
    let mut heads = Vec::new();
    for lane in ["a", "b", "c"] {
        heads.push(enqueue(&store, job().lane(lane)).await);
    }
    let next = enqueue(&store, job().lane("b")).await;
    let ends = claim(&store).await;
    assert_eq!(ends.len(), 3);
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let behind = job().lane("a");
    let one = std::slice::from_ref(&behind);
    store.enqueue_in(&mut tx, one).await.unwrap();
    let settling = tokio::spawn({
        let store = store.clone();
        async move { store.settle(&ends).await }
    });
    for id in &heads[1..] {
        while state(&store, *id).await != JobState::Succeeded {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(state(&store, next).await, JobState::Pending);
    assert_eq!(state(&store, heads[0]).await, JobState::Running);
    tx.commit().await.unwrap();
    let settled = settling.await.unwrap().unwrap();
    assert_eq!(settled, [Fenced::Applied; 3]);
    // The settlement of the head saw the job that entered the lane while the settlement waited.
    assert_eq!(state(&store, behind.id()).await, JobState::Pending);
    let ends = claim(&store).await;
    assert_eq!(store.settle(&ends).await.unwrap(), [Fenced::Applied; 2]);
    assert_no_lane(&database).await;
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

pub(crate) async fn a_rollback_leaves_no_lane(database: Arc<Database>) {
    let store = open(&database).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let batch = [job().lane("l"), job().lane("l").unique_key("u"), job()];
    store.enqueue_in(&mut tx, &batch).await.unwrap();
    store.enqueue_in(&mut tx, &[job().lane("l")]).await.unwrap();
    tx.rollback().await.unwrap();
    assert_no_lane(&database).await;
    let mut tx = application.begin().await.unwrap();
    store.enqueue_in(&mut tx, &batch).await.unwrap();
    let last = job().lane("l");
    let one = std::slice::from_ref(&last);
    store.enqueue_in(&mut tx, one).await.unwrap();
    tx.commit().await.unwrap();
    let mut states = Vec::new();
    for job in batch.iter().chain([&last]) {
        states.push(state(&store, job.id()).await);
    }
    let (pending, blocked) = (JobState::Pending, JobState::Blocked);
    assert_eq!(states, [pending, blocked, pending, blocked]);
    let all = JobSelector::Ids(batch.iter().chain([&last]).map(|job| job.id()).collect());
    store.act(&all, JobAction::Cancel).await.unwrap();
    // The second call finds no job to cancel, and leaves no row of a lane either.
    store.act(&all, JobAction::Cancel).await.unwrap();
    assert_no_lane(&database).await;
}

pub(crate) async fn jobs_with_lanes_need_a_transaction(database: Arc<Database>) {
    let store = open(&database).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let jobs = [job().lane("l")];
    let refused = store.enqueue_in(&mut application, &jobs);
    assert_kind(&refused.await.unwrap_err(), StoreErrorKind::Misconfigured);
}
