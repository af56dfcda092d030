//! The counters of a database server during a run, and a separate database for each run.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ratchet::sqlserver::{DriverConnection, SqlServerStore};
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

/// Returns whether the URL names a PostgreSQL server. The benchmark can read the counters of such
/// servers only.
fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Returns whether the URL names a MongoDB server.
fn is_mongodb(url: &str) -> bool {
    url.starts_with("mongodb://") || url.starts_with("mongodb+srv://")
}

fn is_mysql(url: &str) -> bool {
    url.starts_with("mysql://") || url.starts_with("mariadb://")
}

fn is_sqlserver(url: &str) -> bool {
    url.starts_with("sqlserver://") || url.starts_with("mssql://")
}

/// A new database on a server, for one run. The program drops the database after the run.
struct Fresh {
    admin: Admin,
    name: String,
    /// The URL of the new database.
    url: String,
}

/// Runs `run` on the database with this URL. If `fresh` is true, the URL is that of a server, and
/// `run` gets a new database on it, which is dropped at the end. `count` prepares the database for
/// counting statements.
pub(crate) async fn on_database<T>(
    url: &str,
    fresh: bool,
    count: bool,
    run: impl AsyncFnOnce(&str) -> Result<T>,
) -> Result<T> {
    if !fresh {
        return run(url).await;
    }
    let fresh = Fresh::create(url, count).await?;
    let done = run(&fresh.url).await;
    fresh.remove().await?;
    done
}

/// Connection to the server. It creates the database before the run, and drops the database after
/// the run.
enum Admin {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    MongoDb(mongodb::Client),
    SqlServer(Box<DriverConnection>),
}

impl Fresh {
    async fn create(url: &str, count: bool) -> Result<Self> {
        let name = format!("ratchet_bench_{}", std::process::id());
        let fresh = with_database(url, &name).context("--fresh needs a URL with a host")?;
        ensure!(
            is_postgres(url) || !count,
            "--count works only with PostgreSQL"
        );
        let admin = if is_mongodb(url) {
            let client = mongodb::Client::with_uri_str(url).await?;
            client.database(&name).drop().await?;
            Admin::MongoDb(client)
        } else if is_sqlserver(url) {
            Admin::SqlServer(Box::new(create_on_sqlserver(url, &name).await?))
        } else if is_mysql(url) {
            let mut server = MySqlConnection::connect(url).await?;
            let create = format!("DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}");
            sqlx::raw_sql(AssertSqlSafe(create))
                .execute(&mut server)
                .await?;
            Admin::MySql(server)
        } else {
            ensure!(
                is_postgres(url),
                "--fresh works only with PostgreSQL, MySQL, SQL Server and MongoDB"
            );
            Admin::Postgres(create_on_postgres(url, &name, &fresh, count).await?)
        };
        Ok(Self {
            admin,
            name,
            url: fresh,
        })
    }

    async fn remove(self) -> Result<()> {
        match self.admin {
            Admin::Postgres(mut server) => {
                let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
                sqlx::raw_sql(AssertSqlSafe(drop))
                    .execute(&mut server)
                    .await?;
            }
            Admin::MySql(mut server) => {
                let drop = format!("DROP DATABASE {}", self.name);
                sqlx::raw_sql(AssertSqlSafe(drop))
                    .execute(&mut server)
                    .await?;
            }
            Admin::MongoDb(client) => client.database(&self.name).drop().await?,
            Admin::SqlServer(mut server) => drop_on_sqlserver(&mut server, &self.name).await?,
        }
        Ok(())
    }
}

/// Drops the database of a run. Retries for up to 10 seconds, because connections of the run may
/// still be closing.
async fn drop_on_sqlserver(server: &mut DriverConnection, name: &str) -> Result<()> {
    const TRIES: usize = 100;
    let alone = alter(name, "SINGLE_USER WITH ROLLBACK IMMEDIATE");
    let drop = format!("{alone} DROP DATABASE {name}");
    for _ in 1..TRIES {
        let dropped = async { server.simple_query(&drop).await?.into_results().await };
        if dropped.await.is_ok() {
            return Ok(());
        }
        // Babelfish cannot close the connections of the run, so wait until they are closed.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.simple_query(&drop).await?.into_results().await?;
    Ok(())
}

async fn create_on_sqlserver(url: &str, name: &str) -> Result<DriverConnection> {
    let mut server = SqlServerStore::builder(url).connect_driver().await?;
    let create = format!("DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name};");
    let versions = alter(name, "READ_COMMITTED_SNAPSHOT ON");
    for statement in [create, versions] {
        server.simple_query(statement).await?.into_results().await?;
    }
    Ok(server)
}

/// Returns the SQL that changes a setting of a SQL Server database. On Babelfish, the SQL has no
/// effect.
fn alter(name: &str, setting: &str) -> String {
    format!(
        "IF SERVERPROPERTY('BabelfishVersion') IS NULL EXEC(N'ALTER DATABASE {name} SET {setting}');"
    )
}

async fn create_on_postgres(
    url: &str,
    name: &str,
    fresh: &str,
    count: bool,
) -> Result<PgConnection> {
    let mut server = PgConnection::connect(url).await?;
    let mut statements = vec![
        format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
        format!("CREATE DATABASE {name}"),
    ];
    if count {
        statements.push(format!(
            "ALTER DATABASE {name} SET pg_stat_statements.track = 'top'"
        ));
    }
    // The checkpoint keeps writes of earlier runs out of this measurement.
    statements.push("CHECKPOINT".to_owned());
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut server)
            .await?;
    }
    if count {
        let mut database = PgConnection::connect(fresh).await?;
        let create = "CREATE EXTENSION IF NOT EXISTS pg_stat_statements";
        sqlx::raw_sql(create).execute(&mut database).await?;
    }
    Ok(server)
}

/// Returns the URL with its database name replaced by `name`.
fn with_database(url: &str, name: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let host = place.split('/').next()?;
    let question = if options.is_empty() { "" } else { "?" };
    Some(format!("{scheme}://{host}/{name}{question}{options}"))
}

/// A connection that reads the counters of a server, and the counters before the run.
pub(crate) struct Counters {
    connection: PgConnection,
    before: Reading,
}

/// Counters of a server at one time.
struct Reading {
    wal_bytes: i64,
    /// The number of statements so far. `None` if the database does not have the extension
    /// pg_stat_statements.
    statements: Option<i64>,
}

/// The work that a run caused on the server.
pub(crate) struct Cost {
    pub(crate) wal_bytes: i64,
    pub(crate) statements: Option<i64>,
}

impl Counters {
    /// Reads the counters before a run. Returns `None` if the server is not PostgreSQL.
    pub(crate) async fn start(url: &str) -> Result<Option<Self>> {
        if !is_postgres(url) {
            return Ok(None);
        }
        let mut connection = PgConnection::connect(url).await?;
        let before = Reading::take(&mut connection).await?;
        Ok(Some(Self { connection, before }))
    }

    pub(crate) async fn stop(mut self) -> Result<Cost> {
        let after = Reading::take(&mut self.connection).await?;
        Ok(Cost {
            wal_bytes: after.wal_bytes - self.before.wal_bytes,
            statements: after
                .statements
                .zip(self.before.statements)
                .map(|(a, b)| a - b),
        })
    }
}

impl Reading {
    async fn take(connection: &mut PgConnection) -> Result<Self> {
        let wal = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
        let wal_bytes = sqlx::query_scalar(wal).fetch_one(&mut *connection).await?;
        let counting =
            "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_stat_statements')";
        let statements = if sqlx::query_scalar(counting)
            .fetch_one(&mut *connection)
            .await?
        {
            // Excludes the benchmark's own statements, such as this query.
            let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
                         WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                           AND query NOT LIKE '%pg_wal_lsn_diff%' AND query NOT LIKE '%pg_extension%'
                           AND query NOT LIKE '%pg_stat_statements%'";
            Some(sqlx::query_scalar(calls).fetch_one(connection).await?)
        } else {
            None
        };
        Ok(Self {
            wal_bytes,
            statements,
        })
    }
}

/// Opens a transaction with a snapshot. Until the returned connection is dropped, vacuum cannot
/// remove rows that are deleted after the start of the transaction.
pub(crate) async fn hold_snapshot(url: &str) -> Result<PgConnection> {
    let mut connection = PgConnection::connect(url).await?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    sqlx::raw_sql(begin).execute(&mut connection).await?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_a_url_is_replaced() {
        let with = |url| with_database(url, "x").unwrap();
        assert_eq!(
            with("postgres://me:pw@host:1/old?a=b"),
            "postgres://me:pw@host:1/x?a=b"
        );
        assert_eq!(with("postgres://host"), "postgres://host/x");
        assert_eq!(with("postgres://host/old"), "postgres://host/x");
    }
}
