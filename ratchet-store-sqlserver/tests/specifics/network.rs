//! Networks that fall silent or break, and answers that are never heard.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_conformance::{Line, Outage};
use ratchet_core::model::{Detail, Fenced, JobSelector, NodeSweep, PurgeRequest};
use ratchet_core::store::{Acquired, JobStore, LockStore, NodeStore, Store};
use ratchet_core::{JobAction, JobState, Name, StoreErrorKind};
use ratchet_store_sqlserver::{Builder, Encryption, SqlServerStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::connections::heartbeat;
use crate::server::Schema;
use crate::{assert_kind, exists, job, open};

/// Forwards connections to the server, until it is silenced: then the ones there are stay open and
/// carry nothing any more, as behind a router that lost its memory. Later ones work.
struct Proxy {
    url: String,
    generation: watch::Sender<u64>,
    /// When this is asked, the connection ends before the answer is heard; once.
    cut: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Proxy {
    async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (host, url) = elsewhere(server, listener.local_addr().unwrap().port());
        let (generation, silenced) = watch::channel(0);
        let cut: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
        let cuts = Arc::clone(&cut);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (host, mut silenced) = (host.clone(), silenced.clone());
                let cut = Arc::clone(&cuts);
                silenced.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(host).await else {
                        return;
                    };
                    tokio::select! {
                        _ = forward(&mut client, &mut server, &cut) => {}
                        Ok(()) = silenced.changed() => {
                            std::future::pending::<()>().await;
                        }
                    }
                });
            }
        });
        Self {
            url,
            generation,
            cut,
        }
    }

    /// A store that reaches the server through here; what it asks is not encrypted.
    fn builder(&self, schema: &Schema) -> Builder {
        SqlServerStore::builder(&self.url)
            .schema(&schema.name)
            .encryption(Encryption::Off)
            .deadline(Duration::from_secs(60))
    }

    /// The next connection on which this is asked ends when it was done, and before that is heard.
    fn cut(&self, asked: &str) {
        let asked = asked.encode_utf16().flat_map(u16::to_le_bytes).collect();
        *self.cut.lock().unwrap() = Some(asked);
    }

    /// Whether it was asked.
    fn was_cut(&self) -> bool {
        self.cut.lock().unwrap().is_none()
    }

    fn silence(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}

/// Where a server is, and the URL of the same one at another port of this host.
fn elsewhere(server: &str, port: u16) -> (String, String) {
    let mut url = url::Url::parse(server).unwrap();
    let host = url.host_str().unwrap();
    let host = format!("{host}:{}", url.port().unwrap_or(1433));
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(port)).unwrap();
    (host, url.into())
}

/// Copies both ways, until one side ends or an answer is to be cut.
async fn forward(
    client: &mut TcpStream,
    server: &mut TcpStream,
    cut: &Mutex<Option<Vec<u8>>>,
) -> io::Result<()> {
    let (mut asked, mut answered) = ([0; 8192], [0; 8192]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let asked = &asked[..read?];
                if asked.is_empty() {
                    return Ok(());
                }
                server.write_all(asked).await?;
                let is_in = |cut: &mut Vec<u8>| asked.windows(cut.len()).any(|part| part == cut);
                let cut = cut.lock().unwrap().take_if(|cut| is_in(cut));
                if cut.is_some() {
                    return server.read(&mut answered).await.map(drop);
                }
            }
            read = server.read(&mut answered) => {
                let answered = &answered[..read?];
                if answered.is_empty() {
                    return Ok(());
                }
                client.write_all(answered).await?;
            }
        }
    }
}

const COMMIT: &str = "COMMIT TRANSACTION";

pub(crate) async fn an_action_whose_commit_is_not_heard_of_is_not_done_again(schema: Arc<Schema>) {
    let proxy = Proxy::start(&schema.url).await;
    let store = proxy.builder(&schema).connect().await.unwrap();
    let new = [job()];
    store.enqueue(&new).await.unwrap();
    proxy.cut(COMMIT);
    let selected = JobSelector::Ids(vec![new[0].id()]);
    // Again it would find a job that is cancelled already, and say that it did nothing.
    let error = store.act(&selected, JobAction::Cancel).await.unwrap_err();
    assert!(proxy.was_cut());
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
    let proxy = Proxy::start(&schema.url).await;
    let store = proxy.builder(&schema).connect().await.unwrap();
    let mut tx = store.begin().await.unwrap();
    let new = [job()];
    store.enqueue_in(&mut tx, &new).await.unwrap();
    proxy.cut(COMMIT);
    assert_kind(&tx.commit().await.unwrap_err(), StoreErrorKind::Unavailable);
    assert!(proxy.was_cut());
    // Who asks finds out; the enqueue may be made again as well.
    assert!(exists(&store, new[0].id()).await);
    store.enqueue(&new).await.unwrap();
}

pub(crate) async fn an_enqueue_whose_answer_is_lost_is_stored_once(schema: Arc<Schema>) {
    let proxy = Proxy::start(&schema.url).await;
    let store = proxy.builder(&schema).connect().await.unwrap();
    let new = [job(), job().unique_key("u"), job().lane("l")];
    proxy.cut(COMMIT);
    let enqueued = store.enqueue(&new).await.unwrap();
    assert!(proxy.was_cut());
    for (job, enqueued) in new.iter().zip(&enqueued) {
        assert_eq!(enqueued.id(), job.id());
    }
    let rows = schema.rows("SELECT id FROM {schema}.jobs").await.unwrap();
    assert_eq!(rows.len(), new.len());
}

pub(crate) async fn calls_on_silent_connections_end_at_the_deadline(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let proxy = Proxy::start(&schema.url).await;
    let store = proxy.builder(&schema).max_connections(3);
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
    // None of the connections is used again, nor one that was idle.
    let again = [job()];
    store.enqueue(&again).await.unwrap();
    assert!(exists(&store, again[0].id()).await);
    store.heartbeat(&heartbeat()).await.unwrap();
}

pub(crate) async fn a_transaction_on_a_silent_connection_ends_at_the_deadline(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let proxy = Proxy::start(&schema.url).await;
    let store = proxy.builder(&schema).max_connections(1);
    let store = store
        .deadline(Duration::from_secs(15))
        .connect()
        .await
        .unwrap();
    let mut tx = store.begin().await.unwrap();
    proxy.silence();
    let asked = tokio::time::timeout(Duration::from_secs(60), tx.query("SELECT 1", &[])).await;
    let refused = asked.expect("the deadline").unwrap_err();
    assert_kind(&refused, StoreErrorKind::Timeout);
    assert_kind(&tx.commit().await.unwrap_err(), StoreErrorKind::Unavailable);
    assert_eq!(store.connections(), Some(0), "its connection is gone");
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.query("SELECT 1", &[]).await.unwrap().len(), 1);
    tx.rollback().await.unwrap();
}

pub(crate) async fn a_server_that_is_gone_for_a_while_is_found_again(schema: Arc<Schema>) {
    let server = elsewhere(&schema.url, 1).0;
    let line = Line::to(server).await.unwrap();
    let (_, url) = elsewhere(&schema.url, line.address().port());
    let store = SqlServerStore::builder(&url).schema(&schema.name);
    let store = store
        .deadline(Duration::from_secs(60))
        .connect()
        .await
        .unwrap();
    let mut tx = store.begin().await.unwrap();
    let lost = [job()];
    store.enqueue_in(&mut tx, &lost).await.unwrap();
    line.cut().await;
    let refused = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Unavailable);
    let refused = store.heartbeat(&heartbeat()).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Unavailable);
    assert_kind(&tx.commit().await.unwrap_err(), StoreErrorKind::Unavailable);
    line.mend().await;
    let new = [job()];
    store.enqueue(&new).await.unwrap();
    store.heartbeat(&heartbeat()).await.unwrap();
    assert!(exists(&store, new[0].id()).await);
    assert!(!exists(&store, lost[0].id()).await);
}

pub(crate) async fn a_release_whose_answer_is_lost_is_applied(schema: Arc<Schema>) {
    const EXPIRY: &str = "SET expires_at";
    let proxy = Proxy::start(&schema.url).await;
    let store = proxy.builder(&schema).connect().await.unwrap();
    let name = |text: &str| Name::new("name", text).unwrap();
    let (lock, owner, ttl) = (name("l"), name("o"), Duration::from_secs(600));
    let Acquired::Acquired { fence } = store.acquire(&lock, &owner, ttl).await.unwrap() else {
        panic!("the lock is free");
    };
    proxy.cut(EXPIRY);
    let released = store.release(&lock, &owner, fence).await.unwrap();
    assert!(proxy.was_cut());
    assert_eq!(released, Fenced::Applied);
    // Who asks again in another call is told that it is not held any more.
    let released = store.release(&lock, &owner, fence).await.unwrap();
    assert_eq!(released, Fenced::Stale);
    // And so is who lost the connection, but never had the lock.
    proxy.cut(EXPIRY);
    let released = store.release(&lock, &name("other"), fence).await.unwrap();
    assert!(proxy.was_cut());
    assert_eq!(released, Fenced::Stale);
}

pub(crate) async fn purges_and_sweeps_whose_answer_is_lost_are_not_made_again(schema: Arc<Schema>) {
    let proxy = Proxy::start(&schema.url).await;
    let store = proxy.builder(&schema).connect().await.unwrap();
    let purge = PurgeRequest::new(JobState::Succeeded, Duration::ZERO, 10);
    proxy.cut(COMMIT);
    let error = store.purge(&purge).await.unwrap_err();
    assert!(proxy.was_cut());
    assert_kind(&error, StoreErrorKind::Unavailable);
    store.purge(&purge).await.unwrap();
    proxy.cut(COMMIT);
    let sweep = NodeSweep::new(Duration::from_secs(60), Duration::from_secs(60));
    let error = store.sweep_nodes(&sweep).await.unwrap_err();
    assert!(proxy.was_cut());
    assert_kind(&error, StoreErrorKind::Unavailable);
    store.sweep_nodes(&sweep).await.unwrap();
}
