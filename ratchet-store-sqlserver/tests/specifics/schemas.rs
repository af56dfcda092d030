//! Several schemas in one database, schemas with unusual names and of other versions, and what is
//! stored in them.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::TestDatabase;
use ratchet_conformance::kit::{assert_altered, assert_kind, enqueue, job, request_all};
use ratchet_core::model::Detail;
use ratchet_core::store::{JobStore, NodeStore, Store};
use ratchet_core::{Enqueued, NewJob, SchemaProblem, StoreError, StoreErrorKind, time};
use ratchet_store_sqlserver::{Builder, SqlServerStore};

use crate::open;
use crate::server::Schema;

pub(crate) async fn two_schemas_never_see_each_other(schema: Arc<Schema>) {
    let other = Schema::create(&schema.url).await.unwrap();
    let (here, there) = (open(&schema).await, open(&other).await);
    let key = || job().unique_key("u").idempotency_key("i");
    enqueue(&here, key()).await;
    let claimed = there.claim_next_batch(&request_all()).await.unwrap();
    assert!(claimed.is_empty());
    let elsewhere = there.enqueue(&[key()]).await.unwrap();
    assert!(matches!(elsewhere[0], Enqueued::Created(_)));
    other.take_away().await;
}

pub(crate) async fn odd_names_work(schema: Arc<Schema>) {
    let mut names = vec!["My Schema; \"x\"", "größe'日本", "select"];
    // Babelfish supports no closing bracket in a name.
    if !schema.is_babelfish().await {
        names.push("a]b'c\"d [e]");
    }
    for name in names {
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
    let newer = "INSERT INTO {schema}.migrations VALUES (99, N'later', N'x', 0)";
    schema.execute(newer).await.unwrap();
    let error = refusal(&schema).await;
    assert_kind(&error, StoreErrorKind::SchemaMismatch(SchemaProblem::Newer));
    assert!(error.to_string().contains("version 99"), "{error}");
    let changed = "DELETE FROM {schema}.migrations WHERE version = 99;
                   UPDATE {schema}.migrations SET checksum = N'other'";
    schema.execute(changed).await.unwrap();
    assert_altered(&refusal(&schema).await, "other content");
}

pub(crate) async fn tables_of_others_are_refused(schema: Arc<Schema>) {
    let theirs = "CREATE TABLE {schema}.jobs (mine nvarchar(10))";
    schema.execute(theirs).await.unwrap();
    let error = refusal(&schema).await;
    assert_altered(&error, "jobs");
    let made = format!(
        "SELECT CAST(t.name AS nvarchar(128)) FROM sys.tables AS t
         JOIN sys.schemas AS s ON s.schema_id = t.schema_id
         WHERE s.name = N'{}' ORDER BY t.name",
        schema.name
    );
    let made = schema.rows(&made).await.unwrap();
    let made: Vec<&str> = made.iter().filter_map(|row| row.get(0)).collect();
    assert_eq!(
        made,
        ["jobs", "test_clock"],
        "expected the failed migration to leave nothing"
    );
}

/// The number of migrations of this version.
const KNOWN: usize = 1;

/// Simulates a later version with one more migration.
fn next(schema: &Schema) -> Builder {
    let more = "CREATE TABLE {schema}.more (a int NULL);
ALTER TABLE {schema}.locks ADD more int NULL;";
    schema.builder().next_migration("more", more)
}

pub(crate) async fn many_starters_migrate_once(schema: Arc<Schema>) {
    let starters: Vec<_> = (0..6)
        .map(|_| tokio::spawn(next(&schema).max_connections(1).connect()))
        .collect();
    for starter in starters {
        let store = starter.await.unwrap().unwrap();
        enqueue(&store, job()).await;
    }
    let applied = "SELECT version FROM {schema}.migrations";
    assert_eq!(schema.rows(applied).await.unwrap().len(), KNOWN + 1);
    schema
        .execute("DROP TABLE {schema}.attempts")
        .await
        .unwrap();
    let error = next(&schema).connect().await.unwrap_err();
    assert_altered(&error, "attempts");
}

pub(crate) async fn printed_migrations_are_what_is_applied(schema: Arc<Schema>) {
    for step in SqlServerStore::migrations(&schema.name) {
        schema.execute(&step.sql).await.unwrap();
    }
    let store = schema.builder().migrate(false).connect().await.unwrap();
    enqueue(&store, job()).await;
}

pub(crate) async fn without_migrating_a_missing_schema_is_refused(schema: Arc<Schema>) {
    let error = schema.builder().migrate(false).connect().await;
    assert_kind(
        &error.unwrap_err(),
        StoreErrorKind::SchemaMismatch(SchemaProblem::Behind),
    );
}

/// Tests times that would overflow the server's own functions, and sessions with other languages
/// and date formats.
pub(crate) async fn times_are_those_of_the_clock_and_far_ones_too(schema: Arc<Schema>) {
    let store = open(&schema).await;
    let now = store.database_time().await.unwrap();
    let here = time::to_millis(time::wall_clock());
    let skew = (here - time::to_millis(now)).abs();
    assert!(skew < 60_000, "expected the server's clock to be UTC");
    for delay in [
        Duration::from_secs(40 * 60),
        Duration::from_secs(30 * 86_400),
        Duration::from_secs(70 * 365 * 86_400),
        ratchet_core::limits::MAX_DELAY,
    ] {
        let id = enqueue(&store, job().delay(delay)).await;
        let stored = store
            .get(&[id], Detail::Whole)
            .await
            .unwrap()
            .pop()
            .flatten()
            .unwrap();
        let waits = time::millis_between(
            time::to_millis(stored.created_at),
            time::to_millis(stored.run_at),
        );
        assert_eq!(waits, delay);
    }
}

pub(crate) async fn a_large_payload_of_long_characters_comes_back(schema: Arc<Schema>) {
    let store = open(&schema).await;
    // The number of four-byte characters that a payload may contain, between two quotes.
    let count = (ratchet_core::limits::MAX_PAYLOAD_BYTES - 2) / 4;
    let text = "🦀".repeat(count);
    let job = NewJob::new("kind", &text);
    let id = enqueue(&store, job.clone()).await;
    let stored = store
        .get(&[id], Detail::Whole)
        .await
        .unwrap()
        .pop()
        .flatten()
        .unwrap();
    assert_eq!(stored.spec.payload, job.spec().payload);
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(
        claimed[0].input.as_ref().unwrap().payload,
        job.spec().payload
    );
}

/// Tests the expression of the clock with given times in place of the server's time.
pub(crate) async fn the_clock_counts_beyond_what_fits_into_an_int(schema: Arc<Schema>) {
    let script = SqlServerStore::migrations("s").remove(0).sql;
    let (_, clock) = script.rsplit_once("', ").unwrap();
    let clock = clock.trim_end().trim_end_matches(';');
    assert!(clock.contains("SYSUTCDATETIME()"), "{clock}");
    for (time, millis) in [
        ("1970-01-01T00:00:00.000000", 0_i64),
        ("1969-12-31T23:59:59.999999", -1),
        ("1970-01-01T00:40:00.001999", 40 * 60_000 + 1),
        ("1970-01-31T00:00:00.000001", 30 * 86_400_000),
        ("2039-12-15T00:00:00.000000", 70 * 365 * 86_400_000),
        (
            "9999-12-31T23:59:59.999999",
            ratchet_core::limits::MAX_RUN_AT,
        ),
    ] {
        let given = format!("CAST('{time}' AS datetime2(7))");
        let read = clock.replace("SYSUTCDATETIME()", &given);
        let rows = schema.rows(&format!("SELECT {read}")).await.unwrap();
        assert_eq!(rows[0].get::<i64, _>(0), Some(millis), "{time}");
    }
}

pub(crate) async fn a_migration_that_fails_leaves_nothing(schema: Arc<Schema>) {
    // This view has the name of a table that is created in the middle of the first step.
    let theirs = "CREATE VIEW {schema}.unique_keys AS SELECT 1 AS mine";
    schema.execute(theirs).await.unwrap();
    let error = refusal(&schema).await;
    assert_altered(&error, "unique_keys");
    let made = format!(
        "SELECT CAST(o.name AS nvarchar(128)) FROM sys.objects AS o
         JOIN sys.schemas AS s ON s.schema_id = o.schema_id
         WHERE s.name = N'{}' AND o.type IN ('U', 'V') ORDER BY o.name",
        schema.name
    );
    let made = schema.rows(&made).await.unwrap();
    let made: Vec<&str> = made.iter().filter_map(|row| row.get(0)).collect();
    assert_eq!(
        made,
        ["test_clock", "unique_keys"],
        "expected the failed migration to leave nothing"
    );
    schema
        .execute("DROP VIEW {schema}.unique_keys")
        .await
        .unwrap();
    enqueue(&open(&schema).await, job()).await;
}

pub(crate) async fn a_starter_waits_for_who_migrates(schema: Arc<Schema>) {
    let mut other = crate::server::connect(&schema.url).await.unwrap();
    let lock = |call: &str| {
        let resource = format!("ratchet migrations of {}", schema.name);
        format!("EXEC {call} @Resource = N'{resource}', @LockOwner = 'Session'")
    };
    let take = lock("sp_getapplock") + ", @LockMode = 'Exclusive'";
    let taken = other.simple_query(take).await.unwrap();
    taken.into_results().await.unwrap();
    let impatient = schema.builder().deadline(Duration::from_secs(5));
    let error = impatient.connect().await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Timeout);
    let starting = tokio::spawn(schema.builder().connect());
    let freed = other.simple_query(lock("sp_releaseapplock")).await.unwrap();
    freed.into_results().await.unwrap();
    enqueue(&starting.await.unwrap().unwrap(), job()).await;
}

pub(crate) async fn a_step_that_is_made_meanwhile_is_none_that_is_missing(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let last = next(&schema).migrations().pop().unwrap();
    let mut other = crate::server::connect(&schema.url).await.unwrap();
    // The table of the migrations cannot be read until this transaction ends.
    let making = format!(
        "BEGIN TRANSACTION; {}; ALTER TABLE {{schema}}.migrations ADD held int NULL",
        last.sql
    );
    let made = other.simple_query(schema.sql(&making)).await.unwrap();
    made.into_results().await.unwrap();
    let mut starting = Box::pin(next(&schema).connect());
    let waited = tokio::time::timeout(Duration::from_secs(5), &mut starting).await;
    assert!(waited.is_err(), "expected the call to wait");
    let end = other.simple_query("COMMIT TRANSACTION").await.unwrap();
    end.into_results().await.unwrap();
    enqueue(&starting.await.unwrap(), job()).await;
}

/// Uses a new database, selected by the URL. On SQL Server, READ_COMMITTED_SNAPSHOT must first be
/// turned on in it.
pub(crate) async fn a_url_is_enough(schema: Arc<Schema>) {
    let database = format!("ratchet_{}", &schema.name[20..]);
    let run = async |sql: &str| schema.execute(sql).await.unwrap();
    run(&format!("CREATE DATABASE [{database}]")).await;
    let mut url = url::Url::parse(&schema.url).unwrap();
    url.set_path(&format!("/{database}"));
    let url = url.to_string().replace("sqlserver://", "mssql://");
    let store = match SqlServerStore::connect(&url).await {
        Ok(store) => store,
        Err(refused) => {
            assert_kind(&refused, StoreErrorKind::Misconfigured);
            let text = refused.to_string();
            let unset = SqlServerStore::builder(&url).locking_reads(true);
            unset.connect().await.unwrap().close().await;
            let (_, told) = text.split_once("a DBA must run: ").unwrap();
            run(told.split(';').next().unwrap()).await;
            SqlServerStore::connect(&url).await.unwrap()
        }
    };
    let id = enqueue(&store, job()).await;
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed[0].claim.token.job, id);
    let mut tx = store.begin().await.unwrap();
    let own = "SELECT CAST(CONCAT(DB_NAME(), N' ', APP_NAME()) AS nvarchar(256)) FROM ratchet.jobs";
    let own = tx.query(own, &[]).await.unwrap();
    let expected = format!("{database} ratchet");
    assert_eq!(own[0].get::<&str, _>(0), Some(expected.as_str()));
    tx.rollback().await.unwrap();
    store.close().await;
    schema.drop_database(&database).await;
}
