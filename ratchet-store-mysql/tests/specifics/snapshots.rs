//! Transactions of the application with `REPEATABLE READ`, the default of the server. Their
//! snapshot may be older than what the store must see.

use std::sync::Arc;

use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{Detail, Enqueued, Outcome, Settlement};
use ratchet_core::store::{Checked, JobStore};
use ratchet_core::{ClaimToken, Condition, JobId, JobState, Json};
use ratchet_store_mysql::MysqlStore;
use sqlx::mysql::{MySql, MySqlConnection};
use sqlx::{Connection, Executor, Row, Transaction};

use crate::open;
use crate::server::Database;

/// Begins a transaction, and reads a table, so that its snapshot begins here.
async fn begin(application: &mut MySqlConnection) -> Transaction<'_, MySql> {
    let mut tx = application.begin().await.unwrap();
    let read = sqlx::raw_sql("SELECT COUNT(*) FROM ratchet_jobs");
    read.execute(&mut *tx).await.unwrap();
    tx
}

async fn claim(store: &Checked<MysqlStore>) -> ClaimToken {
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed.len(), 1);
    claimed[0].claim.token
}

/// Settles a claim as succeeded.
async fn succeed(store: &Checked<MysqlStore>, token: ClaimToken, result: Option<&str>) {
    let result = result.map(|json| Json::parse("result", json).unwrap());
    let end = Settlement::new(token, Outcome::Succeeded { result });
    store.settle(&[end]).await.unwrap();
}

async fn state(store: &Checked<MysqlStore>, id: JobId) -> JobState {
    let found = store.get(&[id], Detail::Whole).await.unwrap().remove(0);
    found.unwrap().state
}

pub(crate) async fn the_end_of_a_parent_is_seen(database: Arc<Database>) {
    let store = open(&database).await;
    for (result, expected) in [(Some("7"), JobState::Pending), (None, JobState::Cancelled)] {
        let parent = enqueue(&store, job()).await;
        let token = claim(&store).await;
        // An earlier child has marked the parent, so the next one does not change it.
        let earlier = job().after(parent, Condition::Failed);
        enqueue(&store, earlier).await;
        let mut application = MySqlConnection::connect(&database.url).await.unwrap();
        let mut tx = begin(&mut application).await;
        succeed(&store, token, result).await;
        let child = job().after(parent, Condition::result_is("", &7));
        let id = child.id();
        store.enqueue_in(&mut tx, &[child]).await.unwrap();
        // Meanwhile, a job that is newer than the parent can end, and store its result.
        enqueue(&store, job()).await;
        succeed(&store, claim(&store).await, Some("8")).await;
        tx.commit().await.unwrap();
        assert_eq!(state(&store, id).await, expected);
        if expected == JobState::Pending {
            succeed(&store, claim(&store).await, None).await;
        }
    }
}

pub(crate) async fn a_unique_key_that_was_released_is_free(database: Arc<Database>) {
    let store = open(&database).await;
    let holder = enqueue(&store, job().unique_key("held")).await;
    let token = claim(&store).await;
    enqueue(&store, job().unique_key("kept")).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = begin(&mut application).await;
    let jobs = [job().unique_key("held"), job().unique_key("kept")];
    let enqueued = store.enqueue_in(&mut tx, &jobs[..1]).await.unwrap();
    assert_eq!(enqueued, [Enqueued::Duplicate(holder)]);
    tx.rollback().await.unwrap();

    let mut tx = begin(&mut application).await;
    succeed(&store, token, None).await;
    let enqueued = store.enqueue_in(&mut tx, &jobs).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(enqueued[0], Enqueued::Created(jobs[0].id()));
    assert!(matches!(enqueued[1], Enqueued::Duplicate(_)));
    assert_eq!(state(&store, jobs[0].id()).await, JobState::Pending);
}

pub(crate) async fn a_taken_key_keeps_no_job_from_ending(database: Arc<Database>) {
    let store = open(&database).await;
    let holder = enqueue(&store, job().unique_key("held")).await;
    let token = claim(&store).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let read_committed = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    application.execute(read_committed).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let enqueued = store.enqueue_in(&mut tx, &[job().unique_key("held")]);
    assert_eq!(enqueued.await.unwrap(), [Enqueued::Duplicate(holder)]);
    succeed(&store, token, None).await;
    tx.rollback().await.unwrap();
}

pub(crate) async fn a_route_that_is_newer_works(database: Arc<Database>) {
    let store = open(&database).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let read = "SELECT COUNT(*) FROM ratchet_routes";
    let seen = async |tx: &mut MySqlConnection| {
        let row = sqlx::query(read).fetch_one(tx).await.unwrap();
        row.get::<i64, _>(0)
    };
    assert_eq!(seen(&mut tx).await, 0);
    let new = [job().queue("never seen"), job().queue("nor this").lane("l")];
    store.enqueue_in(&mut tx, &new).await.unwrap();
    assert_eq!(seen(&mut tx).await, 0);
    tx.commit().await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed.len(), 2);
}
