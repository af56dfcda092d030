//! What a database server knows of a run, and a database of its own for each.

use anyhow::{Context, Result, ensure};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

/// Whether the URL names a server that is asked for counters.
fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Whether the URL names a MongoDB, which has no counters that a run could be told from others by.
fn is_mongodb(url: &str) -> bool {
    url.starts_with("mongodb://") || url.starts_with("mongodb+srv://")
}

/// A new database on a server, for one run.
pub(crate) struct Fresh {
    server: Server,
    name: String,
    /// The URL of the new database.
    pub(crate) url: String,
}

enum Server {
    Postgres(PgConnection),
    MongoDb(mongodb::Client),
}

impl Fresh {
    pub(crate) async fn create(url: &str, count: bool) -> Result<Self> {
        let name = format!("ratchet_bench_{}", std::process::id());
        let fresh = with_database(url, &name).context("no URL with a host")?;
        let server = if is_mongodb(url) {
            ensure!(!count, "--count is for PostgreSQL only");
            let client = mongodb::Client::with_uri_str(url).await?;
            client.database(&name).drop().await?;
            Server::MongoDb(client)
        } else {
            ensure!(
                is_postgres(url),
                "--fresh is for PostgreSQL and MongoDB only"
            );
            Server::Postgres(create_on_postgres(url, &name, &fresh, count).await?)
        };
        Ok(Self {
            server,
            name,
            url: fresh,
        })
    }

    pub(crate) async fn remove(self) -> Result<()> {
        match self.server {
            Server::Postgres(mut server) => {
                let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
                sqlx::raw_sql(AssertSqlSafe(drop))
                    .execute(&mut server)
                    .await?;
            }
            Server::MongoDb(client) => client.database(&self.name).drop().await?,
        }
        Ok(())
    }
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
    // What earlier runs wrote is not paid for in this one.
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

/// The URL with another database.
fn with_database(url: &str, name: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let host = place.split('/').next()?;
    let question = if options.is_empty() { "" } else { "?" };
    Some(format!("{scheme}://{host}/{name}{question}{options}"))
}

/// Reads the counters of a server.
pub(crate) struct Counters {
    connection: PgConnection,
    before: Reading,
}

/// The counters at one moment.
struct Reading {
    wal_bytes: i64,
    /// Present if pg_stat_statements is counting in this database.
    statements: Option<i64>,
}

/// What a run cost.
pub(crate) struct Cost {
    pub(crate) wal_bytes: i64,
    pub(crate) statements: Option<i64>,
}

impl Counters {
    /// None for a database that has none.
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
            // Not the statements of this file.
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

/// A transaction whose snapshot keeps vacuum from removing anything, until it is dropped.
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
