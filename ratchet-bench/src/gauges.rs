//! The gauges of a database: how much its server has worked since it started, and how large it is.

use std::fs;
use std::ops::Sub;

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use serde::Serialize;
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::sizes::{self, Sizes};

/// The work that a server has done. A figure that the server does not count is `None`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Work {
    /// Statements of PostgreSQL, or requests of MongoDB.
    pub(crate) statements: Option<f64>,
    /// Rows that were read from the table `nodes`.
    pub(crate) node_rows: Option<f64>,
    /// Flushes of the write-ahead log or of the journal.
    pub(crate) flushes: Option<f64>,
    /// CPU time of the server's processes, in milliseconds.
    pub(crate) cpu_ms: Option<f64>,
}

impl Work {
    /// Divides every figure by `divisor`, and rounds the results to three decimal places.
    pub(crate) fn per(self, divisor: f64) -> Self {
        let each =
            |figure: Option<f64>| figure.map(|figure| (figure / divisor * 1e3).round() / 1e3);
        Self {
            statements: each(self.statements),
            node_rows: each(self.node_rows),
            flushes: each(self.flushes),
            cpu_ms: each(self.cpu_ms),
        }
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let grown = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        Self {
            statements: grown(self.statements, before.statements),
            node_rows: grown(self.node_rows, before.node_rows),
            flushes: grown(self.flushes, before.flushes),
            cpu_ms: grown(self.cpu_ms, before.cpu_ms),
        }
    }
}

/// A connection that reads the gauges of a database.
pub(crate) enum Gauges {
    Postgres(PgConnection),
    MongoDb(mongodb::Client),
    Sqlite(rusqlite::Connection),
    /// A database whose gauges are not read.
    None,
}

impl Gauges {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let scheme = url.split(':').next().unwrap_or_default();
        Ok(match scheme {
            "postgres" | "postgresql" => Self::Postgres(PgConnection::connect(url).await?),
            "mongodb" | "mongodb+srv" => Self::MongoDb(mongodb::Client::with_uri_str(url).await?),
            "sqlite" => {
                let path = url.split_once(':').map_or(url, |(_, path)| path);
                let path = path.strip_prefix("//").unwrap_or(path);
                Self::Sqlite(rusqlite::Connection::open(path)?)
            }
            _ => Self::None,
        })
    }

    pub(crate) async fn read(&mut self) -> Result<Work> {
        match self {
            Self::Postgres(connection) => postgres(connection).await,
            Self::MongoDb(client) => {
                let admin = client.database("admin");
                let status = admin.run_command(doc! { "serverStatus": 1 }).await?;
                Ok(mongodb(&status))
            }
            Self::Sqlite(_) | Self::None => Ok(Work::default()),
        }
    }

    /// Returns the sizes of the database. They are unknown for a database whose gauges are not
    /// read.
    pub(crate) async fn sizes(&mut self) -> Result<Sizes> {
        match self {
            Self::Postgres(connection) => sizes::postgres(connection).await,
            Self::MongoDb(client) => {
                // Without a name in the URL, the store uses this database.
                let database = client.default_database();
                sizes::mongodb(&database.unwrap_or_else(|| client.database("ratchet"))).await
            }
            Self::Sqlite(connection) => sizes::sqlite(connection),
            Self::None => Ok(Sizes::default()),
        }
    }

    /// Returns up to `most` statements that PostgreSQL has run, the most frequent first. Each item
    /// contains the number of calls, the number of rows returned or changed, and the text.
    pub(crate) async fn statements(&mut self, most: i64) -> Result<Vec<(i64, i64, String)>> {
        let Self::Postgres(connection) = self else {
            return Ok(Vec::new());
        };
        let frequent = "SELECT calls, rows, regexp_replace(query, '\\s+', ' ', 'g')
                        FROM pg_stat_statements
                        WHERE dbid = (SELECT oid FROM pg_database
                                      WHERE datname = current_database())
                        ORDER BY calls DESC LIMIT $1";
        let rows = sqlx::query_as(frequent).bind(most).fetch(connection);
        Ok(rows.try_collect().await?)
    }
}

async fn postgres(connection: &mut PgConnection) -> Result<Work> {
    let counting =
        "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_stat_statements')";
    let statements: Option<i64> = match sqlx::query_scalar(counting)
        .fetch_one(&mut *connection)
        .await?
    {
        true => {
            let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
                         WHERE dbid = (SELECT oid FROM pg_database
                                       WHERE datname = current_database())";
            Some(
                sqlx::query_scalar(calls)
                    .fetch_one(&mut *connection)
                    .await?,
            )
        }
        false => None,
    };
    let rows = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
                FROM pg_stat_user_tables WHERE relname = 'nodes'";
    let node_rows: i64 = sqlx::query_scalar(rows).fetch_one(&mut *connection).await?;
    let flushes: i64 = sqlx::query_scalar("SELECT wal_sync FROM pg_stat_wal")
        .fetch_one(&mut *connection)
        .await?;
    let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(connection)
        .await?;
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let figure = |count: i64| count as f64;
    Ok(Work {
        statements: statements.map(figure),
        node_rows: Some(figure(node_rows)),
        flushes: Some(figure(flushes)),
        cpu_ms: family_cpu(backend).ok(),
    })
}

fn mongodb(status: &Document) -> Work {
    let number = |path: &[&str]| number(status, path);
    let user = number(&["extra_info", "user_time_us"]);
    let system = number(&["extra_info", "system_time_us"]);
    Work {
        statements: number(&["network", "numRequests"]),
        node_rows: None,
        flushes: number(&["wiredTiger", "log", "log sync operations"]),
        cpu_ms: user.zip(system).map(|(user, system)| (user + system) / 1e3),
    }
}

/// Returns the number in the field with this path, whatever its BSON type.
pub(crate) fn number(document: &Document, path: &[&str]) -> Option<f64> {
    let (last, path) = path.split_last()?;
    let inner = path
        .iter()
        .try_fold(document, |inner, field| inner.get_document(field).ok())?;
    let value = inner.get(last)?;
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let figure = |count: i64| count as f64;
    value
        .as_f64()
        .or_else(|| value.as_i64().map(figure))
        .or_else(|| value.as_i32().map(f64::from))
}

/// Returns the CPU time of a PostgreSQL server on this machine, in milliseconds. `child` is the id
/// of one of the server's processes. Adds up the CPU times of the parent of `child`, and of all
/// children of that parent, including children that have ended.
fn family_cpu(child: i32) -> Result<f64> {
    /// The number of clock ticks per second. Linux reports CPU times in ticks, and uses this
    /// number on all common platforms.
    const TICKS: f64 = 100.0;
    let parent = Stat::read(&child.to_string())?.parent;
    let own = Stat::read(&parent)?;
    let mut ticks = own.ticks + own.ended;
    for process in fs::read_dir("/proc")?.flatten() {
        let stat = process.file_name().to_str().map(Stat::read);
        // Ignores entries that are not processes, and processes that have ended since `read_dir`.
        if let Some(Ok(stat)) = stat
            && stat.parent == parent
        {
            ticks += stat.ticks;
        }
    }
    Ok(ticks / TICKS * 1e3)
}

/// A line of `/proc/PID/stat`.
struct Stat {
    parent: String,
    /// The CPU time of the process, in clock ticks.
    ticks: f64,
    /// The CPU time of the children of the process that have ended, in clock ticks.
    ended: f64,
}

impl Stat {
    fn read(process: &str) -> Result<Self> {
        let line = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let fields = line
            .rsplit_once(')')
            .context("the file in /proc has no name of the process")?
            .1;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // `number` is the number of a field in proc(5), where the first field has the number 1.
        // `fields` begins after the name, which is field 2.
        let field = |number: usize| {
            fields
                .get(number - 3)
                .copied()
                .context("the file in /proc lacks a field")
        };
        let sum = |one, other| -> Result<f64> {
            Ok(field(one)?.parse::<f64>()? + field(other)?.parse::<f64>()?)
        };
        Ok(Self {
            parent: field(4)?.to_owned(),
            ticks: sum(14, 15)?,
            ended: sum(16, 17)?,
        })
    }
}
