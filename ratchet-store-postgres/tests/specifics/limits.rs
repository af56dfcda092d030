//! Limits of fair keys while other transactions change jobs of the same keys.

use std::sync::Arc;

use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{FairScope, JobSelector, Outcome, Settlement};
use ratchet_core::store::{Changed, Checked, JobStore, Store};
use ratchet_core::{ClaimToken, JobAction, JobId, NewJob};
use ratchet_store_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::open;
use crate::server::Schema;

fn of(key: &str) -> NewJob {
    job().fair_key(key)
}

async fn limit(store: &Checked<PostgresStore>, max: u32) -> Changed {
    let fair = store.fair().unwrap();
    let scope = FairScope::queues("default").unwrap();
    fair.set_fair_limit(&scope, Some(max)).await.unwrap()
}

/// Claims jobs, and returns their tokens.
async fn claim(store: &Checked<PostgresStore>) -> Vec<ClaimToken> {
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    claimed.iter().map(|job| job.claim.token).collect()
}

async fn succeed(store: &Checked<PostgresStore>, token: ClaimToken) {
    let done = Settlement::new(token, Outcome::Succeeded { result: None });
    store.settle(&[done]).await.unwrap();
}

/// Runs statements in a transaction that the caller ends.
async fn run(schema: &Schema, on: &mut PgConnection, sql: &str) {
    let sql = sql.replace("{schema}", &format!("\"{}\"", schema.name));
    on.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
}

/// Does what a claim does with a job.
fn take(job: JobId, flags: i16) -> String {
    format!(
        "UPDATE {{schema}}.jobs SET state = 3, claim_seq = 1, flags = flags | {flags}
         WHERE id = '{job}'"
    )
}

pub(crate) async fn a_claim_counts_the_claims_before_it(schema: Arc<Schema>) {
    let store = open(&schema).await;
    limit(&store, 1).await;
    let first = enqueue(&store, of("k")).await;
    enqueue(&store, of("k")).await;
    // Another claim has taken the first job.
    let mut other = PgConnection::connect(&schema.url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    let lock = "SELECT FROM {schema}.routes FOR NO KEY UPDATE";
    run(&schema, &mut tx, lock).await;
    run(&schema, &mut tx, &take(first, 512)).await;
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { claim(&store).await }
    });
    schema.until_a_call_waits().await;
    tx.commit().await.unwrap();
    assert_eq!(claiming.await.unwrap(), []);
}

pub(crate) async fn a_new_limit_counts_the_claims_in_progress(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let first = enqueue(&store, of("k")).await;
    enqueue(&store, of("k")).await;
    // A claim that saw no limit has taken the first job.
    let mut other = PgConnection::connect(&schema.url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    let gate = "SELECT FROM {schema}.pauses WHERE name = '' FOR KEY SHARE";
    run(&schema, &mut tx, gate).await;
    run(&schema, &mut tx, &take(first, 0)).await;
    let setting = tokio::spawn({
        let store = store.clone();
        async move { limit(&store, 1).await }
    });
    schema.until_a_call_waits().await;
    tx.commit().await.unwrap();
    assert_eq!(setting.await.unwrap(), Changed::Changed);
    assert_eq!(claim(&store).await, []);
}

pub(crate) async fn an_end_that_a_claim_does_not_see_frees_a_place_later(schema: Arc<Schema>) {
    let store = open(&schema).await;
    limit(&store, 1).await;
    let first = enqueue(&store, of("k")).await;
    let second = enqueue(&store, of("k")).await;
    assert_eq!(claim(&store).await.len(), 1);
    let mut other = PgConnection::connect(&schema.url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    let end = format!(
        "UPDATE {{schema}}.jobs SET state = 4, turn = NULL, settled_seq = 1, finished_at = 1
         WHERE id = '{first}';
         INSERT INTO {{schema}}.freed (route, fair_key)
         SELECT route, fair_key FROM {{schema}}.jobs WHERE id = '{first}'"
    );
    run(&schema, &mut tx, &end).await;
    // This claim parks the second job, and a further one finds no entry.
    assert_eq!(claim(&store).await, []);
    assert_eq!(claim(&store).await, []);
    tx.commit().await.unwrap();
    let next = claim(&store).await;
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].job, second);
}

pub(crate) async fn a_waiting_job_that_is_locked_is_not_overlooked(schema: Arc<Schema>) {
    let store = open(&schema).await;
    limit(&store, 1).await;
    enqueue(&store, of("k")).await;
    let second = enqueue(&store, of("k")).await;
    let running = claim(&store).await;
    assert_eq!(claim(&store).await, []);
    let mut other = PgConnection::connect(&schema.url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    let lock = format!("SELECT FROM {{schema}}.jobs WHERE id = '{second}' FOR NO KEY UPDATE");
    run(&schema, &mut tx, &lock).await;
    succeed(&store, running[0]).await;
    assert_eq!(claim(&store).await, []);
    tx.commit().await.unwrap();
    let next = claim(&store).await;
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].job, second);
}

pub(crate) async fn a_new_limit_waits_for_jobs_that_are_being_parked(schema: Arc<Schema>) {
    let store = open(&schema).await;
    limit(&store, 1).await;
    enqueue(&store, of("k")).await;
    let second = enqueue(&store, of("k")).await;
    assert_eq!(claim(&store).await.len(), 1);
    assert_eq!(claim(&store).await, []);
    let third = enqueue(&store, of("k")).await;
    let mut other = PgConnection::connect(&schema.url).await.unwrap();
    let turn =
        |turn: &str| format!("UPDATE {{schema}}.jobs SET turn = {turn} WHERE id = '{third}'");
    run(&schema, &mut other, &turn("NULL")).await;
    // Another call parks the third job behind the second one, which is cancelled meanwhile.
    let mut tx = other.begin().await.unwrap();
    let lock = "SELECT FROM {schema}.routes FOR NO KEY UPDATE";
    run(&schema, &mut tx, lock).await;
    run(&schema, &mut tx, &turn("4611686018427387905")).await;
    let second = JobSelector::Ids(vec![second]);
    store.act(&second, JobAction::Cancel).await.unwrap();
    let setting = tokio::spawn({
        let store = store.clone();
        async move { limit(&store, 2).await }
    });
    schema.until_a_call_waits().await;
    tx.commit().await.unwrap();
    assert_eq!(setting.await.unwrap(), Changed::Changed);
    let next = claim(&store).await;
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].job, third);
}
