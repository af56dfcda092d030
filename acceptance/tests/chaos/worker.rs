//! The process that is killed: it runs one node until its standard input ends.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ratchet::mongo::MongoStore;
use ratchet::mysql::MysqlStore;
use ratchet::postgres::PostgresStore;
use ratchet::sqlserver::SqlServerStore;
use ratchet::{Job, JobContext, JobResult, Ratchet, Requires, SharedStore};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::{clock, mysql, topology};

/// The variable that makes this program a worker.
const ROLE: &str = "RATCHET_CHAOS_WORKER";
/// How long a node is silent until it counts as dead. A node that loses its connection a few times
/// in a row is silent for less than this.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(3);

/// The database servers.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Backend {
    Postgres,
    MySql,
    MongoDb,
    SqlServer,
}

impl Backend {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::MongoDb => "mongodb",
            Self::SqlServer => "sqlserver",
        }
    }

    /// Returns the variable with the server's URL.
    pub(crate) const fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "RATCHET_TEST_POSTGRES_URL",
            Self::MySql => "RATCHET_TEST_MYSQL_URL",
            Self::MongoDb => "RATCHET_TEST_MONGODB_URL",
            Self::SqlServer => "RATCHET_TEST_SQLSERVER_URL",
        }
    }
}

/// The settings of a worker, passed to it in the environment.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) backend: Backend,
    pub(crate) url: String,
    /// The schema or the database, which is also the application name of the connections where they
    /// have one.
    pub(crate) schema: String,
    /// The number of connections in the worker's pool.
    pub(crate) connections: u32,
    /// Whether the store's clock is the view that [`clock`](crate::clock) creates.
    pub(crate) steps_clock: bool,
    /// The node's `dead_after` setting.
    pub(crate) dead_after: Duration,
    pub(crate) store_deadline: Duration,
    /// The label of the node. `None` means the default.
    pub(crate) label: Option<String>,
    /// The file to which the worker appends a line for every body that begins.
    pub(crate) notes: PathBuf,
}

impl Order {
    /// Returns the settings from the environment, if this process is a worker.
    pub(crate) fn of_environment() -> Option<Self> {
        let order = std::env::var(ROLE).ok()?;
        Some(serde_json::from_str(&order).unwrap())
    }

    pub(crate) fn to_environment(&self) -> (&'static str, String) {
        (ROLE, serde_json::to_string(self).unwrap())
    }

    pub(crate) async fn open(&self) -> ratchet::Result<SharedStore> {
        Ok(match self.backend {
            Backend::Postgres => {
                let mut builder = PostgresStore::builder(&self.url)
                    .schema(&self.schema)
                    .max_connections(self.connections)
                    .application_name(&self.schema);
                if self.steps_clock {
                    builder = builder.clock_table(clock::VIEW);
                }
                Arc::new(builder.connect().await?)
            }
            Backend::MySql => {
                let mut builder =
                    MysqlStore::builder(&mysql::url(self)).max_connections(self.connections);
                if self.steps_clock {
                    builder = builder.clock_table(clock::VIEW);
                }
                Arc::new(builder.connect().await?)
            }
            Backend::MongoDb => {
                let mut builder = MongoStore::builder(&self.url)
                    .database(&self.schema)
                    .max_connections(self.connections)
                    .application_name(&self.schema);
                if self.steps_clock {
                    builder = builder.clock_collection(clock::VIEW);
                }
                Arc::new(builder.connect().await?)
            }
            Backend::SqlServer => {
                let mut builder = SqlServerStore::builder(&self.url)
                    .schema(&self.schema)
                    .max_connections(self.connections)
                    .application_name(&self.schema);
                if self.steps_clock {
                    builder = builder.clock_table(clock::VIEW);
                }
                Arc::new(builder.connect().await?)
            }
        })
    }
}

/// The file in which bodies record that they began, and the worker's name.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) file: File,
    pub(crate) worker: String,
}

/// A job that records that it began, and then sleeps for `millis`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Nap {
    pub(crate) millis: u64,
}

impl Job for Nap {
    const KIND: &'static str = "nap";
    type Output = ();

    fn requires() -> Requires {
        Requires::nothing().state::<Notes>()
    }

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        // A small write to a file that is opened for appending happens completely or not at all,
        // even if the process is killed.
        let notes: &Notes = ctx.state();
        (&notes.file).write_all(format!("{}\n", ctx.job_id()).as_bytes())?;
        tokio::time::sleep(Duration::from_millis(self.millis)).await;
        Ok(())
    }
}

#[tokio::main]
pub(crate) async fn run(order: &Order) -> ExitCode {
    match node(order).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker {}: {error:#}", std::process::id());
            ExitCode::FAILURE
        }
    }
}

async fn node(order: &Order) -> anyhow::Result<()> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&order.notes)?;
    let notes = Notes {
        file,
        worker: order.label.clone().unwrap_or_default(),
    };
    let builder = Ratchet::builder(order.open().await?).register::<Nap>();
    let builder = match &order.label {
        Some(label) => builder.label(label),
        None => builder,
    };
    let node = topology::register(builder)
        .state(notes)
        .concurrency(8)
        .poll_interval(Duration::from_millis(20), Duration::from_millis(200))
        .heartbeat_interval(order.dead_after / 6)
        .dead_after(order.dead_after)
        .reclaim_interval(order.dead_after / 6)
        .store_deadline(order.store_deadline)
        .build()?;
    let input_ends = async {
        let _ = tokio::io::stdin().read(&mut [0]).await;
    };
    Ok(node.run_until(input_ends).await?)
}
