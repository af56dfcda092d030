//! Locks that end with the session of their holder.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, heartbeat, name};
use ratchet_core::cluster::{Election, ElectionOutcome, LeaderTimings};
use ratchet_core::model::{Fenced, Guard, Guarded, PurgeRequest};
use ratchet_core::store::{Acquired, Checked, HeldLock, JobStore, LockStore, NodeStore, Store};
use ratchet_core::{Fence, JobState, NodeId, SharedStore, StoreErrorKind};
use ratchet_store_postgres::{Builder, PostgresStore};
use sqlx::{Connection, Executor, PgConnection, Row};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::open;
use crate::schemas::{drop_role, role};
use crate::server::{self, Schema};

const HOUR: Duration = Duration::from_secs(3_600);
/// A lifetime so short that a connection is too old at its next use.
const NO_TIME: Duration = Duration::from_nanos(1);

/// Returns a builder of a store whose clock does not advance, so that no lock expires.
fn builder(schema: &Schema) -> Builder {
    schema.builder().clock_table("test_clock")
}

/// Opens a store whose locks end with the session of its connection.
async fn bound(schema: &Schema) -> Checked<PostgresStore> {
    let bound = builder(schema).session_locks(true);
    bound.connect().await.unwrap()
}

/// Opens a store whose locks end only by expiry.
async fn timed(schema: &Schema) -> Checked<PostgresStore> {
    let timed = builder(schema).session_locks(false);
    timed.connect().await.unwrap()
}

/// Creates a role that may use the tables. Returns it, and the URL with that role.
async fn user(schema: &Schema, suffix: &str) -> (String, String) {
    drop(open(schema).await);
    let (role, url) = role(schema, suffix, "NOSUPERUSER").await;
    let grant = format!(
        "GRANT USAGE ON SCHEMA {{schema}} TO \"{role}\";
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{schema}} TO \"{role}\""
    );
    schema.execute(&grant).await.unwrap();
    (role, url)
}

async fn acquire(store: &Checked<PostgresStore>, owner: &str) -> Acquired {
    let lock = store.acquire(&name("lock"), &name(owner), HOUR).await;
    lock.unwrap()
}

async fn take(store: &Checked<PostgresStore>, owner: &str) -> Fence {
    match acquire(store, owner).await {
        Acquired::Acquired { fence } => fence,
        Acquired::Held(held) => panic!("expected the lock to be free: {held:?}"),
    }
}

async fn renew(store: &Checked<PostgresStore>, owner: &str, fence: Fence) -> Fenced {
    let renewed = store.renew(&name("lock"), &name(owner), fence, HOUR).await;
    renewed.unwrap()
}

/// Asserts that the lock cannot be acquired, and that `by` holds it.
async fn assert_held(store: &Checked<PostgresStore>, by: &str) {
    match acquire(store, "who asks").await {
        Acquired::Held(HeldLock {
            owner, remaining, ..
        }) => {
            assert_eq!(owner, name(by));
            assert_eq!(remaining, HOUR);
        }
        acquired @ Acquired::Acquired { .. } => {
            panic!("expected the lock to be held: {acquired:?}")
        }
    }
}

/// Returns the session that the lock is bound to.
async fn session(schema: &Schema) -> Option<(i32, i64)> {
    let find = "SELECT session_pid, session_start FROM {schema}.locks WHERE name = 'lock'";
    let row = &schema.rows(find).await.unwrap()[0];
    let (pid, start): (Option<i32>, Option<i64>) = (row.get(0), row.get(1));
    assert_eq!(pid.is_some(), start.is_some());
    pid.zip(start)
}

/// Ends sessions, and waits until the server has removed them.
async fn end_sessions(schema: &Schema, which: &str) {
    let ended = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {which}");
    assert!(!schema.rows(&ended).await.unwrap().is_empty());
    let left = format!("SELECT 1 FROM pg_stat_activity WHERE {which}");
    while !schema.rows(&left).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}

async fn end_session(schema: &Schema) {
    let (pid, _) = session(schema).await.unwrap();
    end_sessions(schema, &format!("pid = {pid}")).await;
}

pub(crate) async fn a_lock_whose_session_ended_is_taken_at_once(schema: Arc<Schema>) {
    let (holder, other) = (bound(&schema).await, timed(&schema).await);
    let old = take(&holder, "old").await;
    let lock = name("lock");
    let shown = other.inspect(&lock).await.unwrap().unwrap();
    assert!(!shown.holder_gone);
    end_session(&schema).await;
    let gone = other.inspect(&lock).await.unwrap().unwrap();
    assert!(gone.holder_gone);
    assert_eq!(gone.holder.as_ref().unwrap().owner, name("old"));
    let listed = other.list_locks(None, 9).await.unwrap();
    assert!(listed[0].1.holder_gone);
    // Even a store without the setting takes the lock over: only the holder's setting matters.
    let new = take(&other, "new").await;
    assert!(new > old, "expected {new:?} to be greater than {old:?}");
    assert_eq!(session(&schema).await, None);
    assert_eq!(renew(&holder, "old", old).await, Fenced::Stale);
    let guard = |owner: &str, fence| Guard {
        lock: name("lock"),
        owner: name(owner),
        fence,
    };
    let purge = |guard| {
        let purge = PurgeRequest::new(JobState::Failed, HOUR, 1).guarded(Some(guard));
        let other = &other;
        async move { other.purge(&purge).await.unwrap() }
    };
    assert_eq!(purge(guard("old", old)).await, Guarded::Stale);
    assert_eq!(purge(guard("new", new)).await, Guarded::Done(0));
    assert_held(&holder, "new").await;
}

pub(crate) async fn a_holder_that_closes_its_store_leaves_its_locks_free(schema: Arc<Schema>) {
    let (holder, other) = (bound(&schema).await, timed(&schema).await);
    let old = take(&holder, "old").await;
    let (pid, _) = session(&schema).await.unwrap();
    holder.close().await;
    let left = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid}");
    while !schema.rows(&left).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(take(&other, "new").await > old);
}

pub(crate) async fn a_lock_whose_session_lives_is_kept(schema: Arc<Schema>) {
    let (holder, other) = (bound(&schema).await, bound(&schema).await);
    let fence = take(&holder, "holder").await;
    let first = session(&schema).await;
    assert!(first.is_some());
    assert_held(&other, "holder").await;
    assert_eq!(renew(&holder, "holder", fence).await, Fenced::Applied);
    assert_eq!(session(&schema).await, first);
    assert_held(&other, "holder").await;
    // The owner of the lock continues the same tenure from another store.
    assert_eq!(take(&other, "holder").await, fence);
    let second = session(&schema).await;
    assert!(second.is_some() && second != first);
    // The owner also continues the tenure from a store whose locks end only by expiry, and then
    // from the first store again.
    let other = timed(&schema).await;
    assert_eq!(renew(&other, "holder", fence).await, Fenced::Applied);
    assert_eq!(session(&schema).await, None);
    assert_eq!(renew(&holder, "holder", fence).await, Fenced::Applied);
    assert_eq!(session(&schema).await, first);
    let released = holder.release(&name("lock"), &name("holder"), fence).await;
    assert_eq!(released.unwrap(), Fenced::Applied);
    assert_eq!(session(&schema).await, None);
}

pub(crate) async fn a_lock_that_is_not_bound_ends_by_time_alone(schema: Arc<Schema>) {
    let named = builder(&schema).session_locks(false);
    let named = named.application_name(&schema.name);
    let holder = named.connect().await.unwrap();
    let fence = take(&holder, "holder").await;
    assert_eq!(session(&schema).await, None);
    end_sessions(&schema, &format!("application_name = '{}'", schema.name)).await;
    let other = bound(&schema).await;
    assert_held(&other, "holder").await;
    assert_eq!(renew(&holder, "holder", fence).await, Fenced::Applied);
}

pub(crate) async fn a_holder_that_returns_before_a_candidate_looks_keeps_its_locks(
    schema: Arc<Schema>,
) {
    let (holder, other) = (bound(&schema).await, timed(&schema).await);
    let fence = take(&holder, "holder").await;
    let first = session(&schema).await;
    end_session(&schema).await;
    assert_eq!(renew(&holder, "holder", fence).await, Fenced::Applied);
    let second = session(&schema).await;
    assert!(second.is_some() && second != first);
    assert_held(&other, "holder").await;
    // Any call that reconnects rebinds the lock, and leaves other owners' locks alone.
    end_session(&schema).await;
    let stranger = other.acquire(&name("other lock"), &name("o"), HOUR).await;
    assert!(matches!(stranger.unwrap(), Acquired::Acquired { .. }));
    holder.heartbeat(&heartbeat()).await.unwrap();
    let third = session(&schema).await;
    assert!(third.is_some() && third != second);
    assert_held(&other, "holder").await;
    let others = "SELECT 1 FROM {schema}.locks WHERE session_pid IS NOT NULL";
    assert_eq!(schema.rows(others).await.unwrap().len(), 1);
}

pub(crate) async fn a_lock_outlives_the_planned_end_of_its_connection(schema: Arc<Schema>) {
    let worn = builder(&schema).session_locks(true).max_lifetime(NO_TIME);
    let (holder, other) = (worn.connect().await.unwrap(), timed(&schema).await);
    take(&holder, "holder").await;
    let mut before = session(&schema).await;
    for _ in 0..3 {
        holder.database_time().await.unwrap();
        let now = session(&schema).await;
        assert!(now.is_some() && now != before, "expected a new connection");
        before = now;
        assert_held(&other, "holder").await;
    }
}

pub(crate) async fn an_old_connection_stays_while_it_cannot_be_replaced(schema: Arc<Schema>) {
    let (role, url) = user(&schema, "s").await;
    let holder = PostgresStore::builder(&url)
        .schema(&schema.name)
        .session_locks(true)
        .max_lifetime(NO_TIME);
    let holder = holder.connect().await.unwrap();
    let fence = take(&holder, "holder").await;
    let no_more = format!("ALTER ROLE \"{role}\" CONNECTION LIMIT 0");
    schema.execute(&no_more).await.unwrap();
    let before = session(&schema).await;
    assert_eq!(renew(&holder, "holder", fence).await, Fenced::Applied);
    assert_eq!(session(&schema).await, before);
    holder.close().await;
    drop_role(&schema, &role).await;
}

pub(crate) async fn a_connection_that_opens_slowly_is_not_dropped_half_way(schema: Arc<Schema>) {
    let (holder, other) = (bound(&schema).await, timed(&schema).await);
    take(&holder, "holder").await;
    let first = session(&schema).await;
    end_session(&schema).await;
    // Another transaction locks the row of the lock, so the new connection cannot bind the lock
    // yet. So `inspect` uses a connection for jobs.
    let held_up = "BEGIN; SELECT 1 FROM {schema}.locks FOR UPDATE";
    schema.execute(held_up).await.unwrap();
    let shown = holder.inspect(&name("lock")).await.unwrap();
    assert_eq!(shown.unwrap().holder.unwrap().owner, name("holder"));
    schema.execute("COMMIT").await.unwrap();
    let second = loop {
        match session(&schema).await {
            moved if moved != first => break moved,
            _ => tokio::task::yield_now().await,
        }
    };
    holder.inspect(&name("lock")).await.unwrap();
    assert_held(&other, "holder").await;
    assert_eq!(session(&schema).await, second);
}

pub(crate) async fn a_session_that_cannot_be_seen_counts_as_alive(schema: Arc<Schema>) {
    let holder = bound(&schema).await;
    take(&holder, "holder").await;
    let (role, url) = user(&schema, "v").await;
    let stranger = PostgresStore::builder(&url).schema(&schema.name);
    let stranger = stranger.clock_table("test_clock");
    let stranger = stranger.connect().await.unwrap();
    assert_held(&stranger, "holder").await;
    // Simulates that the server has reused the process id for a newer session.
    let moved = "UPDATE {schema}.locks SET session_start = session_start - 1";
    schema.execute(moved).await.unwrap();
    assert_held(&stranger, "holder").await;
    take(&timed(&schema).await, "who sees it").await;
    // Every role can see that no process with the id of the session exists.
    take(&holder, "who sees it").await;
    end_session(&schema).await;
    take(&stranger, "stranger").await;
    stranger.close().await;
    drop_role(&schema, &role).await;
}

pub(crate) async fn a_candidate_that_waited_for_the_row_sees_the_holders_new_session(
    schema: Arc<Schema>,
) {
    let (holder, other) = (bound(&schema).await, timed(&schema).await);
    take(&holder, "holder").await;
    end_session(&schema).await;
    let held_up = "BEGIN; SELECT 1 FROM {schema}.locks FOR UPDATE";
    schema.execute(held_up).await.unwrap();
    let asking = tokio::spawn({
        let other = other.clone();
        async move { assert_held(&other, "holder").await }
    });
    let waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND pid IN (
                       SELECT pid FROM pg_locks WHERE relation = '{schema}.locks'::regclass)";
    while schema.rows(waiting).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    // The holder reconnects, with a session that began after the candidate's statement.
    let mut back = PgConnection::connect(&schema.url).await.unwrap();
    let pid: i32 = back
        .fetch_one("SELECT pg_backend_pid()")
        .await
        .unwrap()
        .get(0);
    let bind = format!(
        "UPDATE {{schema}}.locks SET (session_pid, session_start) = (
             SELECT pid, floor(extract(epoch FROM backend_start) * 1000000)::bigint
             FROM pg_stat_get_activity({pid})
         );
         COMMIT"
    );
    schema.execute(&bind).await.unwrap();
    asking.await.unwrap();
    assert_eq!(session(&schema).await.map(|(pid, _)| pid), Some(pid));
}

pub(crate) async fn a_candidate_with_a_takeover_delay_leaves_it_to_the_others(schema: Arc<Schema>) {
    let (holder, other) = (bound(&schema).await, bound(&schema).await);
    let candidate = |store: &Checked<PostgresStore>| {
        let store: SharedStore = Arc::new(store.clone());
        Election::new(store, &name("role"), LeaderTimings::default()).unwrap()
    };
    let mut leader = candidate(&holder);
    let me = NodeId::new();
    let ElectionOutcome::Elected(term) = leader.turn(me).await.unwrap() else {
        panic!("expected the only candidate to become leader");
    };
    let pids = "SELECT session_pid FROM {schema}.locks";
    let pid: i32 = schema.rows(pids).await.unwrap()[0].get(0);
    end_sessions(&schema, &format!("pid = {pid}")).await;
    let mut late = candidate(&other).takeover_delay(Duration::from_secs(1));
    let outcome = late.turn(NodeId::new()).await.unwrap();
    assert!(
        matches!(outcome, ElectionOutcome::OtherLeader { .. }),
        "{outcome:?}"
    );
    let mut early = candidate(&other);
    let outcome = early.turn(NodeId::new()).await.unwrap();
    assert!(
        matches!(outcome, ElectionOutcome::Elected(next) if next > term),
        "{outcome:?}"
    );
    // The old leader learns of the takeover at its next turn; until then it uses a stale guard.
    assert!(leader.leadership().is_leader());
    let guard = leader.leadership().guard();
    let purge = PurgeRequest::new(JobState::Failed, HOUR, 1).guarded(guard);
    assert_eq!(holder.purge(&purge).await.unwrap(), Guarded::Stale);
    assert_eq!(leader.turn(me).await.unwrap(), ElectionOutcome::Conflict);
    assert!(!leader.leadership().is_leader());
}

/// A pooler with one connection to the server, which its clients use one after the other.
struct Pooler {
    url: String,
}

/// The message that ends a session.
const TERMINATE: &[u8] = b"X\0\0\0\x04";
/// The request for encryption, which this pooler refuses.
const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
/// The server's message that it is ready for a query, outside of a transaction.
const READY: &[u8] = b"Z\0\0\0\x05I";
/// The server's message that authentication succeeded.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0";

impl Pooler {
    async fn start(server: &str) -> Self {
        let (scheme, rest) = server.split_once("://").unwrap();
        let (authority, database) = rest.split_once('/').unwrap();
        let (user, host) = authority.rsplit_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let host = host.to_owned();
        tokio::spawn(async move {
            let mut server = TcpStream::connect(host).await.unwrap();
            // The server's greeting to the first client is replayed to the others.
            let mut greeting = Vec::new();
            while let Ok((mut client, _)) = listener.accept().await {
                serve(&mut client, &mut server, &mut greeting).await;
            }
        });
        // The URL sets a `statement_timeout`, so a store opens no extra connection to look for one.
        let separator = if database.contains('?') { '&' } else { '?' };
        Self {
            url: format!(
                "{scheme}://{user}@{here}/{database}{separator}options=-c%20statement_timeout=9000"
            ),
        }
    }
}

/// Serves one client until it ends, and then resets the session.
async fn serve(client: &mut TcpStream, server: &mut TcpStream, greeting: &mut Vec<u8>) {
    let (mut asked, mut answered) = (vec![0; 8192], vec![0; 8192]);
    let mut length = client.read(&mut asked).await.unwrap();
    if &asked[..length] == SSL_REQUEST {
        client.write_all(b"N").await.unwrap();
        length = client.read(&mut asked).await.unwrap();
    }
    let known = !greeting.is_empty();
    if known {
        // The client may have disconnected while it waited for its turn.
        if client.write_all(greeting).await.is_err() {
            return;
        }
    } else {
        server.write_all(&asked[..length]).await.unwrap();
    }
    let mut heard = Vec::new();
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let read = read.unwrap_or(0);
                let asked = &asked[..read];
                let (asked, ends) = match asked.strip_suffix(TERMINATE) {
                    Some(before) => (before, true),
                    None => (asked, asked.is_empty()),
                };
                server.write_all(asked).await.unwrap();
                if ends {
                    break;
                }
            }
            read = server.read(&mut answered) => {
                let answered = &answered[..read.unwrap()];
                assert!(!answered.is_empty(), "expected more bytes, but the server closed the \
                    connection");
                if !known && greeting.is_empty() {
                    heard.extend_from_slice(answered);
                    let welcome = heard.windows(WELCOME.len()).position(|part| part == WELCOME);
                    if let Some(welcome) = welcome && heard.ends_with(READY) {
                        greeting.extend_from_slice(&heard[welcome..]);
                    }
                }
                // The client may have disconnected.
                let _ = client.write_all(answered).await;
            }
        }
    }
    server.write_all(b"Q\0\0\0\x10DISCARD ALL\0").await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(READY) {
        let read = server.read(&mut answered).await.unwrap();
        assert!(
            read > 0,
            "expected more bytes, but the server closed the connection"
        );
        said.extend_from_slice(&answered[..read]);
    }
}

pub(crate) async fn a_session_that_is_a_poolers_is_refused(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let imitated = Pooler::start(&schema.url).await.url;
    let real = server::pooler();
    for pooler in [Some(imitated), real].into_iter().flatten() {
        let through = || PostgresStore::builder(&pooler).schema(&schema.name);
        let refused = through().session_locks(true).connect().await.unwrap_err();
        assert_kind(&refused, StoreErrorKind::Misconfigured);
        assert!(refused.to_string().contains("`direct`"), "{refused}");
        assert!(refused.to_string().contains("session_locks"), "{refused}");
        let timed = through().session_locks(false).connect().await;
        timed.unwrap().close().await;
        // Connecting also fails if `direct` leads to a pooler.
        let pool = PostgresStore::builder(&schema.url).direct(&pooler);
        let pool = pool.schema(&schema.name).session_locks(true);
        assert_kind(
            &pool.connect().await.unwrap_err(),
            StoreErrorKind::Misconfigured,
        );
    }
    if let Some(pooler) = server::pooler() {
        let past = PostgresStore::builder(&pooler).direct(&schema.url);
        let past = past.schema(&schema.name).session_locks(true);
        take(&past.connect().await.unwrap(), "holder").await;
        assert!(session(&schema).await.is_some());
    }
}

pub(crate) async fn a_role_that_cannot_see_its_own_session_is_refused(schema: Arc<Schema>) {
    let (role, _) = user(&schema, "o").await;
    let separator = if schema.url.contains('?') { '&' } else { '?' };
    // The connection logs in as one role and runs statements as another.
    let url = format!("{}{separator}options=-c%20role={role}", schema.url);
    let through = || PostgresStore::builder(&url).schema(&schema.name);
    let timed = through().session_locks(false).connect().await;
    timed.unwrap().close().await;
    let refused = through().session_locks(true).connect().await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Misconfigured);
    assert!(
        refused.to_string().contains("pg_read_all_stats"),
        "{refused}"
    );
    let remedy = format!("GRANT pg_read_all_stats TO \"{role}\"");
    schema.execute(&remedy).await.unwrap();
    let store = through().session_locks(true).connect().await.unwrap();
    take(&store, "holder").await;
    assert!(session(&schema).await.is_some());
    store.close().await;
    drop_role(&schema, &role).await;
}
