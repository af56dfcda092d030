//! Connections that are few, in use, dropped or lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratchet_conformance::kit::{
    assert_kind, enqueue, exists, heartbeat, job, name, pause_of_queue, request_all, work_at_once,
};
use ratchet_core::StoreErrorKind;
use ratchet_core::model::{Detail, Fenced};
use ratchet_core::store::{Acquired, JobStore, LockStore, NodeStore, QueueStore, Store};
use ratchet_core::time::from_millis;
use ratchet_store_postgres::PostgresStore;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::open;
use crate::server::{self, Schema};

pub(crate) async fn a_pool_of_one_makes_progress(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(1).connect().await.unwrap();
    work_at_once(&store, 8, 5).await;
}

pub(crate) async fn a_pool_taken_by_others_leaves_heartbeats_and_locks(schema: Arc<Schema>) {
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_millis(300))
        .connect(&schema.url)
        .await
        .unwrap();
    let builder = PostgresStore::pool_builder(pool.clone()).schema(&schema.name);
    let store = builder.connect().await.unwrap();
    let taken = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    let refused = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Timeout);
    store.heartbeat(&heartbeat()).await.unwrap();
    store.database_time().await.unwrap();
    let (lock, owner) = (name("l"), name("o"));
    let lock = store.acquire(&lock, &owner, Duration::from_secs(9)).await;
    assert!(matches!(lock.unwrap(), Acquired::Acquired { .. }));
    // The new queue needs a new route. The enqueue can add it while a transaction of the
    // application is open.
    drop(taken.0);
    let mut tx = taken.1;
    let mut tx = tx.begin().await.unwrap();
    let new = [job().queue("never seen")];
    store.enqueue_in(&mut tx, &new).await.unwrap();
    tx.commit().await.unwrap();
    assert!(exists(&store, new[0].id()).await);
}

pub(crate) async fn locks_precede_heartbeats_and_do_not_wait_for_one_that_hangs(
    schema: Arc<Schema>,
) {
    let store = open(&schema).await;
    let (lock, owner) = (name("l"), name("o"));
    let acquired = store.acquire(&lock, &owner, Duration::from_secs(600)).await;
    let Acquired::Acquired { fence } = acquired.unwrap() else {
        panic!("expected the lock to be free");
    };
    let beat = heartbeat();
    store.heartbeat(&beat).await.unwrap();
    // Another program locks the row of the node, so the heartbeats wait on their connection.
    let mut application = PgConnection::connect(&schema.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    let hold = format!("SELECT FROM \"{}\".nodes FOR UPDATE", schema.name);
    tx.execute(AssertSqlSafe(hold)).await.unwrap();
    let beat = || {
        let (store, beat) = (store.clone(), beat.clone());
        tokio::spawn(async move { store.heartbeat(&beat).await.unwrap().database_time })
    };
    let beats: Vec<_> = (0..20).map(|_| beat()).collect();
    let hangs = "SELECT 1 FROM pg_stat_activity
                 WHERE wait_event_type = 'Lock' AND query LIKE '%{schema}.nodes%'";
    while schema.rows(hangs).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ttl = Duration::from_secs(600);
    let renew = || store.renew(&lock, &owner, fence, ttl);
    assert_eq!(renew().await.unwrap(), Fenced::Applied);
    // Once the row is unlocked, at most two heartbeats run before the next renewal.
    let (renewed, released) = tokio::join!(renew(), tx.rollback());
    assert_eq!(renewed.unwrap(), Fenced::Applied);
    released.unwrap();
    let expiry = format!("SELECT expires_at FROM \"{}\".locks", schema.name);
    let expiry: i64 = sqlx::query_scalar(AssertSqlSafe(expiry))
        .fetch_one(&mut application)
        .await
        .unwrap();
    let renewed_at = from_millis(expiry) - ttl;
    let mut earlier = 0;
    for beat in beats {
        earlier += usize::from(beat.await.unwrap() < renewed_at);
    }
    assert!(
        earlier <= 2,
        "expected at most 2 heartbeats before the renewal, found {earlier}"
    );
}

pub(crate) async fn dropped_calls_leave_the_store_usable(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(2).connect().await.unwrap();
    for micros in (0..4_000).step_by(40) {
        let patience = Duration::from_micros(micros);
        let batch = [job(), job().unique_key("u"), job().queue("q")];
        let _ = tokio::time::timeout(patience, store.enqueue(&batch)).await;
        let _ = tokio::time::timeout(patience, store.claim_next_batch(&request_all())).await;
        let _ = tokio::time::timeout(patience, store.pause(&pause_of_queue("q"))).await;
        let _ = tokio::time::timeout(patience, store.heartbeat(&heartbeat())).await;
    }
    store.resume(&pause_of_queue("q").scope).await.unwrap();
    let id = enqueue(&store, job().queue("last")).await;
    assert!(exists(&store, id).await);
    store.heartbeat(&heartbeat()).await.unwrap();
    let open = "SELECT 1 FROM pg_locks JOIN pg_class ON pg_class.oid = relation
                JOIN pg_stat_activity USING (pid)
                WHERE relnamespace = '{schema}'::regnamespace AND state LIKE 'idle in%'";
    while !schema.rows(open).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn terminated_backends_are_replaced(schema: Arc<Schema>) {
    let store = schema.builder().application_name(&schema.name);
    let store = store.connect().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (store, stop) = (store.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut acknowledged, mut failed) = (Vec::new(), 0);
                while !stop.load(Ordering::Relaxed) {
                    match store.enqueue(&[job()]).await {
                        Ok(enqueued) => acknowledged.push(enqueued[0].id()),
                        Err(error) => {
                            assert_kind(&error, StoreErrorKind::Unavailable);
                            failed += 1;
                        }
                    }
                }
                (acknowledged, failed)
            })
        })
        .collect();
    let terminate = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'",
        schema.name
    );
    let mut terminated = 0;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        terminated += schema.rows(&terminate).await.unwrap().len();
        store.heartbeat(&heartbeat()).await.unwrap();
    }
    assert!(terminated >= 10);
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        let (acknowledged, _) = worker.await.unwrap();
        assert!(!acknowledged.is_empty());
        for ids in acknowledged.chunks(1_000) {
            let stored = store.get(ids, Detail::Whole).await.unwrap();
            assert!(
                stored.iter().all(Option::is_some),
                "expected every acknowledged job to be \
                 stored"
            );
        }
    }
}

pub(crate) async fn a_locked_table_is_a_timeout(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let impatient = schema.builder().deadline(Duration::from_millis(300));
    let impatient = impatient.application_name(&schema.name);
    let store = impatient.max_connections(1).connect().await.unwrap();
    enqueue(&store, job()).await;
    let lock = "BEGIN; LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE";
    schema.execute(lock).await.unwrap();
    for _ in 0..3 {
        let error = store.enqueue(&[job()]).await.unwrap_err();
        assert_kind(&error, StoreErrorKind::Timeout);
    }
    if server::pooler().is_some() {
        // The pooler does not pass `statement_timeout` on.
        schema.execute("COMMIT").await.unwrap();
        enqueue(&store, job()).await;
        return;
    }
    // The server ends the abandoned statements too.
    let waiting = format!(
        "SELECT 1 FROM pg_stat_activity WHERE application_name = '{}' AND state = 'active'",
        schema.name
    );
    // Uses a separate connection. In the transaction that holds the lock, `pg_stat_activity` would
    // never change after the first read.
    let mut watching = PgConnection::connect(&schema.url).await.unwrap();
    let ended = async {
        while !watching
            .fetch_all(sqlx::raw_sql(AssertSqlSafe(waiting.as_str())))
            .await
            .unwrap()
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
    ended.expect("the server should end the abandoned statements");
    schema.execute("COMMIT").await.unwrap();
    enqueue(&store, job()).await;
}

pub(crate) async fn wakeups_survive_a_lost_connection(schema: Arc<Schema>) {
    let named = format!("{}l", &schema.name[..40]);
    let store = schema.builder().application_name(&named).connect().await;
    let store = store.unwrap();
    let coordinator = store.coordinator().unwrap();
    let mut wakeups = coordinator.subscribe();
    let listeners = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = '{named}' AND query LIKE 'LISTEN%'"
    );
    while schema.rows(&listeners).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let woken = tokio::time::timeout(Duration::from_secs(5), wakeups.next()).await;
    let woken = woken.expect("a wakeup for all queues should arrive once the connection is back");
    assert_eq!((woken.queue, woken.source), (None, None));
}

pub(crate) async fn unknown_roles_and_databases_are_misconfigured(schema: Arc<Schema>) {
    let (scheme, rest) = schema.url.split_once("://").unwrap();
    let (authority, _) = rest.split_once('/').unwrap();
    let host = authority.rsplit('@').next().unwrap();
    for url in [
        format!("{scheme}://nobody_here:secret@{host}/postgres"),
        format!("{scheme}://{authority}/nowhere_here"),
    ] {
        let error = PostgresStore::connect(&url).await.unwrap_err();
        assert_kind(&error, StoreErrorKind::Misconfigured);
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.to_string().contains("_here"), "{error}");
    }
    let store = open(&schema).await;
    assert!(!format!("{store:?}").contains("postgres://"));
    let closed = store.clone();
    store.close().await;
    let error = closed.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    let error = closed.heartbeat(&heartbeat()).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    // The server itself accepts connections.
    PgConnection::connect(&schema.url).await.unwrap();
}
