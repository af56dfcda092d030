//! Servers that, after a failover or a restore, lack routes that a process has cached, or use their
//! ids for other routes.

use std::sync::Arc;

use ratchet_conformance::kit::{assert_kind, enqueue, job, request_all};
use ratchet_core::model::Claim;
use ratchet_core::store::{Checked, DiagnosticStore, JobStore};
use ratchet_core::{NewJob, StoreErrorKind};
use ratchet_store_postgres::PostgresStore;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};

use crate::open;
use crate::server::Schema;

/// Returns a job of this kind.
fn of(kind: &str) -> NewJob {
    NewJob::new(kind, &1)
}

async fn claimed(store: &Checked<PostgresStore>) -> Vec<Claim> {
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    claimed.into_iter().map(|job| job.claim).collect()
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
