//! Jobs in transactions of the application.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::Vandal as _;
use ratchet_conformance::kit::{assert_kind, enqueue, exists, job, request_all};
use ratchet_core::model::{ClaimedJob, Detail, Enqueued, JobSelector, Report, ReportKind};
use ratchet_core::store::{JobStore, Store, WorkflowStore};
use ratchet_core::{
    BatchId, Condition, JobAction, JobState, NewJob, OnConflict, Ratchet, StoreErrorKind,
};
use ratchet_store_mysql::MysqlStore;
use sqlx::mysql::{MySqlConnection, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Row};

use crate::open;
use crate::server::Database;

async fn application(database: &Database) -> MySqlConnection {
    MySqlConnection::connect(&database.url).await.unwrap()
}

async fn run(connection: &mut MySqlConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}

/// Returns a new job with the unique key `u` that changes the holder of the key.
fn conflicting(number: u32, how: OnConflict) -> NewJob {
    NewJob::new("kind", &number)
        .unique_key("u")
        .on_conflict(how)
}

pub(crate) async fn the_holder_of_a_key_changes_with_the_transaction(database: Arc<Database>) {
    let store = open(&database).await;
    let mut application = application(&database).await;
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

pub(crate) async fn a_holder_that_was_claimed_after_the_snapshot_runs(database: Arc<Database>) {
    let store = open(&database).await;
    let mut application = application(&database).await;
    let holder = enqueue(&store, NewJob::new("kind", &1).unique_key("u")).await;
    let mut tx = application.begin().await.unwrap();
    run(&mut tx, "SELECT COUNT(*) FROM ratchet_jobs").await;
    store.claim_next_batch(&request_all()).await.unwrap();
    let new = [conflicting(2, OnConflict::Replace)];
    let enqueued = store.enqueue_in(&mut tx, &new).await.unwrap();
    assert_eq!(enqueued, [Enqueued::Created(new[0].id())]);
    tx.commit().await.unwrap();
    let stored = store.get(&[holder], Detail::Whole).await.unwrap();
    assert_eq!(stored[0].as_ref().unwrap().spec.payload.as_str(), "1");
}

pub(crate) async fn keys_lost_to_others_leave_the_transaction_usable(database: Arc<Database>) {
    let store = open(&database).await;
    let first = enqueue(&store, job().unique_key("u")).await;
    let mut application = application(&database).await;
    let mut tx = application.begin().await.unwrap();
    let jobs = [job().unique_key("u"), job().unique_key("v")];
    let enqueued = store.enqueue_in(&mut tx, &jobs).await.unwrap();
    let second = Enqueued::Created(jobs[1].id());
    assert_eq!(enqueued, [Enqueued::Duplicate(first), second]);
    // A concurrent enqueue with the same key waits for this transaction.
    let other = tokio::spawn({
        let store = store.clone();
        async move { store.enqueue(&[job().unique_key("v")]).await.unwrap() }
    });
    database.until_a_call_waits().await;
    tx.commit().await.unwrap();
    assert_eq!(other.await.unwrap(), [Enqueued::Duplicate(jobs[1].id())]);
    // In the opposite case, the transaction waits for a rival, loses the race, and continues. With
    // READ COMMITTED, it sees the rival's key.
    run(
        &mut application,
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )
    .await;
    let mut rival = MySqlConnection::connect(&database.url).await.unwrap();
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
    database.until_a_call_waits().await;
    first.commit().await.unwrap();
    let (lost, more) = loser.await.unwrap();
    assert_eq!(lost, [Enqueued::Duplicate(won)]);
    assert!(exists(&store, more[0].id()).await);
}

pub(crate) async fn jobs_need_a_transaction(database: Arc<Database>) {
    let store = open(&database).await;
    let mut application = application(&database).await;
    for job in [job().unique_key("u"), job()] {
        let id = job.id();
        let refused = store.enqueue_in(&mut application, &[job]).await;
        assert_kind(&refused.unwrap_err(), StoreErrorKind::Misconfigured);
        assert!(!exists(&store, id).await);
    }
    let refused = store.enqueue_in(&mut application, &[job().queue("")]).await;
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Invalid);
}

pub(crate) async fn a_closed_store_refuses(database: Arc<Database>) {
    let store = open(&database).await;
    store.close().await;
    store.close().await;
    let mut application = application(&database).await;
    let mut tx = application.begin().await.unwrap();
    let refused = store
        .enqueue_in(&mut tx, &[job().queue("never seen")])
        .await;
    assert_kind(&refused.unwrap_err(), StoreErrorKind::Unavailable);
    tx.commit().await.unwrap();
    let connected = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}'",
        database.name
    );
    // Only the connection of the application remains.
    while database.number(&connected).await.unwrap() > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn a_session_with_other_settings_works(database: Arc<Database>) {
    let store = open(&database).await;
    let mut application = application(&database).await;
    run(
        &mut application,
        "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT',
         group_concat_max_len = 4, time_zone = '+07:00', character_set_client = latin1,
         collation_connection = latin1_swedish_ci, sql_safe_updates = 1;
         SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    )
    .await;
    let (ended, batch) = (enqueue(&store, job()).await, BatchId::new());
    let selected = JobSelector::Ids(vec![ended]);
    store.act(&selected, JobAction::Cancel).await.unwrap();
    store.create_batch(batch).await.unwrap();
    let text = "it's \\' \"x\" ü🦀";
    let mut tx = application.begin().await.unwrap();
    let mut jobs = Vec::new();
    for lane in 0..3 {
        jobs.push(
            job()
                .lane(&format!("{text} {lane}"))
                .tag(text)
                .unique_key(&lane.to_string()),
        );
    }
    jobs.push(job().in_batch(batch).after(ended, Condition::Ended));
    store.enqueue_in(&mut tx, &jobs).await.unwrap();
    let settings = "SELECT @@SESSION.group_concat_max_len, @@SESSION.sql_safe_updates + 0";
    let settings = sqlx::query(settings).fetch_one(&mut *tx).await.unwrap();
    assert_eq!(settings.get::<u64, _>(0), 4);
    assert_eq!(settings.get::<i64, _>(1), 1);
    tx.commit().await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed.len(), 4);
    let lane = claimed[2].claim.lane.as_ref().unwrap();
    assert_eq!(lane.as_str(), format!("{text} 2"));
}

pub(crate) async fn the_pool_of_the_application_keeps_its_settings(database: Arc<Database>) {
    let pool = MySqlPoolOptions::new()
        .max_connections(1)
        .after_connect(|connection, _| {
            Box::pin(async move {
                let set = "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES',
                           group_concat_max_len = 5, innodb_lock_wait_timeout = 33,
                           character_set_results = latin1, sql_safe_updates = 1
                           /*M!100600 , in_predicate_conversion_threshold = 7 */";
                sqlx::raw_sql(set).execute(connection).await.map(drop)
            })
        })
        .connect(&database.url)
        .await
        .unwrap();
    let store = MysqlStore::pool_builder(pool.clone())
        .connect()
        .await
        .unwrap();
    let text = "it's \\' \"x\" ü🦀";
    // Records what the statements of the store see.
    let seen = "CREATE TABLE {database}.seen (settings VARCHAR(99));
                CREATE TRIGGER {database}.see BEFORE INSERT ON {database}.ratchet_jobs FOR EACH ROW
                    INSERT INTO seen VALUES (CONCAT_WS(' ', @@SESSION.character_set_results,
                        @@SESSION.sql_safe_updates + 0
                        /*M!100600 , @@SESSION.in_predicate_conversion_threshold */))";
    database.execute(seen).await.unwrap();
    let jobs = [
        job().lane(text),
        job().lane(text),
        job().unique_key(text),
        job(),
    ];
    store.enqueue(&jobs).await.unwrap();
    assert!(
        store
            .enqueue(&[job().queue("q"), jobs[3].clone()])
            .await
            .is_ok()
    );
    let seen = "SELECT DISTINCT settings FROM {database}.seen";
    let seen = database.rows(seen).await.unwrap();
    let seen: Vec<String> = seen.iter().map(|row| row.get(0)).collect();
    assert!(
        matches!(&*seen.join(","), "utf8mb4 0" | "utf8mb4 0 0"),
        "{seen:?}"
    );
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let lanes = claimed.iter().filter_map(|job| job.claim.lane.as_ref());
    assert_eq!(lanes.map(|lane| lane.as_str()).collect::<Vec<_>>(), [text]);
    let ends: Vec<_> = claimed
        .iter()
        .map(|job| {
            let outcome = ratchet_core::model::Outcome::Succeeded { result: None };
            ratchet_core::model::Settlement::new(job.claim.token, outcome)
        })
        .collect();
    store.settle(&ends).await.unwrap();
    // A call that gives up waiting for a lock restores the settings too.
    enqueue(&store, job()).await;
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let mut other = MySqlConnection::connect(&database.url).await.unwrap();
    let lock = "BEGIN; SELECT id FROM ratchet_jobs FOR UPDATE";
    sqlx::raw_sql(lock).fetch_all(&mut other).await.unwrap();
    let report = Report::new(claimed[0].claim.token, ReportKind::Alive);
    store.report(&[report]).await.unwrap_err();
    other.close().await.unwrap();
    let settings = "SELECT CONCAT_WS(' ', @@SESSION.sql_mode, @@SESSION.group_concat_max_len,
                    @@SESSION.innodb_lock_wait_timeout, @@SESSION.character_set_results,
                    @@SESSION.sql_safe_updates + 0
                    /*M!100600 , @@SESSION.in_predicate_conversion_threshold */)";
    let settings = sqlx::raw_sql(AssertSqlSafe(settings));
    let settings: String = settings.fetch_one(&pool).await.unwrap().get(0);
    assert!(settings.contains("NO_BACKSLASH_ESCAPES"), "{settings}");
    let kept = [" 5 33 latin1 1", " 5 33 latin1 1 7"];
    assert!(
        kept.iter().any(|kept| settings.ends_with(kept)),
        "{settings}"
    );
    let isolation = "SHOW SESSION VARIABLES LIKE '%t%x_isolation'";
    for row in sqlx::raw_sql(isolation).fetch_all(&pool).await.unwrap() {
        assert_eq!(row.get::<String, _>(1), "REPEATABLE-READ");
    }
    store.close().await;
    assert!(pool.is_closed());
}

pub(crate) async fn a_client_enqueues_in_transactions(database: Arc<Database>) {
    let store = open(&database).await;
    let client = Ratchet::client(Arc::new(store.clone()));
    let mut application = application(&database).await;
    let mut tx = application.begin().await.unwrap();
    let one = client.enqueue_in(&mut tx, job()).await.unwrap();
    let two = client.enqueue_in(&mut *tx, job()).await.unwrap();
    assert!(!exists(&store, one.id()).await);
    tx.commit().await.unwrap();
    assert!(exists(&store, one.id()).await && exists(&store, two.id()).await);
}

pub(crate) async fn cached_routes_that_were_lost_are_not_used(database: Arc<Database>) {
    let pool = MySqlPoolOptions::new().max_connections(2);
    let pool = pool.connect(&database.url).await.unwrap();
    let store = MysqlStore::pool_builder(pool).connect().await.unwrap();
    let of = |kind| NewJob::new(kind, &1);
    for mine in [of("mine"), of("mine").unique_key("key")] {
        store.enqueue(&[of("first"), of("mine")]).await.unwrap();
        database.lose_routes().await.unwrap();
        let fresh = open(&database).await;
        let ids = [enqueue(&fresh, of("other")).await, mine.id()];
        let mut application = application(&database).await;
        let mut tx = application.begin().await.unwrap();
        store.enqueue_in(&mut tx, &[mine]).await.unwrap();
        tx.commit().await.unwrap();
        let stored = fresh.get(&ids, Detail::Outline).await.unwrap();
        let kinds = stored.iter().flatten().map(|job| &job.spec.route.kind);
        assert!(kinds.eq(["other", "mine"]));
    }
}

pub(crate) async fn a_deadlock_leaves_the_settings_of_the_session(database: Arc<Database>) {
    let store = open(&database).await;
    let (mut one, mut other) = (application(&database).await, application(&database).await);
    for (application, key) in [(&mut one, "a"), (&mut other, "b")] {
        let set = "SET SESSION sql_safe_updates = 1, group_concat_max_len = 5; BEGIN";
        run(application, set).await;
        let stored = store.enqueue_in(application, &[job().unique_key(key)]);
        stored.await.unwrap();
    }
    let waiting = tokio::spawn({
        let store = store.clone();
        async move {
            let stored = store.enqueue_in(&mut one, &[job().unique_key("b")]).await;
            (one, stored)
        }
    });
    database.until_a_call_waits().await;
    let stored = store.enqueue_in(&mut other, &[job().unique_key("a")]).await;
    let (one, waited) = waiting.await.unwrap();
    let failed = waited.err().or(stored.err()).unwrap();
    assert_kind(&failed, StoreErrorKind::Contention);
    for mut application in [one, other] {
        let settings = "SELECT @@SESSION.sql_safe_updates + 0, @@SESSION.group_concat_max_len";
        let settings = sqlx::query(settings).fetch_one(&mut application);
        let settings = settings.await.unwrap();
        let settings: (i64, u64) = (settings.get(0), settings.get(1));
        assert_eq!(settings, (1, 5));
    }
}
