//! Networks that fall silent or break, and answers that are lost.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, exists, heartbeat, job, name};
use ratchet_conformance::{Outage, Proxy};
use ratchet_core::model::{Detail, Fenced, JobSelector, NodeSweep, PurgeRequest};
use ratchet_core::store::{Acquired, JobStore, LockStore, NodeStore, Store};
use ratchet_core::{JobAction, JobState, StoreErrorKind};
use ratchet_store_sqlserver::{Builder, Encryption, SqlServerStore};

use crate::open;
use crate::server::Schema;

/// Starts a proxy to the server. Returns it with the URL of the same database through it.
async fn proxy_to(server: &str) -> (Proxy, String) {
    let mut url = url::Url::parse(server).unwrap();
    let host = url.host_str().unwrap();
    let host = format!("{host}:{}", url.port().unwrap_or(1433));
    let proxy = Proxy::to(host).await.unwrap();
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(proxy.address().port())).unwrap();
    (proxy, url.into())
}

/// Starts a proxy. Returns it with a builder of a store that connects through it without
/// encryption.
async fn through_proxy(schema: &Schema) -> (Proxy, Builder) {
    let (proxy, url) = proxy_to(&schema.url).await;
    let builder = SqlServerStore::builder(&url)
        .schema(&schema.name)
        .encryption(Encryption::Off)
        .deadline(Duration::from_secs(60));
    (proxy, builder)
}

/// Returns a statement's text as the driver sends it.
fn sent(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

const COMMIT: &str = "COMMIT TRANSACTION";

pub(crate) async fn an_action_whose_commit_is_not_heard_of_is_not_done_again(schema: Arc<Schema>) {
    let (proxy, builder) = through_proxy(&schema).await;
    let store = builder.connect().await.unwrap();
    let new = [job()];
    store.enqueue(&new).await.unwrap();
    proxy.lose_answer(sent(COMMIT));
    let selected = JobSelector::Ids(vec![new[0].id()]);
    // A repeated call would find the job already cancelled, and report that it did nothing.
    let error = store.act(&selected, JobAction::Cancel).await.unwrap_err();
    assert!(proxy.has_lost_answer());
    assert_kind(&error, StoreErrorKind::Unavailable);
    let stored = open(&schema)
        .await
        .get(&[new[0].id()], Detail::Whole)
        .await
        .unwrap();
    assert_eq!(stored[0].as_ref().unwrap().state, JobState::Cancelled);
}

pub(crate) async fn a_commit_of_an_application_that_is_not_heard_of_is_unavailable(
    schema: Arc<Schema>,
) {
    let (proxy, builder) = through_proxy(&schema).await;
    let store = builder.connect().await.unwrap();
    let mut tx = store.begin().await.unwrap();
    let new = [job()];
    store.enqueue_in(&mut tx, &new).await.unwrap();
    proxy.lose_answer(sent(COMMIT));
    assert_kind(&tx.commit().await.unwrap_err(), StoreErrorKind::Unavailable);
    assert!(proxy.has_lost_answer());
    // A read shows whether the job was stored, and repeating the enqueue is safe.
    assert!(exists(&store, new[0].id()).await);
    store.enqueue(&new).await.unwrap();
}

pub(crate) async fn an_enqueue_whose_answer_is_lost_is_stored_once(schema: Arc<Schema>) {
    let (proxy, builder) = through_proxy(&schema).await;
    let store = builder.connect().await.unwrap();
    let new = [job(), job().unique_key("u"), job().lane("l")];
    proxy.lose_answer(sent(COMMIT));
    let enqueued = store.enqueue(&new).await.unwrap();
    assert!(proxy.has_lost_answer());
    for (job, enqueued) in new.iter().zip(&enqueued) {
        assert_eq!(enqueued.id(), job.id());
    }
    let rows = schema.rows("SELECT id FROM {schema}.jobs").await.unwrap();
    assert_eq!(rows.len(), new.len());
}

pub(crate) async fn calls_on_silent_connections_end_at_the_deadline(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let (proxy, builder) = through_proxy(&schema).await;
    let store = builder.max_connections(3);
    let store = store
        .deadline(Duration::from_secs(15))
        .connect()
        .await
        .unwrap();
    let three = tokio::join!(store.begin(), store.begin(), store.begin());
    for open in <[_; 3]>::from(three) {
        open.unwrap().rollback().await.unwrap();
    }
    assert_eq!(store.connections(), Some(3));
    store.heartbeat(&heartbeat()).await.unwrap();
    proxy.silence();
    let (new, beat) = ([job()], heartbeat());
    let (refused, missed) = tokio::join!(store.enqueue(&new), store.heartbeat(&beat));
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Timeout);
    assert_kind(&missed.unwrap_err(), StoreErrorKind::Timeout);
    // The store uses none of these connections again, not even an idle one.
    let again = [job()];
    store.enqueue(&again).await.unwrap();
    assert!(exists(&store, again[0].id()).await);
    store.heartbeat(&heartbeat()).await.unwrap();
}

pub(crate) async fn a_transaction_on_a_silent_connection_ends_at_the_deadline(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let (proxy, builder) = through_proxy(&schema).await;
    let store = builder.max_connections(1);
    let store = store
        .deadline(Duration::from_secs(15))
        .connect()
        .await
        .unwrap();
    let mut tx = store.begin().await.unwrap();
    proxy.silence();
    let asked = tokio::time::timeout(Duration::from_secs(60), tx.query("SELECT 1", &[])).await;
    let refused = asked
        .expect("the call should fail at its deadline")
        .unwrap_err();
    assert_kind(&refused, StoreErrorKind::Timeout);
    assert_kind(&tx.commit().await.unwrap_err(), StoreErrorKind::Unavailable);
    assert_eq!(
        store.connections(),
        Some(0),
        "expected the connection to be closed"
    );
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.query("SELECT 1", &[]).await.unwrap().len(), 1);
    tx.rollback().await.unwrap();
}

pub(crate) async fn a_server_that_is_gone_for_a_while_is_found_again(schema: Arc<Schema>) {
    let (proxy, url) = proxy_to(&schema.url).await;
    let store = SqlServerStore::builder(&url).schema(&schema.name);
    let store = store
        .deadline(Duration::from_secs(60))
        .connect()
        .await
        .unwrap();
    let mut tx = store.begin().await.unwrap();
    let lost = [job()];
    store.enqueue_in(&mut tx, &lost).await.unwrap();
    proxy.cut().await;
    let refused = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Unavailable);
    let refused = store.heartbeat(&heartbeat()).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Unavailable);
    assert_kind(&tx.commit().await.unwrap_err(), StoreErrorKind::Unavailable);
    proxy.mend().await;
    let new = [job()];
    store.enqueue(&new).await.unwrap();
    store.heartbeat(&heartbeat()).await.unwrap();
    assert!(exists(&store, new[0].id()).await);
    assert!(!exists(&store, lost[0].id()).await);
}

pub(crate) async fn a_release_whose_answer_is_lost_is_applied(schema: Arc<Schema>) {
    const EXPIRY: &str = "SET expires_at";
    let (proxy, builder) = through_proxy(&schema).await;
    let store = builder.connect().await.unwrap();
    let (lock, owner, ttl) = (name("l"), name("o"), Duration::from_secs(600));
    let Acquired::Acquired { fence } = store.acquire(&lock, &owner, ttl).await.unwrap() else {
        panic!("expected the lock to be free");
    };
    proxy.lose_answer(sent(EXPIRY));
    let released = store.release(&lock, &owner, fence).await.unwrap();
    assert!(proxy.has_lost_answer());
    assert_eq!(released, Fenced::Applied);
    // A second release, in another call, reports that the lock is no longer held.
    let released = store.release(&lock, &owner, fence).await.unwrap();
    assert_eq!(released, Fenced::Stale);
    // A release whose answer is lost reports the same if its owner never held the lock.
    proxy.lose_answer(sent(EXPIRY));
    let released = store.release(&lock, &name("other"), fence).await.unwrap();
    assert!(proxy.has_lost_answer());
    assert_eq!(released, Fenced::Stale);
}

pub(crate) async fn purges_and_sweeps_whose_answer_is_lost_are_not_made_again(schema: Arc<Schema>) {
    let (proxy, builder) = through_proxy(&schema).await;
    let store = builder.connect().await.unwrap();
    let purge = PurgeRequest::new(JobState::Succeeded, Duration::ZERO, 10);
    proxy.lose_answer(sent(COMMIT));
    let error = store.purge(&purge).await.unwrap_err();
    assert!(proxy.has_lost_answer());
    assert_kind(&error, StoreErrorKind::Unavailable);
    store.purge(&purge).await.unwrap();
    proxy.lose_answer(sent(COMMIT));
    let sweep = NodeSweep::new(Duration::from_secs(60), Duration::from_secs(60));
    let error = store.sweep_nodes(&sweep).await.unwrap_err();
    assert!(proxy.has_lost_answer());
    assert_kind(&error, StoreErrorKind::Unavailable);
    store.sweep_nodes(&sweep).await.unwrap();
}
