//! Servers that, after a failover or a restore, lack routes that a process has cached, or use their
//! ids for other routes.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, job, name, request_all};
use ratchet_core::model::{
    Claim, Detail, JobFilter, PageRequest, PutRecurring, Recurring, RecurringClaimRequest,
};
use ratchet_core::store::{Checked, DiagnosticStore, JobStore, QueueStore, RecurringStore};
use ratchet_core::{NewJob, NodeId, Selection, StoreErrorKind};
use ratchet_store_postgres::PostgresStore;
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{Connection, Row};

use crate::open;
use crate::server::Schema;

/// How the route of the kind `mine` was lost.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Gone,
    /// The id of the route now belongs to the route of another kind.
    Taken,
}

/// Returns a job of this kind.
fn of(kind: &str) -> NewJob {
    NewJob::new(kind, &1)
}

/// Makes a store read the routes `first` and `mine`, and then makes the database lose `mine`.
async fn lose(schema: &Schema, store: &Checked<PostgresStore>, lost: Lost) {
    for kind in ["first", "mine"] {
        enqueue(store, of(kind)).await;
    }
    lose_mine(schema, lost).await;
}

async fn lose_mine(schema: &Schema, lost: Lost) {
    let clear = "DELETE FROM {schema}.jobs; DELETE FROM {schema}.job_data;
                 DELETE FROM {schema}.lanes; DELETE FROM {schema}.lane_jobs;
                 DELETE FROM {schema}.unique_keys; DELETE FROM {schema}.recurring;
                 DELETE FROM {schema}.routes WHERE id > 1;";
    let take = "INSERT INTO {schema}.routes (id, queue, kind) VALUES (2, 'default', 'other')";
    let sql = match lost {
        Lost::Gone => clear.to_owned(),
        Lost::Taken => format!("{clear} {take}"),
    };
    schema.execute(&sql).await.unwrap();
}

async fn claimed(store: &Checked<PostgresStore>) -> Vec<Claim> {
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    claimed.into_iter().map(|job| job.claim).collect()
}

async fn store_in_transaction(store: &Checked<PostgresStore>, schema: &Schema, job: NewJob) {
    let mut application = PgConnection::connect(&schema.url).await.unwrap();
    let mut tx = application.begin().await.unwrap();
    store.enqueue_in(&mut tx, &[job]).await.unwrap();
    tx.commit().await.unwrap();
}

async fn fire(store: &Checked<PostgresStore>, schema: &Schema) {
    let hourly = Recurring::every(Duration::from_secs(3_600));
    let definition = hourly.job(of("mine")).named("hourly").check().unwrap();
    store.put(&PutRecurring::new(definition)).await.unwrap();
    let due = "UPDATE {schema}.recurring SET next_fire = 1";
    schema.execute(due).await.unwrap();
    let request = RecurringClaimRequest::new(NodeId::new(), 1);
    let due = store.claim_due_recurring(&request).await.unwrap();
    let firing = due.definitions[0].plan(due.now).unwrap();
    store.fire(&[firing]).await.unwrap();
}

pub(crate) async fn jobs_go_to_their_own_route_whatever_the_server_forgot(schema: Arc<Schema>) {
    let own = open(&schema).await;
    let pool = PgPoolOptions::new().max_connections(2);
    let pool = pool.connect(&schema.url).await.unwrap();
    let given = PostgresStore::pool_builder(pool).schema(&schema.name);
    let given = given.connect().await.unwrap();
    let looking = open(&schema).await;
    let filter = JobFilter::all().kind(name("mine"));
    let page = PageRequest::first(9);
    for lost in [Lost::Gone, Lost::Taken] {
        for store in [&own, &given] {
            for way in 0..8 {
                lose(&schema, store, lost).await;
                let mine = of("mine");
                match way {
                    0 => drop(store.enqueue(&[mine]).await.unwrap()),
                    1 => drop(store.enqueue(&[of("first"), mine]).await.unwrap()),
                    2 => drop(enqueue(store, mine.unique_key("key")).await),
                    3 => drop(enqueue(store, mine.lane("lane")).await),
                    4 => drop(enqueue(store, mine.tag("tag")).await),
                    5 => store_in_transaction(store, &schema, mine).await,
                    6 => store_in_transaction(store, &schema, mine.unique_key("key")).await,
                    _ => fire(store, &schema).await,
                }
                let context = format!("{lost:?}, way {way}");
                let due = looking.due_routes(Duration::ZERO).await.unwrap();
                let kinds = due.iter().map(|one| one.route.kind.as_str());
                assert!(kinds.clone().any(|kind| kind == "mine"), "{context}");
                assert!(kinds.clone().all(|kind| kind != "other"), "{context}");
                let claims = claimed(&looking).await;
                let mine = claims
                    .iter()
                    .filter(|one| one.route.kind.as_str() == "mine");
                assert_eq!(mine.count(), 1, "{context}");
                let listed = looking.list(&filter, &page);
                assert_eq!(listed.await.unwrap().jobs.len(), 1, "{context}");
            }
        }
    }
}

pub(crate) async fn a_warm_node_claims_what_the_routes_are_now(schema: Arc<Schema>) {
    let other = open(&schema).await;
    for lost in [Lost::Gone, Lost::Taken] {
        let store = open(&schema).await;
        lose(&schema, &store, lost).await;
        let id = enqueue(&other, of("other")).await;
        let only = Selection::Only([name("mine")].into());
        let mine = store.claim_next_batch(&request_all().kinds(only)).await;
        assert_eq!(mine.unwrap().len(), 0, "{lost:?}");
        let claims = claimed(&store).await;
        assert_eq!(claims.len(), 1, "{lost:?}");
        assert_eq!(claims[0].token.job, id);
        assert_eq!(claims[0].route.kind.as_str(), "other");
    }
}

pub(crate) async fn what_is_read_has_the_route_it_has_now(schema: Arc<Schema>) {
    let store = open(&schema).await;
    lose(&schema, &store, Lost::Taken).await;
    schema
        .execute("UPDATE {schema}.routes SET queue = 'elsewhere' WHERE id = 2")
        .await
        .unwrap();
    let id = enqueue(&open(&schema).await, of("other").queue("elsewhere")).await;
    let read = store
        .get(&[id], Detail::Whole)
        .await
        .unwrap()
        .pop()
        .flatten()
        .unwrap();
    assert_eq!(read.spec.route.kind.as_str(), "other");
    let queues = QueueStore::queues(&store).await.unwrap();
    let queues: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(queues, ["elsewhere"]);
    let page = PageRequest::first(9);
    for (kind, many) in [("mine", 0), ("other", 1)] {
        let filter = JobFilter::all().kind(name(kind));
        assert_eq!(store.list(&filter, &page).await.unwrap().jobs.len(), many);
        let counts = store.count_jobs(&filter).await.unwrap();
        assert_eq!(counts.values().sum::<u64>(), many as u64);
    }
}

/// To the store, a snapshot that is older than a route looks like a server that has lost the route.
pub(crate) async fn a_transaction_older_than_a_route_is_begun_again(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let mut application = PgConnection::connect(&schema.url).await.unwrap();
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    let (new, known) = ([of("new")], [of("new")]);
    for jobs in [&new, &known] {
        sqlx::raw_sql(begin)
            .execute(&mut application)
            .await
            .unwrap();
        sqlx::query("SELECT 1")
            .execute(&mut application)
            .await
            .unwrap();
        let stored = store.enqueue_in(&mut application, jobs).await;
        if std::ptr::eq(jobs, &raw const new) {
            assert_kind(&stored.unwrap_err(), StoreErrorKind::Contention);
        } else {
            stored.unwrap();
        }
        sqlx::raw_sql("COMMIT")
            .execute(&mut application)
            .await
            .unwrap();
    }
    assert_eq!(claimed(&store).await.len(), 1);
}

/// Simulates an endpoint that was switched over to a new server. The connection that adds routes
/// still leads to the old server, so the routes that it adds are missing on the new server.
pub(crate) async fn routes_are_added_where_jobs_are_stored(schema: Arc<Schema>) {
    let store = schema.builder().application_name(&schema.name);
    let store = store.connect().await.unwrap();
    enqueue(&store, of("first")).await;
    let named = "SELECT pid FROM pg_stat_activity WHERE application_name = 'NAME'";
    let named = named.replace("NAME", &schema.name);
    let pids = schema.rows(&named).await.unwrap();
    // The connection that adds routes was opened before those of the pool.
    let old = pids.iter().map(|row| row.get::<i32, _>(0)).min().unwrap();
    let two = "DELETE FROM {schema}.jobs; DELETE FROM {schema}.job_data;
               ALTER TABLE {schema}.routes RENAME TO old_routes;
               CREATE TABLE {schema}.new_routes (LIKE {schema}.old_routes INCLUDING ALL);
               CREATE FUNCTION {schema}.old() RETURNS boolean LANGUAGE sql
                   AS $$ SELECT pg_backend_pid() = PID $$;
               CREATE VIEW {schema}.routes AS
                   SELECT * FROM {schema}.old_routes WHERE {schema}.old()
                   UNION ALL SELECT * FROM {schema}.new_routes WHERE NOT {schema}.old();
               CREATE FUNCTION {schema}.add() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   IF {schema}.old() THEN
                       INSERT INTO {schema}.old_routes (id, queue, kind, capability, permit)
                       VALUES (NEW.id, NEW.queue, NEW.kind, NEW.capability, NEW.permit)
                       ON CONFLICT DO NOTHING;
                   ELSE
                       INSERT INTO {schema}.new_routes (id, queue, kind, capability, permit)
                       VALUES (NEW.id, NEW.queue, NEW.kind, NEW.capability, NEW.permit)
                       ON CONFLICT DO NOTHING;
                   END IF;
                   RETURN NEW;
               END $$;
               CREATE TRIGGER add INSTEAD OF INSERT ON {schema}.routes
                   FOR EACH ROW EXECUTE FUNCTION {schema}.add()";
    schema
        .execute(&two.replace("PID", &old.to_string()))
        .await
        .unwrap();
    enqueue(&store, of("mine")).await;
    let claims = claimed(&open(&schema).await).await;
    let mine = claims
        .iter()
        .filter(|one| one.route.kind.as_str() == "mine");
    assert_eq!(mine.count(), 1);
}

pub(crate) async fn jobs_without_a_route_are_found(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let lost = async || {
        let mut findings = store.findings().await.unwrap();
        findings.retain(|finding| finding.code == "lost_route");
        findings
    };
    enqueue(&store, job()).await;
    enqueue(&store, of("mine")).await;
    assert_eq!(lost().await, []);
    schema
        .execute("DELETE FROM {schema}.routes WHERE kind = 'mine'")
        .await
        .unwrap();
    let found = lost().await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].detail.as_deref(), Some("1 of route 2"));
}
