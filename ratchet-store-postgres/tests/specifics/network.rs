//! Networks that fall silent, and servers that ask for passwords.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::cluster::Wakeup;
use ratchet_core::store::{JobStore, NodeStore, Store};
use ratchet_core::{Name, StoreErrorKind};
use ratchet_store_postgres::PostgresStore;
use sqlx::{Connection, PgConnection};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::connections::heartbeat;
use crate::server::Schema;
use crate::{assert_kind, exists, job};

/// Forwards connections to the server, until it is silenced: then the ones there are stay open and
/// carry nothing any more, as behind a router that lost its memory. Later ones work.
struct Proxy {
    url: String,
    generation: watch::Sender<u64>,
}

impl Proxy {
    async fn start(server: &str) -> Self {
        let (scheme, rest) = server.split_once("://").unwrap();
        let (authority, database) = rest.split_once('/').unwrap();
        let (user, host) = authority.rsplit_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let (generation, silenced) = watch::channel(0);
        let host = host.to_owned();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (host, mut silenced) = (host.clone(), silenced.clone());
                silenced.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(host).await else {
                        return;
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
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
        }
    }

    fn silence(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
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
