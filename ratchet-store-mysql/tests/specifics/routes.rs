//! Servers that, after a failover or a restore, lack routes that a process has cached, or use their
//! ids for other routes.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{enqueue, request_all};
use ratchet_core::NewJob;
use ratchet_core::NodeId;
use ratchet_core::model::{Claim, PutRecurring, Recurring, RecurringClaimRequest};
use ratchet_core::store::{Checked, JobStore, RecurringStore};
use ratchet_store_mysql::MysqlStore;
use sqlx::Connection;
use sqlx::mysql::{MySqlConnection, MySqlPoolOptions};

use crate::open;
use crate::server::Database;

fn of(kind: &str) -> NewJob {
    NewJob::new(kind, &1)
}

/// Makes a store cache the routes `first` and `mine`. Then makes the database lose `mine`, and if
/// `taken`, another process get its id for the route `other`.
async fn lose(database: &Database, store: &Checked<MysqlStore>, taken: bool) {
    for kind in ["first", "mine"] {
        enqueue(store, of(kind)).await;
    }
    clear(
        database,
        "DELETE FROM {database}.ratchet_routes WHERE id > 1",
    )
    .await;
    if taken {
        enqueue(&open(database).await, of("other")).await;
        clear(database, "DO 0").await;
    }
}

/// Deletes all jobs and definitions, and runs another statement.
async fn clear(database: &Database, and: &str) {
    for table in [
        "jobs",
        "job_data",
        "lanes",
        "lane_jobs",
        "unique_keys",
        "recurring",
    ] {
        let delete = format!("DELETE FROM {{database}}.ratchet_{table}");
        database.execute(&delete).await.unwrap();
    }
    database.execute(and).await.unwrap();
}

async fn claimed(store: &Checked<MysqlStore>) -> Vec<Claim> {
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    claimed.into_iter().map(|job| job.claim).collect()
}

async fn store_in_transaction(store: &Checked<MysqlStore>, database: &Database, job: NewJob) {
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    store.enqueue_in(&mut tx, &[job]).await.unwrap();
    tx.commit().await.unwrap();
}

async fn fire(store: &Checked<MysqlStore>, database: &Database) {
    let hourly = Recurring::every(Duration::from_secs(3_600));
    let definition = hourly.job(of("mine")).named("hourly").check().unwrap();
    store.put(&PutRecurring::new(definition)).await.unwrap();
    let due = "UPDATE {database}.ratchet_recurring SET next_fire = 1";
    database.execute(due).await.unwrap();
    let request = RecurringClaimRequest::new(NodeId::new(), 1);
    let due = store.claim_due_recurring(&request).await.unwrap();
    let firing = due.definitions[0].plan(due.now).unwrap();
    store.fire(&[firing]).await.unwrap();
}

pub(crate) async fn jobs_go_to_their_own_route_whatever_the_server_forgot(database: Arc<Database>) {
    let own = open(&database).await;
    let pool = MySqlPoolOptions::new().max_connections(2);
    let pool = pool.connect(&database.url).await.unwrap();
    let given = MysqlStore::pool_builder(pool).connect().await.unwrap();
    let looking = open(&database).await;
    for taken in [false, true] {
        for store in [&own, &given] {
            for way in 0..8 {
                lose(&database, store, taken).await;
                let mine = of("mine");
                match way {
                    0 => drop(store.enqueue(&[mine]).await.unwrap()),
                    1 => drop(store.enqueue(&[of("first"), mine]).await.unwrap()),
                    2 => drop(enqueue(store, mine.unique_key("key")).await),
                    3 => drop(enqueue(store, mine.lane("lane")).await),
                    4 => drop(enqueue(store, mine.tag("tag")).await),
                    5 => store_in_transaction(store, &database, mine).await,
                    6 => store_in_transaction(store, &database, mine.unique_key("key")).await,
                    _ => fire(store, &database).await,
                }
                let claims = claimed(&looking).await;
                let kinds = claims.iter().map(|one| one.route.kind.as_str());
                let mut kinds: Vec<&str> = kinds.collect();
                kinds.retain(|kind| *kind != "first");
                assert_eq!(kinds, ["mine"], "taken: {taken}, way {way}");
            }
        }
    }
}

pub(crate) async fn a_warm_node_claims_what_the_routes_are_now(database: Arc<Database>) {
    let other = open(&database).await;
    for taken in [false, true] {
        let store = open(&database).await;
        lose(&database, &store, taken).await;
        enqueue(&other, of("other")).await;
        let claims = claimed(&store).await;
        assert_eq!(claims.len(), 1, "taken: {taken}");
        assert_eq!(claims[0].route.kind.as_str(), "other", "taken: {taken}");
    }
}
