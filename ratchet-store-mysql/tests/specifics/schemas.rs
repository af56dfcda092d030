//! Prefixes side by side, tables of other versions, and servers that cannot work.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::TestDatabase;
use ratchet_conformance::kit::{assert_altered, assert_kind, enqueue, job, name, request_all};
use ratchet_core::model::{Detail, JobFilter, PageRequest};
use ratchet_core::store::{Acquired, JobStore, LockStore, NodeStore, Store};
use ratchet_core::{Enqueued, JobState, SchemaProblem, StoreError, StoreErrorKind};
use ratchet_store_mysql::{Builder, MysqlStore};

use crate::open;
use crate::server::{Database, literal};

pub(crate) async fn two_prefixes_never_see_each_other(database: Arc<Database>) {
    let here = open(&database).await;
    let there = database.builder().schema("other").connect().await.unwrap();
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
    assert!(matches!(elsewhere[0], Enqueued::Created(_)));
    for store in [&here, &there] {
        let (lock, owner) = (name("l"), name(&format!("{store:p}")));
        let lock = store.acquire(&lock, &owner, Duration::from_secs(9)).await;
        assert!(matches!(lock.unwrap(), Acquired::Acquired { .. }));
    }
    // A prefix that begins like another one is another one.
    let longer = database.builder().schema("other_x").connect().await;
    enqueue(&longer.unwrap(), key()).await;
    drop(database.builder().schema("other").connect().await.unwrap());
}

async fn refusal(database: &Database) -> StoreError {
    database.builder().connect().await.unwrap_err()
}

pub(crate) async fn a_newer_schema_is_refused(database: Arc<Database>) {
    drop(open(&database).await);
    let newer = "INSERT INTO {database}.ratchet_migrations VALUES (99, 'later', 'x', 0)";
    database.execute(newer).await.unwrap();
    let error = refusal(&database).await;
    assert_kind(&error, StoreErrorKind::SchemaMismatch(SchemaProblem::Newer));
    assert!(error.to_string().contains("version 99"), "{error}");
    let changed = "DELETE FROM {database}.ratchet_migrations WHERE version = 99;
                   UPDATE {database}.ratchet_migrations SET checksum = 'other'";
    database.execute(changed).await.unwrap();
    assert_altered(&refusal(&database).await, "other content");
}

pub(crate) async fn tables_of_others_are_refused(database: Arc<Database>) {
    let theirs = "CREATE TABLE {database}.ratchet_jobs (mine TEXT)";
    database.execute(theirs).await.unwrap();
    assert_altered(&refusal(&database).await, "jobs");
    let made = format!(
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{}'",
        database.name
    );
    assert_eq!(database.number(&made).await.unwrap(), 2);
    let theirs = "DROP TABLE {database}.ratchet_jobs;
                  CREATE TABLE {database}.ratchet_migrations (mine TEXT)";
    database.execute(theirs).await.unwrap();
    let error = refusal(&database).await;
    assert_altered(&error, "version");
}

pub(crate) async fn an_altered_table_is_a_mismatch(database: Arc<Database>) {
    let store = open(&database).await;
    let altered = |error: StoreError| {
        let kind = StoreErrorKind::SchemaMismatch(SchemaProblem::Altered);
        assert_kind(&error, kind);
    };
    let column = "ALTER TABLE {database}.ratchet_job_data ADD COLUMN theirs INT NOT NULL";
    database.execute(column).await.unwrap();
    altered(store.enqueue(&[job()]).await.unwrap_err());
    let rename = "ALTER TABLE {database}.ratchet_job_data DROP COLUMN theirs;
                  ALTER TABLE {database}.ratchet_jobs RENAME COLUMN priority TO importance";
    database.execute(rename).await.unwrap();
    altered(store.enqueue(&[job()]).await.unwrap_err());
    altered(store.claim_next_batch(&request_all()).await.unwrap_err());
    let index = "ALTER TABLE {database}.ratchet_jobs RENAME COLUMN importance TO priority;
                 DROP INDEX jobs_claim ON {database}.ratchet_jobs";
    database.execute(index).await.unwrap();
    altered(store.claim_next_batch(&request_all()).await.unwrap_err());
    assert_altered(&refusal(&database).await, "lacks jobs_claim");
}

pub(crate) async fn a_table_without_transactions_is_refused(database: Arc<Database>) {
    drop(open(&database).await);
    let engine = "ALTER TABLE {database}.ratchet_attempts ENGINE = MyISAM";
    database.execute(engine).await.unwrap();
    let error = refusal(&database).await;
    assert_altered(&error, "`ratchet_attempts` has the engine MyISAM");
    let text = error.to_string();
    let (_, remedy) = text.split_once("run: ").unwrap();
    let remedy = remedy.replace("`ratchet_", "{database}.`ratchet_");
    database.execute(&remedy).await.unwrap();
    drop(open(&database).await);
}

/// The number of migrations in this version.
const KNOWN: u32 = 1;

/// Returns the builder of a later version, with two more migrations.
fn next(database: &Database) -> Builder {
    let more = "CREATE TABLE {schema}.more (
    a INT,
    INDEX more_a (a)
) {table};";
    let builder = database.builder().next_migration("more", more);
    builder.next_migration(
        "column",
        "ALTER TABLE {schema}.locks MODIFY COLUMN fence BIGINT NOT NULL;",
    )
}

pub(crate) async fn many_starters_migrate_once(database: Arc<Database>) {
    let starters: Vec<_> = (0..8)
        .map(|_| tokio::spawn(next(&database).max_connections(1).connect()))
        .collect();
    for starter in starters {
        let store = starter.await.unwrap().unwrap();
        enqueue(&store, job()).await;
    }
    let applied = "SELECT COUNT(*) FROM {database}.ratchet_migrations WHERE checksum <> ''";
    assert_eq!(
        database.number(applied).await.unwrap(),
        i64::from(KNOWN) + 2
    );
}

pub(crate) async fn an_interrupted_migration_is_finished(database: Arc<Database>) {
    // A program was killed after the first statement of the migration, and another after some more.
    for script in [
        "DROP TABLE {database}.ratchet_jobs, {database}.ratchet_archive;
         UPDATE {database}.ratchet_migrations SET checksum = ''",
        "DELETE FROM {database}.ratchet_migrations; DROP TABLE {tables}",
    ] {
        drop(open(&database).await);
        let tables = format!(
            "SELECT CAST(GROUP_CONCAT(CONCAT('{{database}}.', table_name)) AS CHAR)
             FROM information_schema.tables WHERE table_schema = '{}' AND table_name NOT IN
             ('ratchet_migrations', 'ratchet_test_clock')",
            database.name
        );
        let rows = database.rows(&tables).await.unwrap();
        let tables: String = sqlx::Row::get(&rows[0], 0);
        let script = script.replace("{tables}", &tables);
        database.execute(&script).await.unwrap();
        let store = open(&database).await;
        enqueue(&store, job()).await;
        let applied = "SELECT COUNT(*) FROM {database}.ratchet_migrations WHERE checksum <> ''";
        assert_eq!(database.number(applied).await.unwrap(), i64::from(KNOWN));
    }
}

pub(crate) async fn without_privileges_the_dba_is_told_what_to_run(database: Arc<Database>) {
    let user = format!("u{}", &database.name[database.name.len() - 12..]);
    let user = user.replace('-', "");
    let create = format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'secret'");
    database.execute(&create).await.unwrap();
    // Without any privilege, the user does not see the database.
    let usage = format!("GRANT SELECT ON {{database}}.ratchet_test_clock TO '{user}'@'%'");
    database.execute(&usage).await.unwrap();
    let (scheme, rest) = database.url.split_once("://").unwrap();
    let (_, host) = rest.split_once('@').unwrap();
    let url = format!("{scheme}://{user}:secret@{host}");
    let connect = || MysqlStore::builder(&url).connect();
    let remedy = |error: &StoreError| {
        assert_kind(error, StoreErrorKind::Misconfigured);
        let text = error.to_string();
        assert!(!text.contains("secret"), "{text}");
        let (_, remedy) = text.split_once("a DBA must run: ").expect(&text);
        remedy.to_owned()
    };
    let told = remedy(&connect().await.unwrap_err());
    database.execute(&told).await.unwrap();
    let store = connect().await.unwrap();
    enqueue(&store, job()).await;
    store.close().await;
    // The tables exist, but the user may not read them.
    let revoke = format!("REVOKE ALL PRIVILEGES, GRANT OPTION FROM '{user}'@'%'; {usage}");
    database.execute(&revoke).await.unwrap();
    let error = connect().await.unwrap_err();
    let told = remedy(&error);
    database.execute(&told).await.unwrap();
    let store = connect().await.unwrap();
    enqueue(&store, job()).await;
    store.close().await;
    let drop = format!("DROP USER '{user}'@'%'");
    database.execute(&drop).await.unwrap();
}

pub(crate) async fn a_read_only_server_is_read_only(database: Arc<Database>) {
    // A user without the privilege to write on a read-only server. The test does not make the whole
    // server read-only, because other tests use it.
    let store = open(&database).await;
    enqueue(&store, job()).await;
    let trigger = "CREATE TRIGGER {database}.read_only BEFORE INSERT ON {database}.ratchet_jobs
                   FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT =
                   'The server is running with the --read-only option'";
    database.execute(trigger).await.unwrap();
    let refused = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::ReadOnly);
    let all = store.list(&JobFilter::all(), &PageRequest::first(9)).await;
    assert_eq!(all.unwrap().jobs.len(), 1);
    let drop = "DROP TRIGGER {database}.read_only";
    database.execute(drop).await.unwrap();
    enqueue(&store, job()).await;
}

pub(crate) async fn printed_migrations_are_what_is_applied(database: Arc<Database>) {
    let unmigrated = database.builder().migrate(false).connect().await;
    assert_kind(
        &unmigrated.unwrap_err(),
        StoreErrorKind::SchemaMismatch(SchemaProblem::Behind),
    );
    for migration in MysqlStore::migrations("ratchet") {
        for _ in 0..2 {
            let script = format!("USE {{database}}; {}", migration.sql);
            database.execute(&script).await.unwrap();
        }
    }
    let store = database.builder().migrate(false).connect().await.unwrap();
    enqueue(&store, job()).await;
    drop(open(&database).await);
}

pub(crate) async fn a_row_that_cannot_be_read_harms_only_itself(database: Arc<Database>) {
    let store = open(&database).await;
    let damages = [
        "UPDATE {database}.ratchet_job_data SET retry = '{'",
        "UPDATE {database}.ratchet_job_data SET timeout = -1",
        "UPDATE {database}.ratchet_job_data SET payload_version = 0",
        "UPDATE {database}.ratchet_jobs SET attempts = -1",
        "UPDATE {database}.ratchet_jobs SET route = 4711, state = 0",
        "DELETE FROM {database}.ratchet_job_data",
    ];
    for damage in damages {
        // No node claims a job whose route is unknown.
        let unknown_route = damage.contains("route =");
        let good = enqueue(&store, job()).await;
        let bad = enqueue(&store, job()).await;
        let last = enqueue(&store, job()).await;
        let damage = format!("{damage} WHERE id = {}", literal(bad));
        database.execute(&damage).await.unwrap();
        let claimed = store.claim_next_batch(&request_all()).await.unwrap();
        let ids: Vec<_> = claimed.iter().map(|job| job.claim.token.job).collect();
        assert_eq!(ids, [good, last], "{damage}");
        if !unknown_route {
            let record = store.get(&[bad], Detail::Whole).await.unwrap();
            let record = record.into_iter().next().flatten().unwrap();
            assert_eq!(record.state, JobState::Failed, "{damage}");
            let error = record.last_error.unwrap();
            assert!(error.contains("cannot be read"), "{damage}: {error}");
            assert_eq!(store.history(bad).await.unwrap().len(), 1);
        }
    }
}

pub(crate) async fn an_older_schema_is_brought_up_to_date(database: Arc<Database>) {
    let older = open(&database).await;
    let held = "INSERT INTO {database}.ratchet_locks (name, owner, fence, expires_at)
                VALUES ('l', 'holder', 7, 9000000000000)";
    database.execute(held).await.unwrap();
    older.close().await;
    let unchanged = next(&database).migrate(false).connect().await;
    assert_kind(
        &unchanged.unwrap_err(),
        StoreErrorKind::SchemaMismatch(SchemaProblem::Behind),
    );
    let pending = next(&database).pending_migrations().await.unwrap();
    assert_eq!(pending, next(&database).migrations().split_off(1));
    let store = next(&database).connect().await.unwrap();
    let applied = "SELECT COUNT(*) FROM {database}.ratchet_migrations";
    assert_eq!(
        database.number(applied).await.unwrap(),
        i64::from(KNOWN) + 2
    );
    // The lock that was stored before the migrations is still held.
    let (lock, other) = (name("l"), name("other"));
    let taken = store.acquire(&lock, &other, Duration::from_secs(9)).await;
    assert!(matches!(
        taken.unwrap(),
        Acquired::Held(held) if held.owner == name("holder")
    ));
    enqueue(&store, job()).await;
    // The older program knows fewer migrations.
    let error = refusal(&database).await;
    assert_kind(&error, StoreErrorKind::SchemaMismatch(SchemaProblem::Newer));
    database
        .execute("DROP TABLE {database}.ratchet_more")
        .await
        .unwrap();
    let error = next(&database).connect().await.unwrap_err();
    assert_altered(&error, "lacks more");
}

pub(crate) async fn time_zones_change_no_time(database: Arc<Database>) {
    let store = open(&database).await;
    let real = "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)";
    let before = database.number(real).await.unwrap();
    let now = store.database_time().await.unwrap();
    let now = ratchet_core::time::to_millis(now);
    let after = database.number(real).await.unwrap();
    assert!((before..=after).contains(&now), "{before} {now} {after}");
    let other = Database::create(&database.url).await.unwrap();
    let pool = sqlx::mysql::MySqlPoolOptions::new()
        .after_connect(|connection, _| {
            Box::pin(async move {
                let zone = sqlx::raw_sql("SET SESSION time_zone = '-11:00'");
                zone.execute(connection).await.map(drop)
            })
        })
        .connect(&other.url)
        .await
        .unwrap();
    let elsewhere = MysqlStore::pool_builder(pool).connect().await.unwrap();
    let id = enqueue(&elsewhere, job()).await;
    let stored = elsewhere.get(&[id], Detail::Whole).await.unwrap();
    let created = stored[0].as_ref().unwrap().created_at;
    assert!(ratchet_core::time::to_millis(created) >= after);
    assert!(created <= elsewhere.database_time().await.unwrap());
    elsewhere.close().await;
    other.take_away().await;
}
