//! Connections that are few, in use, dropped or lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratchet_conformance::kit::{
    assert_kind, enqueue, exists, heartbeat, job, name, pause_of_queue, request_all, work_at_once,
};
use ratchet_core::model::Detail;
use ratchet_core::store::{Acquired, JobStore, LockStore, NodeStore, QueueStore, Store};
use ratchet_core::{NewJob, StoreErrorKind};
use ratchet_store_mysql::MysqlStore;
use sqlx::mysql::{MySqlConnection, MySqlPoolOptions};
use sqlx::{Connection, Row};

use crate::open;
use crate::server::Database;

pub(crate) async fn a_pool_of_one_makes_progress(database: Arc<Database>) {
    let store = database.builder().max_connections(1);
    let store = store.connect().await.unwrap();
    work_at_once(&store, 8, 5).await;
}

pub(crate) async fn a_pool_taken_by_others_leaves_heartbeats_and_locks(database: Arc<Database>) {
    let pool = MySqlPoolOptions::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_millis(300))
        .connect(&database.url)
        .await
        .unwrap();
    let store = MysqlStore::pool_builder(pool.clone())
        .connect()
        .await
        .unwrap();
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

pub(crate) async fn dropped_calls_leave_the_store_usable(database: Arc<Database>) {
    let store = database.builder().max_connections(2);
    let store = store.connect().await.unwrap();
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
    while !database.transactions("TRUE").await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn killed_connections_are_replaced(database: Arc<Database>) {
    let store = open(&database).await;
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (store, stop) = (store.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match store.enqueue(&[job()]).await {
                        Ok(enqueued) => acknowledged.push(enqueued[0].id()),
                        Err(error) => assert_kind(&error, StoreErrorKind::Unavailable),
                    }
                }
                acknowledged
            })
        })
        .collect();
    let sessions = format!(
        "SELECT CAST(id AS CHAR) FROM information_schema.processlist WHERE db = '{}'",
        database.name
    );
    let mut killed = 0;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        for row in database.rows(&sessions).await.unwrap() {
            let id: String = row.get(0);
            // The session may have ended since.
            killed += usize::from(database.execute(&format!("KILL {id}")).await.is_ok());
        }
        store.heartbeat(&heartbeat()).await.unwrap();
    }
    assert!(killed >= 10);
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        let acknowledged = worker.await.unwrap();
        assert!(!acknowledged.is_empty());
        for ids in acknowledged.chunks(1_000) {
            let stored = store.get(ids, Detail::Whole).await.unwrap();
            assert!(stored.iter().all(Option::is_some), "a job is lost");
        }
    }
}

pub(crate) async fn quiet_connections_are_replaced(database: Arc<Database>) {
    // The test advances the clock, which only a runtime with one thread allows.
    let on_a_settable_clock = move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(replace_quiet_connections(&database));
    };
    tokio::task::spawn_blocking(on_a_settable_clock)
        .await
        .unwrap();
}

async fn replace_quiet_connections(database: &Database) {
    let store = open(database).await;
    let call = async || {
        enqueue(&store, job()).await;
        store.heartbeat(&heartbeat()).await.unwrap();
    };
    call().await;
    let sessions = format!(
        "SELECT CAST(GROUP_CONCAT(id) AS CHAR) FROM information_schema.processlist
         WHERE db = '{}'",
        database.name
    );
    let old: String = database.rows(&sessions).await.unwrap()[0].get(0);
    assert_eq!(old.split(',').count(), 2, "{old}");
    // The server ends a session that had no statement for this time.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(240)).await;
    tokio::time::resume();
    call().await;
    let left = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id IN ({old})");
    let closed = async {
        while database.number(&left).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let closed = tokio::time::timeout(Duration::from_secs(60), closed).await;
    closed.expect("both connections should be replaced");
}

pub(crate) async fn a_locked_table_is_a_timeout(database: Arc<Database>) {
    let impatient = database.builder().deadline(Duration::from_secs(2));
    let store = impatient.max_connections(1).connect().await.unwrap();
    enqueue(&store, job()).await;
    let mut other = MySqlConnection::connect(&database.url).await.unwrap();
    let lock = "LOCK TABLES ratchet_jobs WRITE, ratchet_job_data WRITE";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    let error = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
    let unlock = sqlx::raw_sql("UNLOCK TABLES");
    unlock.execute(&mut other).await.unwrap();
    enqueue(&store, job()).await;
}

pub(crate) async fn large_batches_are_divided(database: Arc<Database>) {
    let store = open(&database).await;
    // The largest payload, full of characters that JSON and the text of a statement escape.
    let payload = "\\\"'".repeat(52_000);
    let large = |n: usize| {
        let job = NewJob::new("k", &payload);
        job.tag(&format!("t{n}")).delay(Duration::from_secs(60))
    };
    let jobs: Vec<NewJob> = (0..12).map(large).collect();
    store.enqueue(&jobs).await.unwrap();
    let ids: Vec<_> = jobs.iter().map(NewJob::id).collect();
    let stored = store.get(&ids, Detail::Whole).await.unwrap();
    for (n, (stored, job)) in stored.iter().zip(&jobs).enumerate() {
        let stored = stored.as_ref().unwrap();
        assert_eq!(stored.spec.payload.as_str(), job.spec().payload.as_str());
        assert!(
            stored
                .spec
                .tags
                .iter()
                .any(|tag| tag.as_str() == format!("t{n}"))
        );
    }
    // The batch is stored as a whole or not at all, also if it is divided.
    let mut again: Vec<NewJob> = (0..6).map(large).collect();
    let first = again[0].id();
    let key = enqueue(&store, job().unique_key("u")).await;
    let last = again.pop().unwrap().unique_key("u");
    let mut broken = again.clone();
    broken.push(last.queue(""));
    store.enqueue(&broken).await.unwrap_err();
    assert!(!exists(&store, first).await && exists(&store, key).await);
}

pub(crate) async fn unknown_users_and_databases_are_misconfigured(database: Arc<Database>) {
    let (scheme, rest) = database.url.split_once("://").unwrap();
    let (authority, _) = rest.split_once('/').unwrap();
    let host = authority.rsplit('@').next().unwrap();
    for url in [
        format!("{scheme}://stranger_here:secret@{host}/mysql"),
        format!("{scheme}://{authority}/nowhere_here"),
    ] {
        let error = MysqlStore::connect(&url).await.unwrap_err();
        assert_kind(&error, StoreErrorKind::Misconfigured);
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.to_string().contains("_here"), "{error}");
    }
    let store = open(&database).await;
    assert!(!format!("{store:?}").contains("mysql://"));
    let closed = store.clone();
    store.close().await;
    let error = closed.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    let error = closed.heartbeat(&heartbeat()).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
}
