//! Starts, copies and promotes PostgreSQL servers, each in a directory named by its port.

use std::collections::BTreeSet;
use std::env;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgConnection;
use tokio::time::{sleep, timeout};

use crate::field::admin;

/// The deadline of a start or a promotion.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to run PostgreSQL's programs, and the directory for new servers.
#[derive(Clone)]
pub(crate) struct Place {
    /// The prefix of a shell line that runs one of PostgreSQL's programs.
    programs: String,
    /// A directory owned by the user that the programs run as.
    folder: String,
}

impl Place {
    pub(crate) fn of_environment() -> Option<Self> {
        Some(Self {
            programs: env::var("RATCHET_CHAOS_POSTGRES").ok()?,
            folder: env::var("RATCHET_CHAOS_FOLDER").ok()?,
        })
    }

    fn run(&self, line: &str) {
        let line = format!("{}{line}", self.programs);
        let mut sh = Command::new("sh");
        let ended = sh.args(["-c", &line]).current_dir("/").output().unwrap();
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{line}: {error}");
    }

    /// Starts an empty server.
    pub(crate) fn primary(&self) -> Server {
        let server = self.server();
        self.run(&format!(
            "initdb -D {} -U postgres -A trust -E UTF8 --no-locale --no-sync",
            server.data()
        ));
        server.start("");
        server
    }

    fn server(&self) -> Server {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Server {
            place: self.clone(),
            port: free.local_addr().unwrap().port(),
        }
    }
}

/// A server, which is stopped when it is dropped.
pub(crate) struct Server {
    place: Place,
    pub(crate) port: u16,
}

impl Server {
    fn data(&self) -> String {
        format!("'{}/{}'", self.place.folder, self.port)
    }

    pub(crate) fn start(&self, settings: &str) {
        let (port, folder) = (self.port, &self.place.folder);
        let settings = format!(
            "-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={folder} \
             -c max_connections=200 {settings}"
        );
        self.place.run(&format!(
            "pg_ctl start -s -w -t 60 -D {} -l '{folder}/{port}.log' -o \"{settings}\"",
            self.data()
        ));
    }

    /// Stops the server without a checkpoint, as in a crash.
    pub(crate) fn kill(&self) {
        self.place.run(&format!(
            "pg_ctl stop -s -w -m immediate -D {}",
            self.data()
        ));
    }

    /// Takes a base backup, and does not start the copy. `options` are those of `pg_basebackup`.
    pub(crate) fn copy(&self, options: &str) -> Self {
        let copy = self.place.server();
        self.place.run(&format!(
            "pg_basebackup -h 127.0.0.1 -p {} -U postgres -D {} -c fast {options}",
            self.port,
            copy.data()
        ));
        copy
    }

    /// Starts a standby that applies each change `behind` late. Zero means a synchronous standby.
    pub(crate) async fn standby(&self, behind: Duration) -> Self {
        let standby = self.copy("-R");
        standby.start(&format!(
            "-c recovery_min_apply_delay={}",
            behind.as_millis()
        ));
        let mut here = self.connect().await;
        wait_until(&mut here, "SELECT count(*) = 1 FROM pg_stat_replication").await;
        if behind.is_zero() {
            execute(
                &mut here,
                "ALTER SYSTEM SET synchronous_standby_names = '*'",
            )
            .await;
            execute(&mut here, "SELECT pg_reload_conf()").await;
            let synchronous = "SELECT count(*) = 1 FROM pg_stat_replication
                               WHERE sync_state = 'sync'";
            wait_until(&mut here, synchronous).await;
        }
        standby
    }

    /// Promotes a standby with all the WAL it received.
    pub(crate) async fn promote(&self) {
        self.place
            .run(&format!("pg_ctl promote -s -w -t 60 -D {}", self.data()));
        self.wait_for_writes().await;
    }

    /// Pauses the replay of WAL on a standby. Returns the position that the replay has reached.
    pub(crate) async fn hold(&self) -> String {
        let mut here = self.connect().await;
        execute(&mut here, "SELECT pg_wal_replay_pause()").await;
        let paused = "SELECT pg_get_wal_replay_pause_state() = 'paused'";
        wait_until(&mut here, paused).await;
        let applied = sqlx::query("SELECT pg_last_wal_replay_lsn()::text");
        applied.fetch_one(&mut here).await.unwrap().get(0)
    }

    /// Promotes a standby at the position `applied`, as if it had received no later WAL. A plain
    /// promotion would replay all WAL received, whatever the apply delay.
    pub(crate) async fn promote_as_held(&self, applied: &str) {
        let data = self.data();
        self.place
            .run(&format!("pg_ctl stop -s -w -m fast -D {data}"));
        self.start(&format!(
            "-c primary_conninfo= -c recovery_target_lsn={applied} \
             -c recovery_target_inclusive=off -c recovery_target_action=promote"
        ));
        self.wait_for_writes().await;
    }

    /// Waits until recovery has ended.
    pub(crate) async fn wait_for_writes(&self) {
        let mut here = self.connect().await;
        wait_until(&mut here, "SELECT NOT pg_is_in_recovery()").await;
    }

    /// Connects to the server directly, not through an endpoint.
    pub(crate) async fn connect(&self) -> PgConnection {
        admin(&format!(
            "postgres://postgres@127.0.0.1:{}/postgres",
            self.port
        ))
        .await
    }

    /// Reads the ids of all jobs.
    pub(crate) async fn jobs(&self, schema: &str) -> BTreeSet<String> {
        let sql = format!("SELECT id::text FROM {schema}.jobs");
        let mut here = self.connect().await;
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&mut here);
        rows.await.unwrap().iter().map(|row| row.get(0)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The command fails if the server is not running, so its error output is dropped.
        let data = self.data();
        let stop = format!(
            "{}pg_ctl stop -s -w -m immediate -D {data} 2>/dev/null",
            self.place.programs
        );
        let mut sh = Command::new("sh");
        let _ = sh.args(["-c", &stop]).current_dir("/").status();
    }
}

pub(crate) async fn execute(here: &mut PgConnection, sql: &str) {
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(here).await.unwrap();
}

async fn wait_until(here: &mut PgConnection, sql: &'static str) {
    let waited = timeout(PATIENCE, async {
        while !sqlx::query(sql)
            .fetch_one(&mut *here)
            .await
            .unwrap()
            .get::<bool, _>(0)
        {
            sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never true: {sql}"));
}
