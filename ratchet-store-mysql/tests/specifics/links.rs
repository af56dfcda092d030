//! Links, batches and signals, and the transactions that race on them. Each race is forced by a
//! locked row.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, job, request_all};
use ratchet_core::model::{Detail, Fenced, LinkState, Outcome, Settlement};
use ratchet_core::store::{Checked, JobStore, WorkflowStore};
use ratchet_core::{
    BatchCondition, BatchId, ClaimToken, Condition, JobId, JobState, NewJob, StoreErrorKind,
};
use ratchet_store_mysql::MysqlStore;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tokio::task::JoinHandle;

use crate::open;
use crate::server::{Database, literal};

async fn state(store: &Checked<MysqlStore>, id: JobId) -> JobState {
    let found = store.get(&[id], Detail::Whole).await.unwrap().remove(0);
    found.unwrap().state
}

/// Claims all due jobs.
async fn claim(store: &Checked<MysqlStore>) -> Vec<ClaimToken> {
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    claimed.iter().map(|job| job.claim.token).collect()
}

/// Settles a claim as succeeded, in a task.
fn succeed(store: &Checked<MysqlStore>, token: ClaimToken) -> JoinHandle<Vec<Fenced>> {
    let store = store.clone();
    tokio::spawn(async move {
        let end = Settlement::new(token, Outcome::Succeeded { result: None });
        store.settle(&[end]).await.unwrap()
    })
}

/// Returns a connection of the application that has run `sql` in a transaction, which stays open.
async fn held(database: &Database, sql: &str) -> MySqlConnection {
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let sql = sql.replace("{database}", &format!("`{}`", database.name));
    let sql = sqlx::AssertSqlSafe(format!("BEGIN; {sql}"));
    sqlx::raw_sql(sql).execute(&mut application).await.unwrap();
    application
}

async fn commit(mut application: MySqlConnection) {
    sqlx::raw_sql("COMMIT")
        .execute(&mut application)
        .await
        .unwrap();
}

fn after(parent: JobId) -> NewJob {
    job().after(parent, Condition::Succeeded)
}

pub(crate) async fn an_enqueue_waits_for_the_end_of_a_parent_and_sees_it(database: Arc<Database>) {
    let store = open(&database).await;
    let parent = enqueue(&store, job()).await;
    // Another transaction is about to end the parent.
    let end = "UPDATE {database}.ratchet_jobs SET state = 5, finished_at = 0";
    let application = held(&database, end).await;
    let (good, bad) = (after(parent), job().after(parent, Condition::Failed));
    let enqueueing = tokio::spawn({
        let (store, jobs) = (store.clone(), [good.clone(), bad.clone()]);
        async move { store.enqueue(&jobs).await }
    });
    database.until_calls_wait(1).await;
    commit(application).await;
    enqueueing.await.unwrap().unwrap();
    assert_eq!(state(&store, good.id()).await, JobState::Cancelled);
    assert_eq!(state(&store, bad.id()).await, JobState::Pending);
}

pub(crate) async fn the_second_of_two_parents_sees_what_the_first_decided(database: Arc<Database>) {
    let store = open(&database).await;
    let parents = [enqueue(&store, job()).await, enqueue(&store, job()).await];
    let child = enqueue(
        &store,
        after(parents[0]).after(parents[1], Condition::Ended),
    )
    .await;
    let tokens = claim(&store).await;
    // The test locks the child. So both settlements find the child, and then wait to lock it.
    let lock = format!(
        "SELECT 1 FROM {{database}}.ratchet_jobs WHERE id = {} FOR UPDATE",
        literal(child)
    );
    let application = held(&database, &lock).await;
    let ending = [succeed(&store, tokens[0]), succeed(&store, tokens[1])];
    database.until_calls_wait(2).await;
    commit(application).await;
    for end in ending {
        assert_eq!(end.await.unwrap(), [Fenced::Applied]);
    }
    assert_eq!(state(&store, child).await, JobState::Pending);
    let links = store.parents_of(&[child]).await.unwrap().remove(0);
    assert!(
        links.iter().all(|link| link.state == LinkState::Met),
        "{links:?}"
    );
}

pub(crate) async fn the_last_two_of_a_batch_are_counted_one_after_the_other(
    database: Arc<Database>,
) {
    let store = open(&database).await;
    let batch = BatchId::new();
    store.create_batch(batch).await.unwrap();
    for _ in 0..2 {
        enqueue(&store, job().in_batch(batch)).await;
    }
    let done = job().after_batch(batch, BatchCondition::Succeeded);
    let done = enqueue(&store, done).await;
    store.close_batch(batch).await.unwrap();
    let tokens = claim(&store).await;
    let application = held(
        &database,
        "SELECT 1 FROM {database}.ratchet_batches FOR UPDATE",
    )
    .await;
    let ending = [succeed(&store, tokens[0]), succeed(&store, tokens[1])];
    database.until_calls_wait(2).await;
    commit(application).await;
    for end in ending {
        assert_eq!(end.await.unwrap(), [Fenced::Applied]);
    }
    let stands = store.batches(&[batch]).await.unwrap().remove(0).unwrap();
    assert_eq!((stands.total, stands.succeeded), (2, 2));
    assert!(stands.ended_at.is_some());
    assert_eq!(state(&store, done).await, JobState::Pending);
}

pub(crate) async fn a_claim_taken_back_meanwhile_leaves_no_child_waiting(database: Arc<Database>) {
    use ratchet_core::JobAction;
    use ratchet_core::model::{JobSelector, ReclaimRequest};
    let store = open(&database).await;
    let parent = enqueue(&store, job()).await;
    claim(&store).await;
    let one = JobSelector::Ids(vec![parent]);
    store.act(&one, JobAction::Cancel).await.unwrap();
    database
        .execute("UPDATE {database}.ratchet_jobs SET claimed_at = 0")
        .await
        .unwrap();
    // The transaction links a child to the parent, and commits only after the reclaim has read the
    // parent. So the reclaim has not seen the child.
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let child = job().after(parent, Condition::Ended);
    let jobs = std::slice::from_ref(&child);
    store.enqueue_in(&mut tx, jobs).await.unwrap();
    let reclaiming = tokio::spawn({
        let store = store.clone();
        async move {
            // A reclaim waits only briefly for locked jobs, so the test repeats it.
            loop {
                let taken = store.reclaim(&ReclaimRequest::new()).await.unwrap();
                if !taken.is_empty() {
                    return taken.len();
                }
            }
        }
    });
    database.until_calls_wait(1).await;
    tx.commit().await.unwrap();
    let taken = reclaiming.await.unwrap();
    assert_eq!(taken, 1);
    assert_eq!(state(&store, parent).await, JobState::Cancelled);
    assert_eq!(state(&store, child.id()).await, JobState::Pending);
}

pub(crate) async fn an_end_that_is_held_for_long_is_a_timeout(database: Arc<Database>) {
    let short = database.builder().deadline(Duration::from_secs(4));
    let store = short.connect().await.unwrap();
    let (held, free) = (enqueue(&store, job()).await, enqueue(&store, job()).await);
    let tokens = claim(&store).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let one = [after(held)];
    store.enqueue_in(&mut tx, &one).await.unwrap();
    let end = |token| Settlement::new(token, Outcome::Succeeded { result: None });
    let ends: Vec<_> = tokens.into_iter().map(end).collect();
    let error = store.settle(&ends).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
    assert_eq!(state(&store, held).await, JobState::Running);
    assert_eq!(state(&store, free).await, JobState::Succeeded);
    tx.rollback().await.unwrap();
    let answers = store.settle(&ends).await.unwrap();
    assert_eq!(answers, [Fenced::Applied, Fenced::Applied]);
}
