//! The server that the tests use, and a separate schema for each test.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Residue, TestClock, TestDatabase, TestServer, Vandal};
use ratchet_core::{JobId, Name};
use ratchet_store_sqlserver::{Builder, SqlServerStore};
use tiberius::{AuthMethod, Config, EncryptionLevel, Row};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};
use url::Url;

/// The server of the tests, with a user who may create schemas in its database.
pub(crate) const SERVER: TestServer = TestServer::new("sqlserver", "RATCHET_TEST_SQLSERVER_URL");

/// Returns the name of the database of a URL.
pub(crate) fn database(url: &str) -> String {
    let path = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'));
    let path = path.map_or("", |(_, path)| path.split('?').next().unwrap_or_default());
    percent_encoding::percent_decode_str(path)
        .decode_utf8_lossy()
        .into_owned()
}

/// A connection of the driver.
pub(crate) type Client = tiberius::Client<Compat<TcpStream>>;

/// Opens a connection that is independent of the store's.
pub(crate) async fn connect(url: &str) -> Result<Client, BoxError> {
    let url = Url::parse(url)?;
    let mut config = Config::new();
    config.host(url.host_str().ok_or("the URL has no host")?);
    config.port(url.port().unwrap_or(1433));
    let decoded = |part| percent_encoding::percent_decode_str(part).decode_utf8();
    config.authentication(AuthMethod::sql_server(
        decoded(url.username())?,
        decoded(url.password().unwrap_or_default())?,
    ));
    config.database(decoded(url.path().trim_start_matches('/'))?);
    config.trust_cert();
    if url
        .query_pairs()
        .any(|pair| pair == ("encrypt".into(), "off".into()))
    {
        config.encryption(EncryptionLevel::NotSupported);
    }
    let stream = TcpStream::connect(config.get_addr()).await?;
    stream.set_nodelay(true)?;
    // Boxed, because the future of a handshake is large.
    let connecting = Client::connect(config, stream.compat_write());
    Ok(Box::pin(connecting).await?)
}

/// Builds a store on this schema with few connections: many tests run at once, and on Babelfish the
/// first use of each statement on each connection is slow.
pub(crate) fn builder(url: &str, schema: &str) -> Builder {
    SqlServerStore::builder(url)
        .schema(schema)
        .max_connections(3)
        .acquire_timeout(Duration::from_secs(60))
        .deadline(Duration::from_secs(60))
}

/// A schema for one test.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) url: String,
    pub(crate) name: String,
    client: Mutex<Client>,
}

impl Schema {
    /// Creates a schema as [`create`](Self::create) does, with this name.
    pub(crate) async fn called(url: &str, name: &str) -> Result<Self, BoxError> {
        let schema = Self {
            url: url.to_owned(),
            name: name.to_owned(),
            client: Mutex::new(connect(url).await?),
        };
        schema.execute("CREATE SCHEMA {schema}").await?;
        schema
            .execute(
                "CREATE TABLE {schema}.test_clock (now_ms bigint NOT NULL);
                 INSERT INTO {schema}.test_clock VALUES (1790000000123)",
            )
            .await?;
        Ok(schema)
    }

    /// Returns a schema that already exists.
    pub(crate) async fn adopt(url: &str, name: &str) -> Self {
        match connect(url).await {
            Ok(client) => Self {
                url: url.to_owned(),
                name: name.to_owned(),
                client: Mutex::new(client),
            },
            Err(error) => panic!("cannot connect: {error}"),
        }
    }

    /// Builds a store on the schema.
    pub(crate) fn builder(&self) -> Builder {
        builder(&self.url, &self.name)
    }

    /// Runs statements. Replaces `{schema}` by the quoted name of the schema.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), BoxError> {
        self.rows(sql).await.map(drop)
    }

    /// Reads rows. Replaces `{schema}` in the statement by the quoted name of the schema.
    pub(crate) async fn rows(&self, sql: &str) -> Result<Vec<Row>, BoxError> {
        let sql = self.sql(sql);
        let mut client = self.client.lock().await;
        let results = client.simple_query(sql).await?.into_results().await?;
        Ok(results.into_iter().flatten().collect())
    }

    /// Returns whether the server is Babelfish.
    pub(crate) async fn is_babelfish(&self) -> bool {
        let version = "SELECT CAST(SERVERPROPERTY('BabelfishVersion') AS nvarchar(128))";
        match self.rows(version).await {
            Ok(rows) => rows[0].get::<&str, _>(0).is_some(),
            Err(error) => panic!("cannot read the version of Babelfish: {error}"),
        }
    }

    /// Returns a statement in which `{schema}` is replaced by the quoted name of the schema.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let quoted = format!("[{}]", self.name.replace(']', "]]"));
        sql.replace("{schema}", &quoted)
    }

    /// Drops a database that a test has created in addition to its schema.
    pub(crate) async fn drop_database(&self, name: &str) {
        // Retries, because it may take a moment until the last session has ended.
        let drop = format!("DROP DATABASE [{name}]");
        for _ in 0..50 {
            if self.execute(&drop).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        eprintln!("could not drop the database {name}");
    }

    async fn drop_all(&self) -> Result<(), BoxError> {
        let name = self.name.replace('\'', "''");
        let tables = self
            .rows(&format!(
                "SELECT CAST(t.name AS nvarchar(128)) FROM sys.tables AS t \
                 JOIN sys.schemas AS s ON s.schema_id = t.schema_id WHERE s.name = N'{name}'"
            ))
            .await?;
        let mut sql = String::new();
        for table in &tables {
            let table: &str = table.try_get(0)?.ok_or("a table without a name")?;
            sql += &format!("DROP TABLE {{schema}}.[{table}];\n");
        }
        self.execute(&sql).await?;
        self.execute("DROP SCHEMA {schema}").await
    }
}

#[async_trait]
impl TestDatabase for Schema {
    /// Creates an empty schema whose clock shows the same time in every test.
    async fn create(url: &str) -> Result<Self, BoxError> {
        Self::called(url, &format!("test_{}", JobId::new())).await
    }

    /// Drops the schema.
    async fn take_away(&self) {
        if let Err(error) = self.drop_all().await {
            eprintln!("could not drop the schema {}: {error}", self.name);
        }
    }
}

#[async_trait]
impl TestClock for Schema {
    async fn move_by(&self, millis: i64) {
        let sql = format!("UPDATE {{schema}}.test_clock SET now_ms = now_ms + ({millis})");
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
            let count = format!("SELECT COUNT_BIG(*) FROM {{schema}}.{table}");
            let counted: Option<i64> = self.rows(&count).await?[0].try_get(0)?;
            rows += counted.ok_or("a count without a number")?;
        }
        Ok(rows.try_into()?)
    }
}

#[async_trait]
impl Vandal for Schema {
    async fn spoil(&self, job: JobId) -> Result<(), BoxError> {
        let spoil = "UPDATE {schema}.job_data SET retry = N'{' WHERE id = 0x{job}";
        let id = job.as_uuid().simple().to_string();
        self.execute(&spoil.replace("{job}", &id)).await
    }

    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        let spoil = "UPDATE {schema}.jobs SET route = 4711 WHERE id = 0x{job}";
        let id = job.as_uuid().simple().to_string();
        self.execute(&spoil.replace("{job}", &id)).await
    }

    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        let spoil = "UPDATE {schema}.recurring SET definition = N'{' WHERE name = N'{name}'";
        self.execute(&spoil.replace("{name}", name.as_str())).await
    }

    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError> {
        let spoil = "INSERT INTO {schema}.locks (name, owner, fence, expires_at)
                         SELECT CONCAT(name, NCHAR(1)), owner, fence, expires_at
                         FROM {schema}.locks WHERE name = N'{name}';
                     UPDATE {schema}.locks SET owner = N'' WHERE name = N'{name}'";
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
