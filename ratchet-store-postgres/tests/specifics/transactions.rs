//! Jobs in transactions of the application.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::Vandal as _;
use ratchet_conformance::kit::{assert_kind, enqueue, exists, job, request_all};
use ratchet_core::cluster::{JobWakeups, Wakeup, WakeupStream};
use ratchet_core::model::{ClaimedJob, Detail, Enqueued};
use ratchet_core::store::{AppTransaction, Checked, JobStore, Store, TransactionStore};
use ratchet_core::{
    Condition, Job, JobContext, JobResult, JobState, NewJob, OnConflict, Ratchet, StoreErrorKind,
    Wakes,
};
use ratchet_sql::JOB_TABLES;
use ratchet_store_postgres::PostgresStore;
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{Connection, Row};

use crate::open;
use crate::server::{self, Schema};

async fn application(schema: &Schema) -> PgConnection {
    PgConnection::connect(&schema.url).await.unwrap()
}

async fn comes(wakeups: &mut WakeupStream) -> bool {
    tokio::time::timeout(Duration::from_millis(500), wakeups.next())
        .await
        .is_ok()
}

/// Returns a subscription that has already received a wakeup.
async fn listening(store: &Checked<PostgresStore>) -> WakeupStream {
    let coordinator = store.coordinator().unwrap();
    let mut wakeups = coordinator.subscribe();
    let queue = ratchet_core::Name::new("queue", "probe").unwrap();
    loop {
        coordinator.notify(Wakeup::queue(queue.clone())).await;
        if comes(&mut wakeups).await {
            // Reads the probes that are still in flight.
            while comes(&mut wakeups).await {}
            return wakeups;
        }
    }
}

pub(crate) async fn a_rollback_leaves_neither_rows_nor_wakeups(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut wakeups = listening(&store).await;
    let mut application = application(&schema).await;
    let mut tx = application.begin().await.unwrap();
    let jobs = [job(), job().unique_key("u").idempotency_key("i")];
    let enqueued = store.enqueue_in(&mut tx, &jobs).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(!comes(&mut wakeups).await);
    for job in enqueued {
        assert!(!exists(&store, job.id()).await);
    }
    for table in JOB_TABLES.iter().chain(&["idempotency_keys"]) {
        let count = format!("SELECT count(*) FROM {{schema}}.{table}");
        let rows = schema.rows(&count).await.unwrap();
        assert_eq!(rows[0].get::<i64, _>(0), 0, "{table}");
    }
}

pub(crate) async fn a_commit_brings_both(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut wakeups = listening(&store).await;
    let mut application = application(&schema).await;
    let mut tx = application.begin().await.unwrap();
    let jobs = [job(), job(), job().delay(Duration::from_secs(60))];
    let enqueued = store.enqueue_in(&mut tx, &jobs).await.unwrap();
    assert!(!exists(&store, enqueued[0].id()).await);
    assert!(
        !comes(&mut wakeups).await,
        "expected no wakeup before the commit"
    );
    tx.commit().await.unwrap();
    let wakeup = wakeups.next().await;
    assert_eq!(wakeup.queue.unwrap(), "default");
    assert!(
        !comes(&mut wakeups).await,
        "expected only one wakeup for the queue"
    );
    for job in enqueued {
        assert!(exists(&store, job.id()).await);
    }
    let mut tx = application.begin().await.unwrap();
    store
        .enqueue_on(tx.connection(), vec![job()], JobWakeups::none())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert!(
        !comes(&mut wakeups).await,
        "expected no wakeup from the client for this enqueue"
    );
}

pub(crate) async fn keys_lost_to_others_leave_the_transaction_usable(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let first = enqueue(&store, job().unique_key("u")).await;
    let mut application = application(&schema).await;
    let mut tx = application.begin().await.unwrap();
    let jobs = [job().unique_key("u"), job().unique_key("v")];
    let enqueued = store.enqueue_in(&mut tx, &jobs).await.unwrap();
    let second = Enqueued::Created(jobs[1].id());
    assert_eq!(enqueued, [Enqueued::Duplicate(first), second]);
    // A concurrent enqueue with the same key waits for this transaction.
    let other = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .jobs()
                .enqueue(&[job().unique_key("v")])
                .await
                .unwrap()
        }
    });
    schema.until_a_call_waits().await;
    tx.commit().await.unwrap();
    assert_eq!(other.await.unwrap(), [Enqueued::Duplicate(jobs[1].id())]);

    // In the opposite case, the transaction waits for a rival, loses the race, and continues.
    let mut rival = PgConnection::connect(&schema.url).await.unwrap();
    let mut first = rival.begin().await.unwrap();
    let winner = job().unique_key("w");
    let won = winner.id();
    store.enqueue_in(&mut first, &[winner]).await.unwrap();
    let loser = tokio::spawn({
        let store = store.clone();
        async move {
            let mut tx = application.begin().await.unwrap();
            let lost = store.enqueue_in(&mut tx, &[job().unique_key("w")]).await;
            let more = store.enqueue_in(&mut tx, &[job()]).await.unwrap();
            tx.commit().await.unwrap();
            (lost.unwrap(), more)
        }
    });
    schema.until_a_call_waits().await;
    first.commit().await.unwrap();
    let (lost, more) = loser.await.unwrap();
    assert_eq!(lost, [Enqueued::Duplicate(won)]);
    assert!(exists(&store, more[0].id()).await);
}

/// Returns a new job with the unique key `u` that changes the holder of the key.
fn conflicting(number: u32, how: OnConflict) -> NewJob {
    NewJob::new("kind", &number)
        .unique_key("u")
        .on_conflict(how)
}

pub(crate) async fn the_holder_of_a_key_changes_with_the_transaction(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut application = application(&schema).await;
    let holder = enqueue(&store, NewJob::new("kind", &1).unique_key("u")).await;
    let replaces = |number| [conflicting(number, OnConflict::Replace)];
    let mut tx = application.begin().await.unwrap();
    let enqueued = store.enqueue_in(&mut tx, &replaces(2)).await.unwrap();
    assert_eq!(enqueued, [Enqueued::Replaced(holder)]);
    // No claim waits for the transaction, and none starts the job with either payload.
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert!(claimed.is_empty(), "{claimed:?}");
    tx.rollback().await.unwrap();
    let mut tx = application.begin().await.unwrap();
    store.enqueue_in(&mut tx, &replaces(3)).await.unwrap();
    tx.commit().await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let payload = |job: &ClaimedJob| job.input.as_ref().unwrap().payload.as_str().to_owned();
    assert_eq!(claimed.iter().map(payload).collect::<Vec<_>>(), ["3"]);

    let restart = [conflicting(4, OnConflict::Restart)];
    let mut tx = application.begin().await.unwrap();
    let enqueued = store.enqueue_in(&mut tx, &restart).await.unwrap();
    assert_eq!(enqueued, [Enqueued::Created(restart[0].id())]);
    tx.commit().await.unwrap();
    let jobs = [holder, restart[0].id()];
    let [running, new] = &store.get(&jobs, Detail::Outline).await.unwrap()[..] else {
        panic!("expected two jobs");
    };
    let (running, new) = (running.as_ref().unwrap(), new.as_ref().unwrap());
    assert!(running.cancel_requested && running.spec.unique_key.is_none());
    assert_eq!(new.state, JobState::Blocked);
}

pub(crate) async fn jobs_with_keys_lanes_or_links_need_a_transaction(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut application = application(&schema).await;
    let parent = enqueue(&store, job()).await;
    let linked = job().after(parent, Condition::Ended);
    for job in [job().unique_key("u"), job().lane("l"), linked] {
        let refused = store.enqueue_in(&mut application, &[job]).await;
        assert_kind(&refused.unwrap_err(), StoreErrorKind::Misconfigured);
    }
    let refused = store.enqueue_in(&mut application, &[job().queue("")]).await;
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Invalid);
}

pub(crate) async fn a_closed_store_refuses_and_connects_no_more(schema: Arc<Schema>) {
    let store = schema.builder().application_name(&schema.name);
    let store = store.connect().await.unwrap();
    store.close().await;
    let connected = format!(
        "SELECT 1 FROM pg_stat_activity WHERE application_name = '{}'",
        schema.name
    );
    let gone = async {
        while !schema.rows(&connected).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // A pooler keeps its connections open, under the same name.
    if server::pooler().is_none() {
        gone.await;
    }
    let before = schema.rows(&connected).await.unwrap().len();
    let mut application = application(&schema).await;
    let mut tx = application.begin().await.unwrap();
    // A queue that would need a new route.
    let new = [job().queue("never seen")];
    for refused in [
        store.enqueue_in(&mut tx, &new).await,
        store
            .enqueue_on(tx.connection(), new.to_vec(), JobWakeups::none())
            .await,
    ] {
        assert_kind(&refused.unwrap_err(), StoreErrorKind::Unavailable);
    }
    assert_eq!(schema.rows(&connected).await.unwrap().len(), before);
    tx.commit().await.unwrap();
}

pub(crate) async fn closing_again_is_silent(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let coordinator = store.coordinator().unwrap();
    let mut wakeups = listening(&store).await;
    for _ in 0..2 {
        store.close().await;
        coordinator.notify(Wakeup::any()).await;
        assert!(
            !comes(&mut wakeups).await,
            "expected no wakeup after the store was closed"
        );
        assert!(!comes(&mut coordinator.subscribe()).await);
    }
}

pub(crate) async fn without_wakeups_no_node_is_woken(schema: Arc<Schema>) {
    let quiet = schema.builder().wakeups(false).connect().await.unwrap();
    let store = open(&schema).await;
    let mut wakeups = listening(&store).await;
    let mut application = application(&schema).await;
    for (store, queue) in [(&quiet, "quiet"), (&store, "loud")] {
        let mut tx = application.begin().await.unwrap();
        store
            .enqueue_in(&mut tx, &[job().queue(queue)])
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }
    // Wakeups arrive in the order of the commits.
    assert_eq!(wakeups.next().await.queue.unwrap(), "loud");
}

pub(crate) async fn an_enqueue_that_meets_its_deadline_is_taken_back(schema: Arc<Schema>) {
    // The test advances the clock, so that it does not depend on the server's speed.
    let on_a_settable_clock = move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(meet_the_deadline(&schema));
    };
    tokio::task::spawn_blocking(on_a_settable_clock)
        .await
        .unwrap();
}

async fn meet_the_deadline(schema: &Schema) {
    let store = open(schema).await;
    // Makes the store open a connection and cache the routes.
    enqueue(&store, job()).await;
    assert_ne!(store.connections(), Some(0));
    let lock = "BEGIN; LOCK TABLE {schema}.signals IN ACCESS EXCLUSIVE MODE";
    schema.execute(lock).await.unwrap();
    let mut application = application(schema).await;
    let held_up = job().wait_for("paid", Duration::from_secs(60));
    let id = held_up.id();
    let enqueued = tokio::spawn({
        let store = store.clone();
        async move {
            let mut tx = application.begin().await.unwrap();
            let failed = store.enqueue_in(&mut tx, &[held_up]).await.unwrap_err();
            tx.commit().await.unwrap();
            failed
        }
    });
    schema.until_a_call_waits().await;
    // A blocking task keeps the paused clock from advancing automatically.
    let (go_on, waiting) = std::sync::mpsc::channel::<()>();
    let blocking = tokio::task::spawn_blocking(move || waiting.recv());
    tokio::time::pause();
    tokio::time::advance(store.call_policy().deadline).await;
    // The store drops its idle connections at the deadline.
    while store.connections() != Some(0) {
        tokio::task::yield_now().await;
    }
    schema.execute("COMMIT").await.unwrap();
    assert_kind(&enqueued.await.unwrap(), StoreErrorKind::Timeout);
    tokio::time::resume();
    go_on.send(()).unwrap();
    blocking.await.unwrap().unwrap();
    assert!(!exists(&store, id).await);
}

#[derive(Deserialize, Serialize)]
struct Nothing;

impl Job for Nothing {
    const KIND: &'static str = "nothing";
    type Output = ();

    async fn run(self, _: JobContext) -> JobResult<()> {
        Ok(())
    }
}

pub(crate) async fn a_node_with_an_idle_interval_finds_what_was_committed(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let node = Ratchet::builder(Arc::new(store.clone()))
        .register::<Nothing>()
        .idle_interval(Duration::from_secs(3_600))
        .build()
        .unwrap();
    let client = node.client().clone();
    let ended = async |id| {
        while !client.job(id).await.unwrap().unwrap().state.is_terminal() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let node = Arc::new(node);
    let running = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.run().await }
    });
    let before = client.enqueue(Nothing.into_job()).await.unwrap();
    ended(before.id()).await;
    // Waits until the node has stopped polling. The pause between its polls grows to 1 s, and then
    // to an hour.
    let mut polls = 0;
    while polls != node.stats().claim_calls {
        polls = node.stats().claim_calls;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let mut application = application(&schema).await;
    for delay in [0, 3_600] {
        let mut tx = application.begin().await.unwrap();
        let job = Nothing.into_job().delay(Duration::from_millis(delay));
        let job = client.enqueue_in(&mut tx, job).await.unwrap();
        tx.commit().await.unwrap();
        ended(job.id()).await;
    }
    running.abort();
}

pub(crate) async fn a_client_enqueues_in_transactions(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let client = Ratchet::client(Arc::new(store.clone()));
    let mut application = application(&schema).await;
    let mut tx = application.begin().await.unwrap();
    let one = client.enqueue_in(&mut tx, job()).await.unwrap();
    let two = client.enqueue_in(&mut *tx, job()).await.unwrap();
    assert!(!exists(&store, one.id()).await);
    tx.commit().await.unwrap();
    assert!(exists(&store, one.id()).await && exists(&store, two.id()).await);
    let mut wakeups = listening(&store).await;
    let quiet = client.with_wakes(Wakes::Never);
    for (client, queue) in [(&quiet, "quiet"), (&client, "loud")] {
        let mut tx = application.begin().await.unwrap();
        let job = job().queue(queue);
        client.enqueue_in(&mut tx, job).await.unwrap();
        tx.commit().await.unwrap();
    }
    // Wakeups arrive in the order of the commits.
    assert_eq!(wakeups.next().await.queue.unwrap(), "loud");
}

pub(crate) async fn cached_routes_that_were_lost_are_not_used(schema: Arc<Schema>) {
    let pool = PgPoolOptions::new().max_connections(2);
    let pool = pool.connect(&schema.url).await.unwrap();
    let store = PostgresStore::pool_builder(pool)
        .schema(&schema.name)
        .connect()
        .await
        .unwrap();
    let of = |kind| NewJob::new(kind, &1);
    for mine in [of("mine"), of("mine").unique_key("key")] {
        store.enqueue(&[of("first"), of("mine")]).await.unwrap();
        schema.lose_routes().await.unwrap();
        let fresh = open(&schema).await;
        let ids = [enqueue(&fresh, of("other")).await, mine.id()];
        let mut application = application(&schema).await;
        let mut tx = application.begin().await.unwrap();
        store.enqueue_in(&mut tx, &[mine]).await.unwrap();
        tx.commit().await.unwrap();
        let stored = fresh.get(&ids, Detail::Outline).await.unwrap();
        let kinds = stored.iter().flatten().map(|job| &job.spec.route.kind);
        assert!(kinds.eq(["other", "mine"]));
    }
}
