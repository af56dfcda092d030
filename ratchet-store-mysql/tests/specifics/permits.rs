//! Permits: what other transactions do while a claim waits for the lock of a resource.

use std::sync::Arc;

use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::store::{IfKnown, JobStore, PermitStore};
use ratchet_core::{Name, Selection};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::open;
use crate::server::{Database, literal};

/// Runs a statement in another session.
async fn run(other: &mut MySqlConnection, database: &Database, sql: &str) {
    let sql = sql.replace("{database}", &format!("`{}`", database.name));
    other
        .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
        .await
        .unwrap();
}

pub(crate) async fn a_claim_counts_what_was_claimed_while_it_waited(database: Arc<Database>) {
    let store = open(&database).await;
    let api = Name::new("permit", "api").unwrap();
    store.set_permits(&api, 1, IfKnown::Change).await.unwrap();
    let first = enqueue(&store, job().permit("api")).await;
    enqueue(&store, job().permit("api")).await;
    let plain = enqueue(&store, job()).await;
    // Another session is about to claim the first job.
    let mut other = MySqlConnection::connect(&database.url).await.unwrap();
    run(&mut other, &database, "BEGIN").await;
    let lock = "SELECT 1 FROM {database}.ratchet_permits WHERE resource = 'api' FOR UPDATE";
    run(&mut other, &database, lock).await;
    let claiming = tokio::spawn(async move { store.claim_next_batch(&request_all()).await });
    database.until_a_call_waits().await;
    let claim = format!(
        "UPDATE {{database}}.ratchet_jobs SET state = 3, claim_seq = 1 WHERE id = {}; COMMIT",
        literal(first)
    );
    run(&mut other, &database, &claim).await;
    let claimed = claiming.await.unwrap().unwrap();
    let ids: Vec<_> = claimed.iter().map(|job| job.claim.token.job).collect();
    assert_eq!(ids, [plain]);
}

pub(crate) async fn claims_that_need_no_permit_wait_for_none(database: Arc<Database>) {
    let store = open(&database).await;
    let api = Name::new("permit", "api").unwrap();
    let none = Name::new("permit", "none").unwrap();
    store.set_permits(&api, 1, IfKnown::Change).await.unwrap();
    store.set_permits(&none, 0, IfKnown::Change).await.unwrap();
    enqueue(&store, job().permit("api").queue("q")).await;
    enqueue(&store, job().permit("none")).await;
    let plain = enqueue(&store, job()).await;
    let mut other = MySqlConnection::connect(&database.url).await.unwrap();
    run(&mut other, &database, "BEGIN").await;
    let lock = "SELECT 1 FROM {database}.ratchet_permits FOR UPDATE";
    run(&mut other, &database, lock).await;
    // The claim needs no permit of `api` or `none`: it excludes the queue `q`, and `none` has a
    // limit of 0. So it does not wait for the locked rows.
    let mine = request_all().queues(Selection::Except(vec![Name::new("queue", "q").unwrap()]));
    let claimed = store.claim_next_batch(&mine).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].claim.token.job, plain);
    run(&mut other, &database, "ROLLBACK").await;
    assert_eq!(
        store.claim_next_batch(&request_all()).await.unwrap().len(),
        1
    );
}
