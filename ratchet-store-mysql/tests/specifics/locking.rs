//! What statements lock and read.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{enqueue, heartbeat, job, name, pause_of_queue, request_all};
use ratchet_core::model::{Outcome, PurgeRequest, ReclaimRequest, Settlement};
use ratchet_core::store::{Checked, JobStore, NodeStore, QueueStore};
use ratchet_core::{JobId, JobState};
use ratchet_store_mysql::MysqlStore;
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Row};

use crate::open;
use crate::server::{Database, literal};

/// Runs statements in another session.
async fn run(other: &mut MySqlConnection, database: &Database, sql: &str) {
    let sql = sql.replace("{database}", &format!("`{}`", database.name));
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(other)
        .await
        .unwrap();
}

/// Makes every update of a job wait for a lock of the server, which the returned session holds.
pub(crate) async fn stopped_updates(database: &Database) -> MySqlConnection {
    let stop = format!(
        "CREATE TRIGGER {{database}}.stop BEFORE UPDATE ON {{database}}.ratchet_jobs FOR EACH ROW
         SET @stopped = GET_LOCK('stop {0}', 60), @stopped = RELEASE_LOCK('stop {0}')",
        database.name
    );
    database.execute(&stop).await.unwrap();
    let mut holder = MySqlConnection::connect(&database.url).await.unwrap();
    let hold = format!("DO GET_LOCK('stop {}', 60)", database.name);
    run(&mut holder, database, &hold).await;
    holder
}

pub(crate) async fn let_go_on(mut holder: MySqlConnection, database: &Database) {
    let release = format!("DO RELEASE_LOCK('stop {}')", database.name);
    run(&mut holder, database, &release).await;
}

/// Returns once a session has stopped in an update, with the number of rows that it has locked.
pub(crate) async fn rows_locked(database: &Database) -> i64 {
    loop {
        if let [stopped] = &database.transactions("state = 'User lock'").await[..] {
            return stopped.rows_locked;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn a_claim_locks_only_the_rows_it_returns(database: Arc<Database>) {
    let store = open(&database).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(enqueue(&store, job()).await);
    }
    let holder = stopped_updates(&database).await;
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.claim_next_batch(&request_all().limit(5)).await }
    });
    // The row of the gate counts too.
    assert_eq!(rows_locked(&database).await, 5 + 1);
    // There are no gap locks: other calls can store jobs between, before and after these jobs.
    let near = [JobId::from(uuid::Uuid::nil()), ids[2], JobId::new()];
    for id in near {
        let id = uuid::Uuid::from_u128(id.as_uuid().as_u128() + 1);
        let insert = format!(
            "INSERT INTO {{database}}.ratchet_jobs (id, run_at, created_at, route, state, priority)
             VALUES (x'{}', 0, 0, 1, 0, 2)",
            id.simple()
        );
        database.execute(&insert).await.unwrap();
    }
    enqueue(&store, job()).await;
    // The other jobs are not locked.
    let others: Vec<String> = ids[5..].iter().map(|id| literal(*id)).collect();
    let free = format!(
        "SELECT COUNT(*) FROM (SELECT id FROM {{database}}.ratchet_jobs WHERE id IN ({})
         FOR UPDATE SKIP LOCKED) AS free",
        others.join(",")
    );
    assert_eq!(database.number(&free).await.unwrap(), 15);
    let_go_on(holder, &database).await;
    let claimed = claiming.await.unwrap().unwrap();
    let claimed: Vec<JobId> = claimed.iter().map(|job| job.claim.token.job).collect();
    assert_eq!(claimed, ids[..5]);
}

pub(crate) async fn a_pause_waits_for_the_claims_in_progress(database: Arc<Database>) {
    let store = open(&database).await;
    enqueue(&store, job().queue("q")).await;
    let holder = stopped_updates(&database).await;
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.claim_next_batch(&request_all()).await }
    });
    rows_locked(&database).await;
    let pausing = tokio::spawn({
        let store = store.clone();
        async move { store.pause(&pause_of_queue("q")).await }
    });
    database.until_a_call_waits().await;
    assert!(!pausing.is_finished());
    let_go_on(holder, &database).await;
    assert_eq!(claiming.await.unwrap().unwrap().len(), 1);
    pausing.await.unwrap().unwrap();
    enqueue(&store, job().queue("q")).await;
    assert!(
        store
            .claim_next_batch(&request_all())
            .await
            .unwrap()
            .is_empty()
    );
}

pub(crate) async fn a_claim_skips_what_others_have_locked_or_changed(database: Arc<Database>) {
    let store = open(&database).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(enqueue(&store, job()).await);
    }
    let mut other = MySqlConnection::connect(&database.url).await.unwrap();
    let lock = format!(
        "START TRANSACTION; SELECT 1 FROM {{database}}.ratchet_jobs WHERE id = {} FOR UPDATE",
        literal(ids[0])
    );
    run(&mut other, &database, &lock).await;
    let claimed = store
        .claim_next_batch(&request_all().limit(1))
        .await
        .unwrap();
    assert_eq!(claimed[0].claim.token.job, ids[1]);
    run(&mut other, &database, "ROLLBACK").await;
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let claimed: Vec<JobId> = claimed.iter().map(|job| job.claim.token.job).collect();
    assert_eq!(claimed, [ids[0], ids[2]]);
}

/// A store on a pool of one connection, on which the test reads how many rows the store has read.
pub(crate) async fn counted(database: &Database) -> (Checked<MysqlStore>, MySqlPool) {
    let pool = MySqlPoolOptions::new()
        .max_connections(1)
        .connect(&database.url)
        .await
        .unwrap();
    let store = MysqlStore::pool_builder(pool.clone())
        .connect()
        .await
        .unwrap();
    (store, pool)
}

/// Returns how many rows and entries of indexes the connection of the pool has read.
pub(crate) async fn rows_read(pool: &MySqlPool) -> i64 {
    let status = sqlx::raw_sql("SHOW SESSION STATUS LIKE 'Handler_read%'");
    let rows = status.fetch_all(pool).await.unwrap();
    let number = |row: &sqlx::mysql::MySqlRow| row.get::<String, _>(1).parse::<i64>().unwrap();
    rows.iter().map(number).sum()
}

/// Stores `jobs` jobs in this state, without statistics of the tables.
async fn fill(database: &Database, jobs: usize, state: u8) {
    let fill = format!(
        "INSERT INTO {{database}}.ratchet_jobs
             (id, run_at, created_at, route, state, priority, finished_at)
         SELECT UNHEX(MD5(n.seq + {state} * 1000000)), n.seq, n.seq, 1, {state}, n.seq % 5,
                CASE WHEN {state} >= 4 THEN 1789999999000 END
         FROM (WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < {jobs})
               SELECT seq FROM n) AS n;
         INSERT IGNORE INTO {{database}}.ratchet_job_data (id, payload)
         SELECT id, '1' FROM {{database}}.ratchet_jobs"
    );
    let deep = "SET SESSION max_recursive_iterations = 1000000";
    if database.execute(deep).await.is_err() {
        let deep = "SET SESSION cte_max_recursion_depth = 1000000";
        database.execute(deep).await.unwrap();
    }
    database.execute(&fill).await.unwrap();
}

/// The statement skips routes and priorities without due jobs. This test has due jobs and later
/// ones of the same route and priority.
pub(crate) async fn the_depth_of_a_queue_leaves_out_later_jobs(database: Arc<Database>) {
    let store = open(&database).await;
    enqueue(&store, job().queue("q")).await;
    for _ in 0..3 {
        enqueue(&store, job().queue("q").delay(Duration::from_secs(600))).await;
    }
    assert_eq!(store.count_due(&name("q"), 9).await.unwrap(), 1);
}

pub(crate) async fn a_claim_of_a_long_queue_reads_only_candidates(database: Arc<Database>) {
    let (store, pool) = counted(&database).await;
    enqueue(&store, job()).await;
    fill(&database, 30_000, 0).await;
    let before = rows_read(&pool).await;
    let claimed = store.claim_next_batch(&request_all().limit(50)).await;
    assert_eq!(claimed.unwrap().len(), 50);
    let read = rows_read(&pool).await - before;
    assert!(read < 6_000, "a claim of 50 jobs read {read} rows");
}

pub(crate) async fn no_statement_of_a_loop_reads_all_jobs(database: Arc<Database>) {
    let (store, pool) = counted(&database).await;
    enqueue(&store, job()).await;
    fill(&database, 20_000, 0).await;
    fill(&database, 20_000, 4).await;
    let beat = heartbeat();
    let mut before = rows_read(&pool).await;
    let mut check = async |what: &str| {
        let now = rows_read(&pool).await;
        assert!(now - before < 3_000, "{what} read {} rows", now - before);
        before = now;
    };
    let request = request_all().limit(10);
    let claimed = store.claim_next_batch(&request).await.unwrap();
    check("a claim").await;
    let ends: Vec<Settlement> = claimed
        .iter()
        .map(|job| Settlement::new(job.claim.token, Outcome::Succeeded { result: None }))
        .collect();
    store.settle(&ends).await.unwrap();
    check("settlements").await;
    store.heartbeat(&beat).await.unwrap();
    check("a heartbeat").await;
    store.reclaim(&ReclaimRequest::new()).await.unwrap();
    check("a reclaim").await;
    let day = Duration::from_secs(86_400);
    let old = PurgeRequest::new(JobState::Succeeded, day * 365_000, 100);
    store.purge(&old).await.unwrap();
    check("a purge of nothing").await;
    let old = PurgeRequest::new(JobState::Succeeded, Duration::ZERO, 10);
    store.purge(&old).await.unwrap();
    check("a purge").await;
    store.due_routes(Duration::from_secs(60)).await.unwrap();
    check("a look at what is due").await;
    enqueue(&store, job().unique_key("u").idempotency_key("i").lane("l")).await;
    check("an enqueue").await;
}
