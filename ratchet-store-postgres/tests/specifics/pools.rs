//! Pools whose connections have the wrong settings, or lead to the wrong place.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, heartbeat, job, request_all};
use ratchet_core::model::{JobFilter, PageRequest};
use ratchet_core::store::{DiagnosticStore, JobStore, NodeStore, Store};
use ratchet_core::{StoreError, StoreErrorKind};
use ratchet_store_postgres::PostgresStore;

use crate::open;
use crate::schemas::{as_role, drop_role, role};
use crate::server::Schema;

pub(crate) async fn a_time_in_which_nothing_can_be_written_passes(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let (role, url) = role(&schema, "w", "SUPERUSER").await;
    let window =
        |state: &str| format!("ALTER ROLE \"{role}\" {state} default_transaction_read_only");
    let on = format!("{} = on", window("SET"));
    schema.execute(&on).await.unwrap();
    // All connections are opened now, while new sessions are read-only.
    let store = PostgresStore::builder(&url).schema(&schema.name);
    let store = store.max_connections(3).connect().await.unwrap();
    let (filter, page) = (JobFilter::all(), PageRequest::first(1));
    let read = || store.list(&filter, &page);
    let (one, two, three) = tokio::join!(read(), read(), read());
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    schema.execute(&window("RESET")).await.unwrap();
    let findings = store.findings().await.unwrap();
    let told = findings
        .iter()
        .filter(|finding| finding.code == "read_only");
    assert_eq!(told.count(), 1);
    // One of the connections reports that it is read-only, and the store replaces all of them.
    let refused = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::ReadOnly);
    store.heartbeat(&heartbeat()).await.unwrap();
    for _ in 0..4 {
        enqueue(&store, job()).await;
    }
    assert_eq!(
        store.claim_next_batch(&request_all()).await.unwrap().len(),
        4
    );
    let findings = store.findings().await.unwrap();
    assert!(findings.iter().all(|finding| finding.code != "read_only"));
    store.close().await;
    drop_role(&schema, &role).await;
}

pub(crate) async fn a_limit_of_the_role_stays(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let name = format!("role_{}l", &schema.name[20..]);
    let limited = format!("SUPERUSER; ALTER ROLE \"{name}\" SET statement_timeout = '300ms'");
    let (role, url) = role(&schema, "l", &limited).await;
    let store = PostgresStore::builder(&url).schema(&schema.name);
    let store = store.connect().await.unwrap();
    enqueue(&store, job()).await;
    let lock = "BEGIN; LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE";
    schema.execute(lock).await.unwrap();
    // The role's limit ends the call long before the store's own deadline.
    let new = [job()];
    let refused = tokio::time::timeout(Duration::from_secs(5), store.enqueue(&new)).await;
    let refused = refused
        .expect("the role's limit should end the call")
        .unwrap_err();
    assert_kind(&refused, StoreErrorKind::Timeout);
    assert!(refused.to_string().contains("57014"), "{refused}");
    schema.execute("COMMIT").await.unwrap();
    store.close().await;
    drop_role(&schema, &role).await;
}

pub(crate) async fn a_deadline_beyond_the_servers_numbers_works(schema: Arc<Schema>) {
    let patient = schema.builder().deadline(Duration::MAX);
    let store = patient.connect().await.unwrap();
    enqueue(&store, job()).await;
    assert_eq!(
        store.claim_next_batch(&request_all()).await.unwrap().len(),
        1
    );
}

fn assert_refused(error: &StoreError, because: &str) {
    assert_kind(error, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("`direct`"), "{error}");
    assert!(error.to_string().contains(because), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

pub(crate) async fn a_pool_that_leads_elsewhere_is_refused(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let elsewhere = format!("elsewhere_{}", schema.name);
    schema
        .execute(&format!("CREATE DATABASE \"{elsewhere}\""))
        .await
        .unwrap();
    let (server, database) = schema.url.rsplit_once('/').unwrap();
    let other = match database.split_once('?') {
        Some((_, settings)) => format!("{server}/{elsewhere}?{settings}"),
        None => format!("{server}/{elsewhere}"),
    };
    for (pool, direct) in [(&other, &schema.url), (&schema.url, &other)] {
        let both = PostgresStore::builder(pool).direct(direct);
        let refused = both.schema(&schema.name).connect().await.unwrap_err();
        assert_refused(&refused, &elsewhere);
        // No tables were created in the wrong database.
        let there = PostgresStore::builder(&other).schema(&schema.name);
        assert!(there.pending_migrations().await.unwrap().len() == 1);
    }
    schema
        .execute(&format!("DROP DATABASE \"{elsewhere}\" WITH (FORCE)"))
        .await
        .unwrap();
}

pub(crate) async fn a_pool_that_cannot_work_is_refused(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let (role, url) = role(&schema, "p", "NOSUPERUSER").await;
    let connect = |pool: &str| {
        let both = PostgresStore::builder(pool).direct(&schema.url);
        both.schema(&schema.name).connect()
    };
    let refused = connect(&url).await.unwrap_err();
    assert_refused(&refused, "GRANT USAGE ON SCHEMA");
    let text = refused.to_string();
    let (_, remedy) = text.split_once("a DBA must run: ").unwrap();
    schema.execute(remedy).await.unwrap();
    let store = connect(&url).await.unwrap();
    enqueue(&store, job()).await;
    store.close().await;

    let isolated =
        format!("ALTER ROLE \"{role}\" SET default_transaction_isolation = 'repeatable read'");
    schema.execute(&isolated).await.unwrap();
    let refused = connect(&url).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Misconfigured);
    assert!(refused.to_string().contains("isolation"), "{refused}");
    drop_role(&schema, &role).await;

    // The URL sets a `statement_timeout`, so the store opens no extra connection to look for one.
    let nobody = as_role(&schema, "nobody_here");
    let separator = if nobody.contains('?') { '&' } else { '?' };
    let nobody = format!("{nobody}{separator}options=-c%20statement_timeout=9000");
    let refused = connect(&nobody).await.unwrap_err();
    assert_refused(&refused, "nobody_here");
}
