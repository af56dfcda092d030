//! Turns of jobs with a fair key: calls that give them at the same time, what keeps them, and what
//! they read.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{ClaimRequest, JobSelector, Outcome, RunAt, Settlement};
use ratchet_core::store::{Checked, JobStore};
use ratchet_core::{JobAction, JobId, NewJob, NodeId, OnConflict, Priority};
use ratchet_store_mysql::MysqlStore;
use sqlx::Connection;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Row};

use crate::locking::{counted, let_go_on, rows_locked, rows_read, stopped_updates};
use crate::open;
use crate::server::{Database, literal};

fn of(key: &str) -> NewJob {
    job().fair_key(key)
}

async fn claimed(store: &Checked<MysqlStore>) -> Vec<JobId> {
    let jobs = store.claim_next_batch(&request_all()).await.unwrap();
    jobs.iter().map(|job| job.claim.token.job).collect()
}

/// Returns fair key and turn of each job that has a turn. Checks that exactly these turns are in
/// the table that finds the last turn of a key.
async fn turns(database: &Database) -> Vec<(String, i64)> {
    let of = async |sql: &str| {
        let row = |row: &MySqlRow| (row.get(0), row.get(1));
        let mut turns: Vec<(String, i64)> = {
            let rows = database.rows(sql).await.unwrap();
            rows.iter().map(row).collect()
        };
        turns.sort();
        turns
    };
    let jobs = "SELECT CONCAT_WS(' ', fair_key, route, priority, HEX(id)), turn
                FROM {database}.ratchet_jobs WHERE turn IS NOT NULL";
    let kept = "SELECT CONCAT_WS(' ', fair_key, route, priority, HEX(job)), turn
                FROM {database}.ratchet_turns";
    assert_eq!(of(jobs).await, of(kept).await);
    of("SELECT fair_key, turn FROM {database}.ratchet_jobs WHERE turn IS NOT NULL").await
}

pub(crate) async fn calls_at_once_give_no_key_the_same_turn(database: Arc<Database>) {
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(&database).await);
    }
    // Enqueues give turns to their jobs, and claims to the jobs that were released.
    let enqueues = stores.iter().map(|store| async {
        for key in ["a", "b", "a", "a", "b"] {
            enqueue(store, of(key)).await;
            store.enqueue(&[of("a"), of("b")]).await.unwrap();
        }
    });
    let claims = stores.iter().map(|store| async {
        for _ in 0..8 {
            let request = ClaimRequest::new(NodeId::new(), 2);
            let jobs = store.claim_next_batch(&request).await.unwrap();
            let released = jobs
                .iter()
                .map(|job| Settlement::new(job.claim.token, Outcome::Released));
            let released: Vec<Settlement> = released.collect();
            store.settle(&released).await.unwrap();
        }
    });
    tokio::join!(join_all(enqueues), join_all(claims));
    // Gives the remaining jobs turns.
    let request = ClaimRequest::new(NodeId::new(), 1);
    let last = stores[0].claim_next_batch(&request).await.unwrap();
    assert_eq!(last.len(), 1);
    let turns = turns(&database).await;
    assert_eq!(turns.len(), 4 * 5 * 3 - 1);
    let distinct: HashSet<&(String, i64)> = turns.iter().collect();
    assert_eq!(distinct.len(), turns.len(), "{turns:?}");
}

/// The transaction has the row of the route in `routes` locked until it ends.
pub(crate) async fn a_transaction_of_the_application_locks_no_turns(database: Arc<Database>) {
    let store = open(&database).await;
    let first = enqueue(&store, of("a")).await;
    let mut application = MySqlConnection::connect(&database.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let inside = of("a");
    let these = std::slice::from_ref(&inside);
    store.enqueue_in(&mut tx, these).await.unwrap();
    let beside = enqueue(&store, of("b")).await;
    assert_eq!(claimed(&store).await, [first, beside]);
    tx.commit().await.unwrap();
    assert_eq!(turns(&database).await, [], "the job sleeps");
    assert_eq!(claimed(&store).await, [inside.id()]);
}

pub(crate) async fn a_claim_waits_for_no_turns(database: Arc<Database>) {
    let store = open(&database).await;
    let first = enqueue(&store, of("a")).await;
    let later = enqueue(&store, of("b")).await;
    store
        .act(
            &JobSelector::Ids(vec![later]),
            JobAction::Reschedule(RunAt::Now),
        )
        .await
        .unwrap();
    let mut other = MySqlConnection::connect(&database.url).await.unwrap();
    let lock = format!(
        "START TRANSACTION; SELECT 1 FROM `{}`.ratchet_fair_routes FOR UPDATE",
        database.name
    );
    let lock = sqlx::raw_sql(AssertSqlSafe(lock));
    lock.execute(&mut other).await.unwrap();
    assert_eq!(claimed(&store).await, [first], "the other job sleeps");
    let unlock = sqlx::raw_sql("ROLLBACK");
    unlock.execute(&mut other).await.unwrap();
    assert_eq!(claimed(&store).await, [later]);
}

pub(crate) async fn a_claim_locks_only_routes_in_which_jobs_sleep(database: Arc<Database>) {
    let store = open(&database).await;
    enqueue(&store, of("a").queue("q")).await;
    let asleep = enqueue(&store, of("a")).await;
    let reschedule = JobAction::Reschedule(RunAt::Now);
    let these = JobSelector::Ids(vec![asleep]);
    store.act(&these, reschedule).await.unwrap();
    let holder = stopped_updates(&database).await;
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { claimed(&store).await }
    });
    // The claim gives the job its turn now.
    rows_locked(&database).await;
    let free = "SELECT COUNT(*) FROM (SELECT route FROM {database}.ratchet_fair_routes
                FOR UPDATE SKIP LOCKED) AS free";
    assert_eq!(database.number(free).await.unwrap(), 1);
    let_go_on(holder, &database).await;
    assert_eq!(claiming.await.unwrap().len(), 2);
}

/// Another transaction holds a job that sleeps.
pub(crate) async fn a_locked_sleeper_stops_no_claim(database: Arc<Database>) {
    let store = open(&database).await;
    let asleep = enqueue(&store, of("a")).await;
    store
        .act(
            &JobSelector::Ids(vec![asleep]),
            JobAction::Reschedule(RunAt::Now),
        )
        .await
        .unwrap();
    let mut other = MySqlConnection::connect(&database.url).await.unwrap();
    let lock = format!(
        "START TRANSACTION; SELECT 1 FROM `{}`.ratchet_jobs WHERE id = {} FOR UPDATE",
        database.name,
        literal(asleep)
    );
    let lock = sqlx::raw_sql(AssertSqlSafe(lock));
    lock.execute(&mut other).await.unwrap();
    let others = [enqueue(&store, job()).await, enqueue(&store, of("a")).await];
    assert_eq!(claimed(&store).await, others);
    let unlock = sqlx::raw_sql("ROLLBACK");
    unlock.execute(&mut other).await.unwrap();
    assert_eq!(claimed(&store).await, [asleep]);
}

/// A turn that outlived its job would count as the last one of its key.
pub(crate) async fn a_turn_is_kept_as_long_as_its_job_has_it(database: Arc<Database>) {
    let store = open(&database).await;
    let request = ClaimRequest::new(NodeId::new(), 1);
    let act = async |job, action| {
        store
            .act(&JobSelector::Ids(vec![job]), action)
            .await
            .unwrap();
    };
    let mut ids = Vec::new();
    for key in ["a", "a", "b", "a", "b", "c"] {
        ids.push(enqueue(&store, of(key)).await);
    }
    enqueue(&store, of("c").unique_key("u")).await;
    assert_eq!(turns(&database).await.len(), 7);
    store.claim_next_batch(&request).await.unwrap();
    assert_eq!(turns(&database).await.len(), 6);
    act(ids[1], JobAction::Pause).await;
    assert_eq!(turns(&database).await.len(), 5);
    act(ids[2], JobAction::Cancel).await;
    assert_eq!(turns(&database).await.len(), 4);
    act(ids[3], JobAction::SetPriority(Priority::High)).await;
    assert_eq!(turns(&database).await.len(), 3);
    act(ids[4], JobAction::Reschedule(RunAt::Now)).await;
    assert_eq!(turns(&database).await.len(), 2);
    let replacing = job().unique_key("u").on_conflict(OnConflict::Replace);
    store.enqueue(&[replacing]).await.unwrap();
    assert_eq!(turns(&database).await.len(), 2);
    let later = job().unique_key("u");
    let later = later.debounce(Duration::from_millis(1), Duration::from_secs(60));
    store.enqueue(&[later]).await.unwrap();
    assert_eq!(turns(&database).await.len(), 1);
    let waiting = "SELECT COUNT(*) FROM {database}.ratchet_jobs
                   WHERE run_at > UNIX_TIMESTAMP(NOW(3)) * 1000";
    while database.number(waiting).await.unwrap() > 0 {}
    // The claim gives turns to the due jobs that lost theirs.
    store.claim_next_batch(&request).await.unwrap();
    assert_eq!(turns(&database).await.len(), 3);
    assert_eq!(claimed(&store).await.len(), 3);
    assert_eq!(turns(&database).await, []);
}

pub(crate) async fn calls_read_few_of_many_turns(database: Arc<Database>) {
    let (store, pool) = counted(&database).await;
    enqueue(&store, of("key 1")).await;
    let in_an_hour = of("key 1").delay(Duration::from_secs(3_600));
    enqueue(&store, in_an_hour).await;
    // Of 30,000 jobs, half have turns, and half are not due yet.
    let fill = "
        INSERT INTO {database}.ratchet_jobs
            (id, run_at, created_at, route, state, priority, fair_key, fair_cost, turn)
        SELECT UNHEX(MD5(n.seq)),
               CASE WHEN n.seq % 2 = 0 THEN n.seq ELSE n.seq + 8000000000000 END, n.seq, 1, 0, 2,
               CONCAT('key ', n.seq % 100), 1000,
               CASE WHEN n.seq % 2 = 0 THEN 1000000000 * n.seq END
        FROM (WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 30000)
              SELECT seq FROM n) AS n;
        INSERT INTO {database}.ratchet_turns (route, priority, fair_key, turn, job, fair_cost)
        SELECT route, priority, fair_key, turn, id, fair_cost FROM {database}.ratchet_jobs
        WHERE turn IS NOT NULL
        ON DUPLICATE KEY UPDATE fair_cost = VALUES(fair_cost);
        INSERT IGNORE INTO {database}.ratchet_job_data (id, payload)
        SELECT id, '1' FROM {database}.ratchet_jobs";
    let deep = "SET SESSION max_recursive_iterations = 1000000";
    if database.execute(deep).await.is_err() {
        let deep = "SET SESSION cte_max_recursion_depth = 1000000";
        database.execute(deep).await.unwrap();
    }
    database.execute(fill).await.unwrap();
    let mut before = rows_read(&pool).await;
    let mut check = async |what: &str, limit: i64| {
        let now = rows_read(&pool).await;
        let read = now - before;
        before = now;
        assert!(read < limit, "{what} read {read} rows");
    };
    enqueue(&store, of("key 7")).await;
    check("an enqueue", 100).await;
    let request = request_all().limit(50);
    assert_eq!(store.claim_next_batch(&request).await.unwrap().len(), 50);
    check("a claim", 3_000).await;
    // A job that sleeps, of the first route.
    let wake = "UPDATE {database}.ratchet_jobs SET turn = NULL WHERE turn = 20000000000000";
    let forget = "DELETE FROM {database}.ratchet_turns WHERE turn = 20000000000000";
    database.execute(wake).await.unwrap();
    database.execute(forget).await.unwrap();
    assert_eq!(store.claim_next_batch(&request).await.unwrap().len(), 50);
    check("a claim that gives turns", 3_000).await;
}
