//! The server that the tests use, and a separate schema for each test.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Residue, Slot, TestClock, TestDatabase, TestServer, Vandal};
use ratchet_core::{JobId, Name};
use ratchet_store_postgres::{Builder, PostgresStore};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use tokio::sync::Mutex;

/// The server of the tests, with a user who may create schemas in its database.
pub(crate) const SERVER: TestServer = TestServer::new("postgres", "RATCHET_TEST_POSTGRES_URL");

/// Returns the URL of a pooler in front of the server, if there is one. The tests use it for all
/// calls that work through a pooler.
pub(crate) fn pooler() -> Option<String> {
    std::env::var("RATCHET_TEST_PGBOUNCER_URL").ok()
}

/// A standby of the server.
#[allow(dead_code, reason = "each test binary uses its part of this module")]
pub(crate) const STANDBY: TestServer =
    TestServer::new("postgres-standby", "RATCHET_TEST_POSTGRES_STANDBY_URL");

/// Returns the host and the port of a server.
#[allow(dead_code, reason = "each test binary uses its part of this module")]
pub(crate) fn host(url: &str) -> String {
    let authority = url.split("://").nth(1).unwrap_or(url);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.to_owned()
}

/// Returns `url` with another host and port.
#[allow(dead_code, reason = "each test binary uses its part of this module")]
pub(crate) fn at(url: &str, address: &str) -> String {
    url.replacen(&host(url), address, 1)
}

/// Returns a builder of a store on this schema, with few connections, because many tests run at
/// once.
pub(crate) fn builder(url: &str, schema: &str) -> Builder {
    let builder = match pooler() {
        Some(pooler) => PostgresStore::builder(&pooler).direct(url),
        None => PostgresStore::builder(url),
    };
    builder
        .schema(schema)
        .max_connections(4)
        .acquire_timeout(Duration::from_secs(20))
}

/// Returns the id of this test run.
fn run() -> String {
    std::env::var("NEXTEST_RUN_ID").unwrap_or_default()
}

/// A schema for one test.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) url: String,
    pub(crate) name: String,
    connection: Mutex<PgConnection>,
    /// The slot of the schema, if later tests reuse it.
    slot: Option<Slot>,
}

/// Deletes all rows except those of the migrations, and marks the schema as in use.
const EMPTY: &str = "
    DO $empty$
    DECLARE
        one regclass;
        filled boolean;
    BEGIN
        FOR one IN
            SELECT oid FROM pg_catalog.pg_class
            WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r'
              AND relname NOT IN ('migrations', 'test_clock')
        LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM %s)', one) INTO filled;
            IF filled THEN
                EXECUTE format('TRUNCATE %s', one);
            END IF;
        END LOOP;
    END
    $empty$;
    UPDATE {schema}.test_clock SET now_ms = 1790000000123, left_by = NULL";

/// Creates the schema. `left_by` is NULL while a test uses the schema. If the test ends normally,
/// it sets `left_by` to the id of the test run.
const CREATE: &str = "
    CREATE SCHEMA {schema};
    CREATE TABLE {schema}.test_clock (now_ms bigint NOT NULL, left_by text);
    INSERT INTO {schema}.test_clock VALUES (1790000000123, NULL)";

impl Schema {
    /// Creates a schema as [`create`](Self::create) does, with this name.
    pub(crate) async fn called(url: &str, name: &str) -> Result<Self, BoxError> {
        let schema = Self::named(url, name).await?;
        schema.execute(CREATE).await?;
        Ok(schema)
    }

    /// Returns an empty schema that reuses the tables of an earlier test, because creating and
    /// dropping tables takes longer than most cases. Creates a new schema if there are no slots, or
    /// if another run has locked the slot on this server.
    ///
    /// Recreates the tables at their first use in a run, because the migrations may have changed.
    /// Also recreates them if the earlier test was killed, because its last writes may still be in
    /// progress.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn reused(url: &str) -> Result<Self, BoxError> {
        let Some(slot) = Slot::take() else {
            return Self::create(url).await;
        };
        let mut schema = Self::named(url, &format!("test_slot_{slot}")).await?;
        let lock = "SELECT pg_try_advisory_lock(hashtext('{name}'))";
        let locked = schema.rows(&lock.replace("{name}", &schema.name)).await?;
        if !locked[0].try_get::<bool, _>(0)? {
            return Self::create(url).await;
        }
        let left = format!(
            "SELECT FROM {{schema}}.test_clock
             WHERE left_by = '{}' AND EXISTS (SELECT FROM {{schema}}.migrations)",
            run()
        );
        // The query fails if there is no schema yet, or a test has dropped the tables.
        match schema.rows(&left).await {
            Ok(found) if !found.is_empty() && schema.execute(EMPTY).await.is_ok() => {}
            _ => schema.renew().await?,
        }
        schema.slot = Some(slot);
        Ok(schema)
    }

    /// Drops the schema with its tables, and creates an empty one.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn renew(&self) -> Result<(), BoxError> {
        self.execute("DROP SCHEMA IF EXISTS {schema} CASCADE")
            .await?;
        self.execute(CREATE).await
    }

    async fn named(url: &str, name: &str) -> Result<Self, BoxError> {
        Ok(Self {
            url: url.to_owned(),
            name: name.to_owned(),
            connection: Mutex::new(PgConnection::connect(url).await?),
            slot: None,
        })
    }

    /// Returns a builder of a store on the schema.
    pub(crate) fn builder(&self) -> Builder {
        builder(&self.url, &self.name)
    }

    /// Runs statements. Replaces `{schema}` by the quoted name of the schema.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), BoxError> {
        let sql = self.sql(sql);
        let mut connection = self.connection.lock().await;
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
            .await?;
        Ok(())
    }

    /// Reads rows. Replaces `{schema}` in the statement by the quoted name of the schema.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn rows(&self, sql: &str) -> Result<Vec<PgRow>, BoxError> {
        let sql = self.sql(sql);
        let mut connection = self.connection.lock().await;
        Ok(connection
            .fetch_all(sqlx::raw_sql(AssertSqlSafe(sql)))
            .await?)
    }

    /// Returns once a call of a store in this schema waits for a lock.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn until_a_call_waits(&self) {
        let waiting = "SELECT FROM pg_stat_activity AS session
                       WHERE wait_event_type = 'Lock' AND EXISTS (
                           SELECT FROM pg_locks JOIN pg_class ON pg_class.oid = relation
                           WHERE pg_locks.pid = session.pid
                             AND relnamespace = '{schema}'::regnamespace)";
        while self
            .rows(waiting)
            .await
            .expect("the server answers")
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn sql(&self, sql: &str) -> String {
        let quoted = format!("\"{}\"", self.name.replace('"', "\"\""));
        sql.replace("{schema}", &quoted)
    }
}

#[async_trait]
impl TestDatabase for Schema {
    /// Creates an empty schema whose clock shows the same time in every test.
    async fn create(url: &str) -> Result<Self, BoxError> {
        Self::called(url, &format!("test_{}", JobId::new())).await
    }

    /// Drops the schema, unless a later test reuses it.
    async fn take_away(&self) {
        let end = match self.slot {
            Some(_) => {
                "UPDATE {schema}.test_clock SET left_by = '{run}';
                        SELECT pg_advisory_unlock_all()"
            }
            None => "DROP SCHEMA {schema} CASCADE",
        };
        if let Err(error) = self.execute(&end.replace("{run}", &run())).await {
            eprintln!("could not drop the schema {}: {error}", self.name);
        }
    }
}

#[async_trait]
impl TestClock for Schema {
    async fn move_by(&self, millis: i64) {
        let sql = format!("UPDATE {{schema}}.test_clock SET now_ms = now_ms + {millis}");
        if let Err(error) = self.execute(&sql).await {
            panic!("cannot set the clock of the tests: {error}");
        }
    }
}

#[async_trait]
impl Residue for Schema {
    async fn rows_of_jobs(&self) -> Result<u64, BoxError> {
        let mut rows = 0;
        for table in ratchet_sql::JOB_TABLES {
            let count = format!("SELECT count(*) FROM {{schema}}.{table}");
            rows += self.rows(&count).await?[0].try_get::<i64, _>(0)?;
        }
        Ok(rows.try_into()?)
    }
}

#[async_trait]
impl Vandal for Schema {
    async fn spoil(&self, job: JobId) -> Result<(), BoxError> {
        let spoil = "UPDATE {schema}.job_data SET retry = '{' WHERE id = '{job}'";
        self.execute(&spoil.replace("{job}", &job.to_string()))
            .await
    }

    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        let spoil = "UPDATE {schema}.jobs SET route = 4711 WHERE id = '{job}'";
        self.execute(&spoil.replace("{job}", &job.to_string()))
            .await
    }

    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        let spoil = "UPDATE {schema}.recurring SET definition = '{' WHERE name = '{name}'";
        self.execute(&spoil.replace("{name}", name.as_str()))
            .await?;
        Ok(())
    }

    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError> {
        let spoil = "INSERT INTO {schema}.locks (name, owner, fence, expires_at)
                         SELECT name || chr(1), owner, fence, expires_at
                         FROM {schema}.locks WHERE name = '{name}';
                     UPDATE {schema}.locks SET owner = '' WHERE name = '{name}'";
        self.execute(&spoil.replace("{name}", name.as_str())).await
    }

    async fn lose_routes(&self) -> Result<(), BoxError> {
        for table in ratchet_sql::JOB_TABLES.iter().chain(&["lanes"]) {
            self.execute(&format!("DELETE FROM {{schema}}.{table}"))
                .await?;
        }
        self.execute("DELETE FROM {schema}.routes WHERE id > 1")
            .await
    }

    async fn spoil_schema(&self) -> Result<(), BoxError> {
        self.execute("DROP TABLE {schema}.migrations").await
    }
}
