//! The server that the tests use, and a separate database for each test.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Residue, Slot, TestClock, TestDatabase, TestServer, Vandal};
use ratchet_core::{JobId, Name};
use ratchet_store_mysql::{Builder, MysqlStore};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use tokio::sync::Mutex;

/// The server of the tests, with a user who may create databases.
pub(crate) const SERVER: TestServer = TestServer::new("mysql", "RATCHET_TEST_MYSQL_URL");

/// Returns the id of this test run.
fn run() -> String {
    std::env::var("NEXTEST_RUN_ID").unwrap_or_default()
}

/// Returns an id as a literal.
#[allow(dead_code, reason = "each test binary uses its part of this module")]
pub(crate) fn literal(id: JobId) -> String {
    format!("x'{}'", id.as_uuid().simple())
}

/// Returns a builder of a store on the database of this URL, with few connections, because many
/// tests run at once.
pub(crate) fn builder(url: &str) -> Builder {
    MysqlStore::builder(url)
        .max_connections(4)
        .acquire_timeout(Duration::from_secs(20))
}

/// Returns `url` with another database.
pub(crate) fn with_database(url: &str, name: &str) -> String {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let authority = place.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    match query {
        "" => format!("{authority}/{name}"),
        query => format!("{authority}/{name}?{query}"),
    }
}

/// A database for one test.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) name: String,
    connection: Mutex<MySqlConnection>,
    /// The slot of the database, if later tests reuse it.
    slot: Option<Slot>,
}

/// A transaction that a session has open.
#[allow(dead_code, reason = "each test binary uses its part of this module")]
pub(crate) struct OpenTransaction {
    /// Whether the session waits for a lock.
    pub(crate) waits: bool,
    /// Number of rows that the transaction has locked.
    pub(crate) rows_locked: i64,
}

/// Creates the clock. `left_by` is NULL while a test uses the database. If the test ends normally,
/// it sets `left_by` to the id of the test run.
const CREATE: &str = "
    CREATE DATABASE {database} DEFAULT CHARACTER SET latin1;
    CREATE TABLE {database}.ratchet_test_clock (now_ms BIGINT NOT NULL, left_by VARCHAR(99))
        ENGINE = InnoDB;
    INSERT INTO {database}.ratchet_test_clock VALUES (1790000000123, NULL)";

impl Database {
    /// Creates a database as [`create`](Self::create) does, with this name.
    pub(crate) async fn called(url: &str, name: &str) -> Result<Self, BoxError> {
        let database = Self::named(url, name).await?;
        database.execute(CREATE).await?;
        Ok(database)
    }

    /// Returns an empty database that reuses the tables of an earlier test, because creating and
    /// dropping tables takes longer than most cases. Creates a new database if there are no slots,
    /// or if another run has locked the slot on this server.
    ///
    /// Recreates the tables at their first use in a run, because the migrations may have changed.
    /// Also recreates them if the earlier test was killed, because its last writes may still be in
    /// progress.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn reused(url: &str) -> Result<Self, BoxError> {
        let Some(slot) = Slot::take() else {
            return Self::create(url).await;
        };
        let mut database = Self::named(url, &format!("ratchet_test_slot_{slot}")).await?;
        let lock = format!("SELECT GET_LOCK('{}', 0)", database.name);
        if database.number(&lock).await? != 1 {
            return Self::create(url).await;
        }
        let left = format!(
            "SELECT COUNT(*) FROM {{database}}.ratchet_test_clock
             WHERE left_by = '{}' AND EXISTS (SELECT 1 FROM {{database}}.ratchet_migrations)",
            run()
        );
        // The query fails if there is no database yet, or a test has dropped the tables.
        match database.number(&left).await {
            Ok(1) if database.empty().await.is_ok() => {}
            _ => database.renew().await?,
        }
        database.slot = Some(slot);
        Ok(database)
    }

    /// Drops the database with its tables, and creates an empty one.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn renew(&self) -> Result<(), BoxError> {
        self.execute("DROP DATABASE IF EXISTS {database}").await?;
        self.execute(CREATE).await
    }

    async fn named(url: &str, name: &str) -> Result<Self, BoxError> {
        Ok(Self {
            url: with_database(url, name),
            name: name.to_owned(),
            connection: Mutex::new(MySqlConnection::connect(url).await?),
            slot: None,
        })
    }

    /// Deletes all rows except those of the migrations and the gates, and resets the clock.
    async fn empty(&self) -> Result<(), BoxError> {
        let tables = self
            .rows(&format!(
                "SELECT CAST(table_name AS CHAR) FROM information_schema.tables
                 WHERE table_schema = '{}' AND table_name NOT IN
                     ('ratchet_migrations', 'ratchet_gates', 'ratchet_test_clock')",
                self.name
            ))
            .await?;
        let mut script = "UPDATE {database}.ratchet_test_clock
                          SET now_ms = 1790000000123, left_by = NULL"
            .to_owned();
        for table in tables {
            let table: String = table.try_get(0)?;
            script.push_str(&format!("; DELETE FROM {{database}}.`{table}`"));
        }
        self.execute(&script).await
    }

    /// Returns a builder of a store on the database.
    pub(crate) fn builder(&self) -> Builder {
        builder(&self.url)
    }

    /// Runs statements. Replaces `{database}` by the quoted name of the database.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), BoxError> {
        let sql = self.sql(sql);
        let mut connection = self.connection.lock().await;
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
            .await?;
        Ok(())
    }

    /// Reads rows. Replaces `{database}` in the statement by the quoted name of the database.
    pub(crate) async fn rows(&self, sql: &str) -> Result<Vec<MySqlRow>, BoxError> {
        let sql = self.sql(sql);
        let mut connection = self.connection.lock().await;
        Ok(connection
            .fetch_all(sqlx::raw_sql(AssertSqlSafe(sql)))
            .await?)
    }

    /// Reads one number.
    pub(crate) async fn number(&self, sql: &str) -> Result<i64, BoxError> {
        let rows = self.rows(sql).await?;
        Ok(rows.first().ok_or("no row")?.try_get(0)?)
    }

    /// Returns once a call of a store in this database waits for a lock.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn until_a_call_waits(&self) {
        self.until_calls_wait(1).await;
    }

    /// Returns once at least `count` calls on this database wait for locks.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn until_calls_wait(&self, count: usize) {
        let waiting = async || {
            self.transactions("TRUE")
                .await
                .iter()
                .filter(|it| it.waits)
                .count()
        };
        while waiting().await < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns the open transactions of the sessions in this database that meet an SQL condition.
    ///
    /// Reads the report of the engine. The table `innodb_trx` has the same data, but the server
    /// refreshes it only if no session has read it for 100 ms, and other tests read it too.
    #[allow(dead_code, reason = "each test binary uses its part of this module")]
    pub(crate) async fn transactions(&self, condition: &str) -> Vec<OpenTransaction> {
        let report = self.rows("SHOW ENGINE INNODB STATUS").await;
        let report: String = report.expect("the server answers")[0].get("Status");
        let sessions = format!(
            "SELECT CAST(id AS SIGNED) FROM information_schema.processlist
             WHERE db = '{}' AND {condition}",
            self.name
        );
        let sessions = self.rows(&sessions).await.expect("the server answers");
        let sessions: Vec<i64> = sessions.iter().map(|row| row.get(0)).collect();
        let (_, list) = report.split_once("LIST OF TRANSACTIONS").expect("a list");
        let of_a_session = |text: &str| {
            if text.lines().next()?.ends_with("not started") {
                return None;
            }
            let session = number_in(text, "thread id ", ",")?;
            sessions.contains(&session).then(|| OpenTransaction {
                waits: text.contains("LOCK WAIT"),
                rows_locked: number_in(text, "heap size ", " row lock(s)").unwrap_or_default(),
            })
        };
        list.split("---TRANSACTION ")
            .filter_map(of_a_session)
            .collect()
    }

    fn sql(&self, sql: &str) -> String {
        sql.replace("{database}", &format!("`{}`", self.name))
    }
}

/// Returns the last number between `before` and `after` in a text.
fn number_in(text: &str, before: &str, after: &str) -> Option<i64> {
    let (_, rest) = text.split_once(before)?;
    let (within, _) = rest.split_once(after)?;
    within.rsplit(' ').next()?.parse().ok()
}

#[async_trait]
impl TestDatabase for Database {
    /// Creates an empty database whose clock shows the same time in every test.
    async fn create(url: &str) -> Result<Self, BoxError> {
        Self::called(url, &format!("ratchet_test_{}", JobId::new())).await
    }

    /// Drops the database, unless a later test reuses it.
    async fn take_away(&self) {
        let end = match self.slot {
            Some(_) => {
                "UPDATE {database}.ratchet_test_clock SET left_by = '{run}';
                 DO RELEASE_LOCK('{name}')"
            }
            None => "DROP DATABASE {database}",
        };
        let end = end.replace("{run}", &run()).replace("{name}", &self.name);
        if let Err(error) = self.execute(&end).await {
            eprintln!("could not drop the database {}: {error}", self.name);
        }
    }
}

#[async_trait]
impl TestClock for Database {
    async fn move_by(&self, millis: i64) {
        let sql = format!("UPDATE {{database}}.ratchet_test_clock SET now_ms = now_ms + {millis}");
        if let Err(error) = self.execute(&sql).await {
            panic!("cannot set the clock of the tests: {error}");
        }
    }
}

#[async_trait]
impl Residue for Database {
    async fn rows_of_jobs(&self) -> Result<u64, BoxError> {
        let mut rows = 0;
        for table in ratchet_sql::JOB_TABLES.iter().chain(&["turns"]) {
            let count = format!("SELECT COUNT(*) FROM {{database}}.ratchet_{table}");
            rows += self.number(&count).await?;
        }
        Ok(rows.try_into()?)
    }
}

#[async_trait]
impl Vandal for Database {
    async fn spoil(&self, job: JobId) -> Result<(), BoxError> {
        let spoil = "UPDATE {database}.ratchet_job_data SET retry = '{' WHERE id = {job}";
        self.execute(&spoil.replace("{job}", &literal(job))).await
    }

    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        let spoil = "UPDATE {database}.ratchet_jobs SET route = 4711 WHERE id = {job}";
        self.execute(&spoil.replace("{job}", &literal(job))).await
    }

    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        let spoil =
            "UPDATE {database}.ratchet_recurring SET definition = '{' WHERE name = '{name}'";
        self.execute(&spoil.replace("{name}", name.as_str())).await
    }

    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError> {
        let spoil = "INSERT INTO {database}.ratchet_locks (name, owner, fence, expires_at)
                         SELECT CONCAT(name, CHAR(1)), owner, fence, expires_at
                         FROM {database}.ratchet_locks WHERE name = '{name}';
                     UPDATE {database}.ratchet_locks SET owner = '' WHERE name = '{name}'";
        self.execute(&spoil.replace("{name}", name.as_str())).await
    }

    async fn lose_routes(&self) -> Result<(), BoxError> {
        for table in ratchet_sql::JOB_TABLES.iter().chain(&["lanes", "turns"]) {
            self.execute(&format!("DELETE FROM {{database}}.ratchet_{table}"))
                .await?;
        }
        self.execute("DELETE FROM {database}.ratchet_routes WHERE id > 1")
            .await
    }

    async fn spoil_schema(&self) -> Result<(), BoxError> {
        self.execute("DROP TABLE {database}.ratchet_migrations")
            .await
    }
}
