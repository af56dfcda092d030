//! Connections that are few, in use, dropped, killed or refused.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_conformance::kit::{
    assert_kind, enqueue, exists, heartbeat, job, name, pause_of_queue, request_all, work_at_once,
};
use ratchet_core::model::JobSelector;
use ratchet_core::store::{Acquired, JobStore, LockStore, NodeStore, QueueStore};
use ratchet_core::{JobAction, StoreErrorKind};
use ratchet_store_sqlserver::SqlServerStore;
use tracing::instrument::WithSubscriber;

use crate::open;
use crate::server::{self, Schema};

pub(crate) async fn a_pool_of_one_makes_progress(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(1).connect().await.unwrap();
    work_at_once(&store, 4, 3).await;
}

pub(crate) async fn a_pool_taken_by_others_leaves_heartbeats_and_locks(schema: Arc<Schema>) {
    let builder = schema.builder().max_connections(1);
    let builder = builder.acquire_timeout(Duration::from_secs(2));
    let store = builder.connect().await.unwrap();
    let mut taken = store.begin().await.unwrap();
    let refused = store.enqueue(&[job().queue("other")]).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Timeout);
    store.heartbeat(&heartbeat()).await.unwrap();
    store.database_time().await.unwrap();
    let (lock, owner) = (name("l"), name("o"));
    let lock = store.acquire(&lock, &owner, Duration::from_secs(9)).await;
    assert!(matches!(lock.unwrap(), Acquired::Acquired { .. }));
    // The new queue needs a new route. The enqueue can add it although its transaction holds the
    // pool's last connection.
    let new = [job().queue("never seen")];
    store.enqueue_in(&mut taken, &new).await.unwrap();
    taken.commit().await.unwrap();
    assert!(exists(&store, new[0].id()).await);
}

pub(crate) async fn dropped_calls_leave_the_store_usable(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(2).connect().await.unwrap();
    for millis in 0..20 {
        let patience = Duration::from_millis(millis);
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
}

pub(crate) async fn killed_sessions_are_replaced(schema: Arc<Schema>) {
    let store = schema.builder().max_connections(1).connect().await.unwrap();
    for begins in [false, true, false] {
        // The pool's only connection reports its session.
        let mut tx = store.begin().await.unwrap();
        let session = tx.query("SELECT CAST(@@SPID AS int)", &[]).await.unwrap();
        let session: i32 = session[0].get(0).unwrap();
        tx.commit().await.unwrap();
        schema.execute(&format!("KILL {session}")).await.unwrap();
        if begins {
            store.begin().await.unwrap().rollback().await.unwrap();
        }
        let id = enqueue(&store, job()).await;
        assert!(exists(&store, id).await);
    }
}

pub(crate) async fn a_held_row_is_a_timeout(schema: Arc<Schema>) {
    let id = enqueue(&open(&schema).await, job()).await;
    let builder = schema.builder().deadline(Duration::from_secs(15));
    let store = builder.connect().await.unwrap();
    let mut rival = server::connect(&schema.url).await.unwrap();
    let hold = schema.sql("BEGIN TRANSACTION; UPDATE {schema}.jobs SET flags = flags");
    let held = rival.simple_query(hold).await.unwrap();
    held.into_results().await.unwrap();
    let this = JobSelector::Ids(vec![id]);
    let cancelled = store.act(&this, JobAction::Cancel);
    assert_kind(&cancelled.await.unwrap_err(), StoreErrorKind::Timeout);
    let end = rival.simple_query("ROLLBACK TRANSACTION").await.unwrap();
    end.into_results().await.unwrap();
    let cancelled = store.act(&this, JobAction::Cancel);
    assert_eq!(cancelled.await.unwrap().len(), 1);
}

/// Returns the URL of the schema after applying `change` to it.
fn with(schema: &Schema, change: impl FnOnce(&mut url::Url)) -> String {
    let mut url = url::Url::parse(&schema.url).unwrap();
    change(&mut url);
    url.to_string()
}

pub(crate) async fn a_wrong_password_is_misconfigured(schema: Arc<Schema>) {
    let url = with(&schema, |url| url.set_password(Some("not-it")).unwrap());
    let builder = SqlServerStore::builder(&url).schema(&schema.name);
    let error = builder.connect().await;
    let error = error.expect_err(
        "the server should refuse a wrong password; a server that trusts \
         all users cannot run this test",
    );
    assert_kind(&error, StoreErrorKind::Misconfigured);
    assert!(!error.to_string().contains("not-it"));
}

/// Without further settings, the store refuses a server without encryption and one whose
/// certificate is not trusted.
pub(crate) async fn encryption_that_cannot_be_had_is_misconfigured(schema: Arc<Schema>) {
    let url = with(&schema, |url| url.set_query(None));
    let builder = SqlServerStore::builder(&url).schema(&schema.name);
    let error = builder.connect().await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
}

pub(crate) async fn a_missing_database_is_misconfigured(schema: Arc<Schema>) {
    let url = with(&schema, |url| url.set_path("/not_there"));
    let error = SqlServerStore::connect(&url).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
}

pub(crate) async fn an_address_without_a_server_is_unavailable(schema: Arc<Schema>) {
    let url = with(&schema, |url| url.set_port(Some(1)).unwrap());
    let error = SqlServerStore::connect(&url).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
}

/// Runs `work`. Returns its result, and the log lines that were written in the process.
async fn logged<T>(work: impl Future<Output = T>) -> (T, String) {
    let lines: Lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .finish();
    let done = work.with_subscriber(subscriber).await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    (done, text)
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The store suppresses the driver's log, which would include the duplicate key.
pub(crate) async fn lost_races_are_not_logged(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let twice = [job()];
    store.enqueue(&twice).await.unwrap();
    let (_, own) = logged(async { tracing::error!("this is seen") }).await;
    assert!(own.contains("this is seen"), "{own}");
    let (stored, text) = logged(store.enqueue(&twice)).await;
    stored.unwrap();
    assert_eq!(text, "");
}
