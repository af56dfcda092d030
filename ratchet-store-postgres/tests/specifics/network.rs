//! Networks that fall silent, and servers that ask for passwords.

use std::io;
use std::sync::Arc;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, exists, heartbeat, job, name};
use ratchet_conformance::{Outage, Proxy};
use ratchet_core::cluster::Wakeup;
use ratchet_core::model::{Detail, Fenced, Guard, JobSelector, NodeSweep, PurgeRequest};
use ratchet_core::store::{Acquired, JobStore, LockStore, NodeStore, Store};
use ratchet_core::{JobAction, JobState, Name, StoreErrorKind};
use ratchet_store_postgres::PostgresStore;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::open;
use crate::server::{self, Schema};

/// The protocol message that executes a prepared statement without a row limit.
const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";

/// Starts a proxy to the server. Returns it with the URL of the same database through it.
pub(crate) async fn proxy_to(url: &str) -> (Proxy, String) {
    let proxy = Proxy::to(server::host(url)).await.unwrap();
    let through = server::at(url, &proxy.address().to_string());
    (proxy, through)
}

pub(crate) async fn an_action_whose_commit_is_not_heard_of_is_not_done_again(schema: Arc<Schema>) {
    let (proxy, url) = proxy_to(&schema.url).await;
    let store = PostgresStore::builder(&url).schema(&schema.name);
    let store = store.connect().await.unwrap();
    let new = [job()];
    store.enqueue(&new).await.unwrap();
    proxy.lose_answer(b"COMMIT\0");
    let selected = JobSelector::Ids(vec![new[0].id()]);
    // A repeated call would find the job already cancelled, and report that it did nothing.
    let error = store.act(&selected, JobAction::Cancel).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    let stored = open(&schema)
        .await
        .get(&[new[0].id()], Detail::Whole)
        .await
        .unwrap();
    assert_eq!(stored[0].as_ref().unwrap().state, JobState::Cancelled);
}

/// The connection for heartbeats and locks falls silent after the login, while the store binds
/// locks to its session.
pub(crate) async fn a_connection_that_falls_silent_while_it_opens_is_replaced(schema: Arc<Schema>) {
    let (proxy, url) = proxy_to(&schema.url).await;
    let store = PostgresStore::builder(&url).schema(&schema.name);
    let store = store.acquire_timeout(Duration::from_secs(1));
    let store = store.deadline(Duration::from_secs(2)).session_locks(true);
    let store = store.connect().await.unwrap();
    store.database_time().await.unwrap();
    proxy.swallow(&[b"pg_backend_pid"]);
    proxy.cut().await;
    proxy.mend().await;
    let works = async { while store.database_time().await.is_err() {} };
    let works = tokio::time::timeout(Duration::from_secs(60), works).await;
    works.expect("the store should open another connection");
}

pub(crate) async fn calls_on_silent_connections_end_at_the_deadline(schema: Arc<Schema>) {
    let (proxy, url) = proxy_to(&schema.url).await;
    let store = PostgresStore::builder(&url)
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
    // The store uses neither of the two connections again.
    let again = [job()];
    store.enqueue(&again).await.unwrap();
    assert!(exists(&store, again[0].id()).await);
    store.heartbeat(&heartbeat()).await.unwrap();
}

pub(crate) async fn ten_connections_that_fell_silent_cost_one_call(schema: Arc<Schema>) {
    const MANY: u32 = 10;
    drop(open(&schema).await);
    for own in [true, false] {
        let (proxy, url) = proxy_to(&schema.url).await;
        let pool = PgPoolOptions::new().max_connections(MANY);
        let pool = pool.connect_lazy(&url).unwrap();
        let builder = if own {
            PostgresStore::builder(&url).max_connections(MANY)
        } else {
            PostgresStore::pool_builder(pool.clone())
        };
        let builder = builder.schema(&schema.name).wakeups(false);
        let store = builder.deadline(Duration::from_secs(5)).connect().await;
        let store = store.unwrap();
        let one = [enqueue(&store, job()).await];
        // The table is locked, so the reads wait, and each of them occupies its own connection.
        schema
            .execute("BEGIN; LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE")
            .await
            .unwrap();
        let reads = (0..MANY).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.get(&one, Detail::Whole).await })
        });
        let reads: Vec<_> = reads.collect();
        while proxy.open_connections() < MANY as usize + 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        schema.execute("COMMIT").await.unwrap();
        for read in reads {
            read.await.unwrap().unwrap();
        }
        // The driver's pool pings each returned connection before it counts as idle.
        while !own && pool.num_idle() < MANY as usize {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        proxy.silence();
        let mut failed = 0;
        for _ in 0..2 * MANY {
            failed += u32::from(store.get(&one, Detail::Whole).await.is_err());
        }
        assert!(
            failed <= 1,
            "expected at most 1 failed call, found {failed}; own pool: {own}"
        );
    }
}

/// Imitates PgBouncer's answer to an unknown parameter.
pub(crate) async fn a_setting_that_the_pooler_refuses_is_misconfigured(schema: Arc<Schema>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let fields =
                b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: extra_float_digits\0\0";
            let mut answer = b"E".to_vec();
            answer.extend(u32::try_from(fields.len() + 4).unwrap().to_be_bytes());
            answer.extend(fields);
            let _ = client.read(&mut [0; 1024]).await;
            let _ = client.write_all(&answer).await;
        }
    });
    let url = format!("postgres://app@{here}/jobs?sslmode=disable");
    let refused = PostgresStore::builder(&url).schema(&schema.name).connect();
    let refused = refused.await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Misconfigured);
    let text = refused.to_string();
    assert!(text.contains("ignore_startup_parameters"), "{text}");
}

pub(crate) async fn a_silent_connection_for_wakeups_is_noticed(schema: Arc<Schema>) {
    let (proxy, url) = proxy_to(&schema.url).await;
    let listening = PostgresStore::builder(&schema.url)
        .direct(&url)
        .schema(&schema.name);
    let listening = listening.connect().await.unwrap().coordinator().unwrap();
    let sending = schema.builder().connect().await.unwrap();
    let sending = sending.coordinator().unwrap();
    let mut wakeups = listening.subscribe();
    let queue = Wakeup::queue(Name::new("queue", "q").unwrap());
    let patience = Duration::from_secs(60);
    let heard = tokio::time::timeout(patience, async {
        // Repeats until both coordinators are connected.
        loop {
            sending.notify(queue.clone()).await;
            let next = tokio::time::timeout(Duration::from_millis(200), wakeups.next());
            if next.await == Ok(queue.clone()) {
                break;
            }
        }
        proxy.silence();
        // Reads the earlier wakeups, until the wakeup for all queues arrives after the outage.
        while wakeups.next().await != Wakeup::any() {}
        sending.notify(queue.clone()).await;
        let next = wakeups.next().await;
        // The store has closed its other connections, so only the new one remains.
        while proxy.open_connections() > 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        next
    });
    assert_eq!(heard.await, Ok(queue));
}

pub(crate) async fn a_leader_that_vanishes_in_mid_write_holds_its_lock_up_for_a_moment(
    schema: Arc<Schema>,
) {
    let (proxy, url) = proxy_to(&schema.url).await;
    let leader = PostgresStore::builder(&url).schema(&schema.name);
    let leader = leader.connect().await.unwrap();
    let lock = Name::new("lock", "leader").unwrap();
    let owner = Name::new("owner", "o").unwrap();
    let hour = Duration::from_secs(3_600);
    let Acquired::Acquired { fence } = leader.acquire(&lock, &owner, hour).await.unwrap() else {
        panic!("expected the lock to be free");
    };
    let guard = Guard {
        lock: lock.clone(),
        owner: owner.clone(),
        fence,
    };
    let held_up = "BEGIN; LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE";
    schema.execute(held_up).await.unwrap();
    let purge = PurgeRequest::new(JobState::Failed, hour, 1).guarded(Some(guard));
    let purging = tokio::spawn(async move { leader.purge(&purge).await });
    let waiting = "SELECT 1 FROM pg_locks
                   WHERE NOT granted AND relation = '{schema}.jobs'::regclass";
    while schema.rows(waiting).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The purge has locked the row of the leader's lock. The leader never receives the answer to
    // the purge.
    proxy.silence();
    schema.execute("COMMIT").await.unwrap();
    let other = open(&schema).await;
    let renewed = other.renew(&lock, &owner, fence, hour).await;
    assert_eq!(renewed.unwrap(), Fenced::Applied);
    purging.abort();
}

pub(crate) async fn a_wrong_password_is_misconfigured(schema: Arc<Schema>) {
    let role = format!("role_{}w", &schema.name[20..]);
    // Servers that trust all users still ask members of this group for a password.
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
    let refused = wrong.expect_err(
        "the server should refuse a wrong password; a server that \
         trusts all users cannot run this test",
    );
    assert_kind(&refused, StoreErrorKind::Misconfigured);
    assert!(refused.to_string().contains("password"), "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
}

pub(crate) async fn a_setting_that_is_refused_is_done_without(schema: Arc<Schema>) {
    // Makes the server reject the setting, as a pooler or a fork of the server might, but not with
    // PgBouncer's code.
    let (proxy, url) = proxy_to(&schema.url).await;
    proxy.rewrite(b"c statement_timeout=", b"c statement_timeoux=");
    let store = PostgresStore::builder(&url).schema(&schema.name);
    let store = store.connect().await.unwrap();
    enqueue(&store, job()).await;
    store.heartbeat(&heartbeat()).await.unwrap();
}

/// Returns what this process has logged since the first call of this function.
fn logged() -> String {
    static LOG: LazyLock<Arc<Mutex<Vec<u8>>>> = LazyLock::new(|| {
        let log: Arc<Mutex<Vec<u8>>> = Arc::default();
        let writer = Arc::clone(&log);
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || Log(Arc::clone(&writer)))
            .init();
        log
    });
    String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned()
}

struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) async fn a_deaf_connection_for_wakeups_is_warned_about(schema: Arc<Schema>) {
    assert!(!logged().contains(&schema.name));
    // Simulates a pooler: LISTEN succeeds, but no notification ever arrives.
    let (proxy, url) = proxy_to(&schema.url).await;
    proxy.rewrite(b"LISTEN \"ratchet:", b"LISTEN \"elsewhe:");
    let told_of = |text: &str| {
        let log = logged();
        let mut lines = log.lines().filter(|line| line.contains(&schema.name));
        lines.any(|line| line.contains(text))
    };
    let hearing = open(&schema).await;
    let subscribed = hearing.coordinator().unwrap().subscribe();
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(!told_of("receives no notifications"));
    let deaf = PostgresStore::builder(&url).schema(&schema.name);
    let deaf = deaf.connect().await.unwrap();
    let deaf = deaf.coordinator().unwrap();
    let also_subscribed = deaf.subscribe();
    let told = async {
        while !told_of("Builder::direct") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), told)
        .await
        .expect("the store should log a warning within 30 s");
    drop((subscribed, also_subscribed));
}

pub(crate) async fn a_release_whose_answer_is_lost_is_applied(schema: Arc<Schema>) {
    let (proxy, url) = proxy_to(&schema.url).await;
    let store = PostgresStore::builder(&url).schema(&schema.name);
    let store = store.connect().await.unwrap();
    let (lock, owner, ttl) = (name("l"), name("o"), Duration::from_secs(60));
    let Acquired::Acquired { fence } = store.acquire(&lock, &owner, ttl).await.unwrap() else {
        panic!("expected the lock to be free");
    };
    proxy.lose_answer(EXECUTE);
    let released = store.release(&lock, &owner, fence).await.unwrap();
    assert_eq!(released, Fenced::Applied);
    // A second release, in another call, reports that the lock is no longer held.
    let released = store.release(&lock, &owner, fence).await.unwrap();
    assert_eq!(released, Fenced::Stale);
    // A release whose answer is lost reports the same if its owner never held the lock.
    proxy.lose_answer(EXECUTE);
    let released = store.release(&lock, &name("other"), fence).await.unwrap();
    assert_eq!(released, Fenced::Stale);
}

pub(crate) async fn purges_and_sweeps_whose_answer_is_lost_are_not_made_again(schema: Arc<Schema>) {
    let (proxy, url) = proxy_to(&schema.url).await;
    let store = PostgresStore::builder(&url).schema(&schema.name);
    let store = store.connect().await.unwrap();
    proxy.lose_answer(EXECUTE);
    let purge = PurgeRequest::new(JobState::Succeeded, Duration::ZERO, 10);
    let error = store.purge(&purge).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    store.purge(&purge).await.unwrap();
    proxy.lose_answer(EXECUTE);
    let sweep = NodeSweep::new(Duration::from_secs(60), Duration::from_secs(60));
    let error = store.sweep_nodes(&sweep).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    store.sweep_nodes(&sweep).await.unwrap();
}
