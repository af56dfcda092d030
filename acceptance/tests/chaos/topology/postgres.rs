//! Starts, copies and promotes PostgreSQL servers, each in a directory named by its port.

use std::env;
use std::fmt::Display;
use std::process::Command;

use super::read::ENDED;
use super::server::{Server, free_port, shell};
use crate::worker::Backend;

/// The prefix of a shell line that runs one of PostgreSQL's programs.
const PROGRAMS: &str = "RATCHET_CHAOS_POSTGRES";
/// A directory owned by the user that the programs run as.
const FOLDER: &str = "RATCHET_CHAOS_FOLDER";

/// Returns whether the environment says how to run PostgreSQL's programs.
pub(crate) fn can_run() -> bool {
    env::var_os(PROGRAMS).is_some()
}

fn run(line: &str) {
    shell(&format!("{}{line}", env::var(PROGRAMS).unwrap()));
}

pub(crate) struct Postgres {
    port: u16,
}

impl Postgres {
    fn data(&self) -> String {
        format!("'{}/{}'", env::var(FOLDER).unwrap(), self.port)
    }

    fn start(&self, settings: &str) {
        let (port, folder) = (self.port, env::var(FOLDER).unwrap());
        let settings = format!(
            "-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={folder} \
             -c max_connections=200 {settings}"
        );
        run(&format!(
            "pg_ctl start -s -w -t 60 -D {} -l '{folder}/{port}.log' -o \"{settings}\"",
            self.data()
        ));
    }

    /// Takes a base backup, and does not start the copy. `options` are those of `pg_basebackup`.
    fn backup(&self, options: &str) -> Self {
        let copy = Self { port: free_port() };
        run(&format!(
            "pg_basebackup -h 127.0.0.1 -p {} -U postgres -D {} -c fast {options}",
            self.port,
            copy.data()
        ));
        copy
    }

    /// Waits until recovery has ended.
    async fn wait_for_writes(&self) {
        self.wait_until("SELECT (NOT pg_is_in_recovery())::int::bigint")
            .await;
    }
}

impl Server for Postgres {
    const BACKEND: Backend = Backend::Postgres;
    /// The position that the replay of WAL has reached.
    type Held = String;

    fn url(address: impl Display) -> String {
        format!("postgres://postgres@{address}/postgres")
    }

    fn table(schema: &str, name: &str) -> String {
        format!("{schema}.{name}")
    }

    fn id(column: &str) -> String {
        format!("{column}::text")
    }

    fn watch_ends(schema: &str) -> String {
        format!(
            "CREATE TABLE {schema}.chaos_ends (job uuid NOT NULL);
             CREATE FUNCTION {schema}.chaos_ended() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO {schema}.chaos_ends VALUES (NEW.id); RETURN NULL; END $$;
             CREATE TRIGGER chaos_ended AFTER UPDATE ON {schema}.jobs FOR EACH ROW
             WHEN (OLD.state < {ENDED} AND NEW.state >= {ENDED})
             EXECUTE FUNCTION {schema}.chaos_ended()"
        )
    }

    async fn primary() -> Self {
        let server = Self { port: free_port() };
        run(&format!(
            "initdb -D {} -U postgres -A trust -E UTF8 --no-locale --no-sync",
            server.data()
        ));
        server.start("");
        server
    }

    fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server without a checkpoint.
    fn kill(&self) {
        run(&format!(
            "pg_ctl stop -s -w -m immediate -D {}",
            self.data()
        ));
    }

    async fn standby(&self, synchronous: bool) -> Self {
        let standby = self.backup("-R");
        standby.start("");
        self.wait_until("SELECT count(*) FROM pg_stat_replication")
            .await;
        if synchronous {
            self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                .await;
            self.execute("SELECT pg_reload_conf()").await;
            let synchronous = "SELECT count(*) FROM pg_stat_replication
                               WHERE sync_state = 'sync'";
            self.wait_until(synchronous).await;
        }
        standby
    }

    async fn promote(&self) {
        run(&format!("pg_ctl promote -s -w -t 60 -D {}", self.data()));
        self.wait_for_writes().await;
    }

    async fn hold(&self) -> String {
        self.execute("SELECT pg_wal_replay_pause()").await;
        let paused = "SELECT (pg_get_wal_replay_pause_state() = 'paused')::int::bigint";
        self.wait_until(paused).await;
        let applied = sqlx::query("SELECT pg_last_wal_replay_lsn()::text");
        let applied = applied.fetch_one(&mut self.connect().await).await;
        sqlx::Row::get(&applied.unwrap(), 0)
    }

    /// A plain promotion would replay all WAL received, so this starts the server again.
    async fn promote_as_held(&self, applied: String) {
        let data = self.data();
        run(&format!("pg_ctl stop -s -w -m fast -D {data}"));
        self.start(&format!(
            "-c primary_conninfo= -c recovery_target_lsn={applied} \
             -c recovery_target_inclusive=off -c recovery_target_action=promote"
        ));
        self.wait_for_writes().await;
    }

    fn copy(&self, _: &str) -> Self {
        self.backup("")
    }

    async fn restore(&self) {
        self.start("");
        self.wait_for_writes().await;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The command fails if the server is not running, so its error output is dropped.
        let programs = env::var(PROGRAMS).unwrap();
        let data = self.data();
        let stop = format!("{programs}pg_ctl stop -s -w -m immediate -D {data} 2>/dev/null");
        let mut sh = Command::new("sh");
        let _ = sh.args(["-c", &stop]).current_dir("/").status();
    }
}
