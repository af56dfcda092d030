//! Networks that fall silent, and servers that ask for passwords.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratchet_core::cluster::Wakeup;
use ratchet_core::model::JobSelector;
use ratchet_core::store::{JobStore, NodeStore, Store};
use ratchet_core::{JobAction, JobState, Name, StoreErrorKind};
use ratchet_store_postgres::PostgresStore;
use sqlx::{Connection, PgConnection};
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
    cut_commit: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(server: &str) -> Self {
        let (scheme, rest) = server.split_once("://").unwrap();
        let (authority, database) = rest.split_once('/').unwrap();
        let (user, host) = authority.rsplit_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let (generation, silenced) = watch::channel(0);
        let cut_commit = Arc::new(AtomicBool::new(false));
        let host = host.to_owned();
        let cut = Arc::clone(&cut_commit);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (host, mut silenced) = (host.clone(), silenced.clone());
                let cut = Arc::clone(&cut);
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
            url: format!("{scheme}://{user}@{here}/{database}"),
            generation,
            cut_commit,
        }
    }

    /// The next connection on which a COMMIT is answered ends before the answer is heard.
    fn cut_commit(&self) {
        self.cut_commit.store(true, Ordering::SeqCst);
    }

    fn silence(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}

/// Copies both ways, until one side ends or a COMMIT is to be cut.
async fn forward(
    client: &mut TcpStream,
    server: &mut TcpStream,
    cut: &AtomicBool,
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
                let commit = asked.windows(7).any(|bytes| bytes == b"COMMIT\0");
                if commit && cut.swap(false, Ordering::SeqCst) {
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

pub(crate) async fn an_action_whose_commit_is_not_heard_of_is_not_done_again(schema: Arc<Schema>) {
    let proxy = Proxy::start(&schema.url).await;
    let store = PostgresStore::builder(&proxy.url).schema(&schema.name);
    let store = store.connect().await.unwrap();
    let new = [job()];
    store.enqueue(&new).await.unwrap();
    proxy.cut_commit();
    let selected = JobSelector::Ids(vec![new[0].id()]);
    // Again it would find a job that is cancelled already, and say that it did nothing.
    let error = store.act(&selected, JobAction::Cancel).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    let stored = open(&schema).await.get(&[new[0].id()]).await.unwrap();
    assert_eq!(stored[0].as_ref().unwrap().state, JobState::Cancelled);
}

pub(crate) async fn calls_on_silent_connections_end_at_the_deadline(schema: Arc<Schema>) {
    let proxy = Proxy::start(&schema.url).await;
    let store = PostgresStore::builder(&proxy.url)
        .schema(&schema.name)
        .max_connections(1)
        .deadline(Duration::from_secs(3));
    let store = store.connect().await.unwrap();
    store.enqueue(&[job()]).await.unwrap();
    store.heartbeat(&heartbeat()).await.unwrap();
    proxy.silence();
    let refused = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Timeout);
    let refused = store.heartbeat(&heartbeat()).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Timeout);
    // Neither connection is used again.
    let again = [job()];
    store.enqueue(&again).await.unwrap();
    assert!(exists(&store, again[0].id()).await);
    store.heartbeat(&heartbeat()).await.unwrap();
}

pub(crate) async fn a_silent_connection_for_wakeups_is_noticed(schema: Arc<Schema>) {
    let proxy = Proxy::start(&schema.url).await;
    let listening = PostgresStore::builder(&schema.url)
        .direct(&proxy.url)
        .schema(&schema.name);
    let listening = listening.connect().await.unwrap().coordinator().unwrap();
    let sending = schema.builder().connect().await.unwrap();
    let sending = sending.coordinator().unwrap();
    let mut wakeups = listening.subscribe();
    let queue = Wakeup::queue(Name::new("queue", "q").unwrap());
    let patience = Duration::from_secs(60);
    let heard = tokio::time::timeout(patience, async {
        // Until both are connected.
        loop {
            sending.notify(queue.clone()).await;
            let next = tokio::time::timeout(Duration::from_millis(200), wakeups.next());
            if next.await == Ok(queue.clone()) {
                break;
            }
        }
        proxy.silence();
        // What came before is read first; then the news that anything may have been missed.
        while wakeups.next().await != Wakeup::any() {}
        sending.notify(queue.clone()).await;
        wakeups.next().await
    });
    assert_eq!(heard.await, Ok(queue));
}

pub(crate) async fn a_wrong_password_is_misconfigured(schema: Arc<Schema>) {
    let role = format!("role_{}w", &schema.name[20..]);
    // Servers that trust everybody make an exception of the members of this group.
    let create = format!(
        "DO $$ BEGIN CREATE ROLE ratchet_with_password;
         EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
         CREATE ROLE \"{role}\" LOGIN PASSWORD 'right' IN ROLE ratchet_with_password"
    );
    schema.execute(&create).await.unwrap();
    let (scheme, rest) = schema.url.split_once("://").unwrap();
    let host = rest.rsplit('@').next().unwrap();
    let url = |password: &str| format!("{scheme}://{role}:{password}@{host}");
    PgConnection::connect(&url("right")).await.unwrap();
    let wrong = PostgresStore::connect(&url("secret")).await;
    schema
        .execute(&format!("DROP ROLE \"{role}\""))
        .await
        .unwrap();
    let refused = wrong.expect_err("the server trusts everybody, and cannot be used for this test");
    assert_kind(&refused, StoreErrorKind::Misconfigured);
    assert!(refused.to_string().contains("password"), "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
}
