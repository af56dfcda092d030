//! Schemas side by side, with odd names, of other versions, and without privileges.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::TestDatabase;
use ratchet_conformance::kit::{assert_altered, assert_kind, enqueue, job, name, request_all};
use ratchet_core::cluster::Wakeup;
use ratchet_core::model::PageRequest;
use ratchet_core::model::{Detail, JobFilter};
use ratchet_core::store::{JobStore, LockStore, Store};
use ratchet_core::{JobState, SchemaProblem, StoreError, StoreErrorKind};
use ratchet_store_postgres::{Builder, PostgresStore};
use sqlx::Row;

use crate::open;
use crate::server::Schema;

pub(crate) async fn two_schemas_never_see_each_other(schema: Arc<Schema>) {
    let other = Schema::create(&schema.url).await.unwrap();
    let (here, there) = (open(&schema).await, open(&other).await);
    let key = || job().unique_key("u").idempotency_key("i");
    enqueue(&here, key()).await;
    assert!(
        there
            .claim_next_batch(&request_all())
            .await
            .unwrap()
            .is_empty()
    );
    let elsewhere = there.enqueue(&[key()]).await.unwrap();
    assert!(matches!(elsewhere[0], ratchet_core::Enqueued::Created(_)));
    for store in [&here, &there] {
        let (lock, owner) = (name("l"), name(&format!("{store:p}")));
        let lock = store.acquire(&lock, &owner, Duration::from_secs(9)).await;
        assert!(matches!(
            lock.unwrap(),
            ratchet_core::store::Acquired::Acquired { .. }
        ));
    }
    let (sender, receiver) = (here.coordinator().unwrap(), there.coordinator().unwrap());
    let (mut own, mut foreign) = (sender.subscribe(), receiver.subscribe());
    loop {
        sender.notify(Wakeup::queue(name("q"))).await;
        if tokio::time::timeout(Duration::from_millis(300), own.next())
            .await
            .is_ok()
        {
            break;
        }
    }
    let woken = tokio::time::timeout(Duration::from_millis(300), foreign.next()).await;
    assert!(woken.is_err(), "{woken:?}");
    other.take_away().await;
}

pub(crate) async fn odd_names_work(schema: Arc<Schema>) {
    for name in ["My Schema; \"x\"", "größe'日本", "select"] {
        let odd = Schema::called(&schema.url, &format!("{name}{}", &schema.name[30..]))
            .await
            .unwrap();
        let store = open(&odd).await;
        enqueue(&store, job().unique_key("u")).await;
        assert_eq!(
            store.claim_next_batch(&request_all()).await.unwrap().len(),
            1
        );
        drop(open(&odd).await);
        odd.take_away().await;
    }
}

async fn refusal(schema: &Schema) -> StoreError {
    schema.builder().connect().await.unwrap_err()
}

pub(crate) async fn a_newer_schema_is_refused(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let newer = "INSERT INTO {schema}.migrations VALUES (99, 'later', 'x', 0)";
    schema.execute(newer).await.unwrap();
    let error = refusal(&schema).await;
    assert_kind(&error, StoreErrorKind::SchemaMismatch(SchemaProblem::Newer));
    assert!(error.to_string().contains("version 99"), "{error}");
    let changed = "DELETE FROM {schema}.migrations WHERE version = 99;
                   UPDATE {schema}.migrations SET checksum = 'other'";
    schema.execute(changed).await.unwrap();
    assert_altered(&refusal(&schema).await, "other content");
}

pub(crate) async fn tables_of_others_are_refused(schema: Arc<Schema>) {
    let theirs = "CREATE TABLE {schema}.jobs (mine text)";
    schema.execute(theirs).await.unwrap();
    let error = refusal(&schema).await;
    assert_altered(&error, "jobs");
    let made = "SELECT relname::text FROM pg_class WHERE relkind = 'r'
                AND relnamespace = '{schema}'::regnamespace ORDER BY 1";
    let made: Vec<String> = schema
        .rows(made)
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(
        made,
        ["jobs", "test_clock"],
        "expected no object of an aborted migration"
    );
    schema
        .execute("DROP TABLE {schema}.jobs; CREATE TABLE {schema}.migrations (mine text)")
        .await
        .unwrap();
    assert_altered(&refusal(&schema).await, "version");
}

/// The number of migrations in this version.
const KNOWN: usize = 1;

/// Returns the builder of a later version, with two more migrations.
fn next(schema: &Schema) -> Builder {
    let more = "CREATE TABLE {schema}.more (a integer);
ALTER TABLE {schema}.locks ADD COLUMN more integer;";
    let builder = schema.builder().next_migration("more", more);
    builder.next_migration("index", "CREATE INDEX more_a ON {schema}.more (a);")
}

pub(crate) async fn many_starters_migrate_once(schema: Arc<Schema>) {
    let starters: Vec<_> = (0..8)
        .map(|_| tokio::spawn(next(&schema).max_connections(1).connect()))
        .collect();
    for starter in starters {
        let store = starter.await.unwrap().unwrap();
        enqueue(&store, job()).await;
    }
    let applied = "SELECT version FROM {schema}.migrations";
    assert_eq!(schema.rows(applied).await.unwrap().len(), KNOWN + 2);
    schema
        .execute("DROP INDEX {schema}.jobs_claim")
        .await
        .unwrap();
    let error = next(&schema).connect().await.unwrap_err();
    assert_altered(&error, "jobs_claim");
}

/// Returns the URL with this role.
pub(crate) fn as_role(schema: &Schema, role: &str) -> String {
    let (scheme, rest) = schema.url.split_once("://").unwrap();
    let host = rest.rsplit('@').next().unwrap();
    format!("{scheme}://{role}:secret@{host}")
}

/// Creates a role that may log in. Returns it, and the URL with that role.
pub(crate) async fn role(schema: &Schema, suffix: &str, settings: &str) -> (String, String) {
    let role = format!("role_{}{suffix}", &schema.name[20..]);
    let create = format!(
        "CREATE ROLE \"{role}\" LOGIN PASSWORD 'secret';
         ALTER ROLE \"{role}\" {settings}"
    );
    schema.execute(&create).await.unwrap();
    let url = as_role(schema, &role);
    (role, url)
}

pub(crate) async fn drop_role(schema: &Schema, role: &str) {
    let drop = format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\"");
    schema.execute(&drop).await.unwrap();
}

/// Returns the statements that a refusal asks a DBA to run.
fn remedy(refused: &StoreError) -> String {
    assert_kind(refused, StoreErrorKind::Misconfigured);
    let text = refused.to_string();
    assert!(!text.contains("secret"), "{text}");
    let (_, remedy) = text.split_once("a DBA must run: ").expect(&text);
    remedy.to_owned()
}

pub(crate) async fn without_the_right_to_create_the_dba_is_told_what_to_run(schema: Arc<Schema>) {
    let (role, url) = role(&schema, "c", "CONNECTION LIMIT 20").await;
    let connect = |name: &str| PostgresStore::builder(&url).schema(name).connect();
    let works = async |name: &str| {
        let store = connect(name).await.unwrap();
        enqueue(&store, job()).await;
        store.close().await;
    };
    // The schema does not exist.
    let missing = format!("{}_new", schema.name);
    let told = remedy(&connect(&missing).await.unwrap_err());
    assert!(told.contains("CREATE SCHEMA"), "{told}");
    schema.execute(&told).await.unwrap();
    works(&missing).await;

    // The schema is empty and belongs to another role.
    let told = remedy(&connect(&schema.name).await.unwrap_err());
    assert!(told.contains("GRANT USAGE, CREATE"), "{told}");
    schema.execute(&told).await.unwrap();
    works(&schema.name).await;

    // The role may use the schema, but not create tables in it.
    let usable = Schema::create(&schema.url).await.unwrap();
    let usage = format!("GRANT USAGE ON SCHEMA {{schema}} TO \"{role}\"");
    usable.execute(&usage).await.unwrap();
    let told = remedy(&connect(&usable.name).await.unwrap_err());
    assert!(told.contains("GRANT USAGE, CREATE"), "{told}");
    usable.execute(&told).await.unwrap();
    works(&usable.name).await;
    usable.take_away().await;

    // The schema has all tables, but they belong to another role.
    let full = Schema::create(&schema.url).await.unwrap();
    drop(open(&full).await);
    full.execute(&usage).await.unwrap();
    let told = remedy(&connect(&full.name).await.unwrap_err());
    assert!(told.contains("ALL TABLES"), "{told}");
    full.execute(&told).await.unwrap();
    works(&full.name).await;
    full.take_away().await;
    drop_role(&schema, &role).await;
}

pub(crate) async fn a_read_only_role_is_read_only(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let settings = "SUPERUSER; ALTER ROLE \"{role}\" SET default_transaction_read_only = on";
    let name = format!("role_{}r", &schema.name[20..]);
    let (role, url) = role(&schema, "r", &settings.replace("{role}", &name)).await;
    let store = PostgresStore::builder(&url).schema(&schema.name).connect();
    let store = store.await.unwrap();
    let refused = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::ReadOnly);
    let all = store.list(&JobFilter::all(), &PageRequest::first(1)).await;
    assert!(all.unwrap().jobs.is_empty());
    let elsewhere = PostgresStore::builder(&url).schema("never_made").connect();
    assert_kind(&elsewhere.await.unwrap_err(), StoreErrorKind::ReadOnly);
    store.close().await;
    drop_role(&schema, &role).await;
}

pub(crate) async fn printed_migrations_are_what_is_applied(schema: Arc<Schema>) {
    let unmigrated = schema.builder().migrate(false).connect().await.unwrap_err();
    assert_kind(
        &unmigrated,
        StoreErrorKind::SchemaMismatch(SchemaProblem::Behind),
    );
    for migration in PostgresStore::migrations(&schema.name) {
        schema.execute(&migration.sql).await.unwrap();
    }
    let store = schema.builder().migrate(false).connect().await.unwrap();
    enqueue(&store, job()).await;
    drop(open(&schema).await);
}

pub(crate) async fn a_row_that_cannot_be_read_harms_only_itself(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let damages = [
        "UPDATE {schema}.job_data SET retry = '{'",
        "UPDATE {schema}.job_data SET timeout = -1",
        "UPDATE {schema}.job_data SET payload_version = 0",
        "UPDATE {schema}.jobs SET attempts = -1",
        "UPDATE {schema}.jobs SET route = 4711, state = 0",
        "DELETE FROM {schema}.job_data",
    ];
    for damage in damages {
        // No node claims a job whose route is unknown.
        let unknown_route = damage.contains("route");
        let good = enqueue(&store, job()).await;
        let bad = enqueue(&store, job()).await;
        let last = enqueue(&store, job()).await;
        let damage = format!("{damage} WHERE id = '{bad}'");
        schema.execute(&damage).await.unwrap();
        let claimed = store.claim_next_batch(&request_all()).await.unwrap();
        let ids: Vec<_> = claimed.iter().map(|job| job.claim.token.job).collect();
        assert_eq!(ids, [good, last], "{damage}");
        if !unknown_route {
            let record = store
                .get(&[bad], Detail::Whole)
                .await
                .unwrap()
                .remove(0)
                .unwrap();
            assert_eq!(record.state, JobState::Failed, "{damage}");
            let error = record.last_error.unwrap();
            assert!(error.contains("cannot be read"), "{damage}: {error}");
            assert_eq!(store.history(bad).await.unwrap().len(), 1);
        }
    }
}

pub(crate) async fn an_older_schema_is_brought_up_to_date(schema: Arc<Schema>) {
    let older = open(&schema).await;
    let held = "INSERT INTO {schema}.locks (name, owner, fence, expires_at)
                VALUES ('l', 'holder', 7, 9000000000000)";
    schema.execute(held).await.unwrap();
    older.close().await;
    let unchanged = next(&schema).migrate(false).connect().await;
    assert_kind(
        &unchanged.unwrap_err(),
        StoreErrorKind::SchemaMismatch(SchemaProblem::Behind),
    );
    let pending = next(&schema).pending_migrations().await.unwrap();
    assert_eq!(pending, next(&schema).migrations().split_off(KNOWN));
    let store = next(&schema).connect().await.unwrap();
    let applied = "SELECT version FROM {schema}.migrations";
    let applied = schema.rows(applied).await.unwrap();
    assert_eq!(applied.len(), KNOWN + 2);
    // The lock that was stored before the migrations is still held.
    let (lock, other) = (name("l"), name("other"));
    let taken = store.acquire(&lock, &other, Duration::from_secs(9)).await;
    assert!(matches!(
        taken.unwrap(),
        ratchet_core::store::Acquired::Held(held) if held.owner == name("holder")
    ));
    enqueue(&store, job()).await;
    // The older program knows fewer migrations.
    let error = refusal(&schema).await;
    assert_kind(&error, StoreErrorKind::SchemaMismatch(SchemaProblem::Newer));
    schema.execute("DROP TABLE {schema}.more").await.unwrap();
    let error = next(&schema).connect().await.unwrap_err();
    assert_altered(&error, "lacks more");
}
