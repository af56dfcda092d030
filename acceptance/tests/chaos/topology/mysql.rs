//! Starts, copies and promotes MariaDB servers, each in a directory named by its port.

use std::env;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::pair::Pair;
use super::read::ENDED;
use super::server::{Server, free_port, shell};
use crate::worker::Backend;

/// The option of MariaDB's programs that names the user, or nothing. The programs are on the PATH.
const OPTION: &str = "RATCHET_CHAOS_MYSQL";
/// A directory that this user may write to.
const FOLDER: &str = "RATCHET_CHAOS_FOLDER";
/// The library of Galera, if it is installed.
const GALERA: &str = "RATCHET_CHAOS_GALERA";
/// The deadline of a start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns whether the environment says how to run MariaDB's programs.
pub(crate) fn can_run() -> bool {
    env::var_os(OPTION).is_some()
}

/// Returns whether [`group`] can run.
pub(crate) fn can_group() -> bool {
    can_run() && env::var_os(GALERA).is_some()
}

pub(crate) struct Mysql {
    port: u16,
    /// Whether the server is a member of a Galera cluster.
    member: bool,
    running: Mutex<Option<Child>>,
}

impl Mysql {
    fn new(member: bool) -> Self {
        let port = free_port();
        Self {
            port,
            member,
            running: Mutex::default(),
        }
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{}/{name}", env::var(FOLDER).unwrap(), self.port)
    }

    /// Starts a server on a fresh directory.
    async fn start(&self, settings: &[String]) {
        let (user, data) = (env::var(OPTION).unwrap(), self.file("data"));
        shell(&format!(
            "install -d -m 0777 '{}' && mariadb-install-db --no-defaults {user} \
             --datadir='{data}' --auth-root-authentication-method=normal --skip-test-db",
            self.file("")
        ));
        let log = PathBuf::from(self.file("log"));
        let mut server = Command::new("mariadbd");
        server.arg("--no-defaults").args(user.split_whitespace());
        for (name, value) in [
            ("datadir", &*data),
            ("bind-address", "127.0.0.1"),
            ("port", &self.port.to_string()),
            ("server-id", &self.port.to_string()),
            ("socket", &self.file("socket")),
            ("pid-file", &self.file("pid")),
            ("max-connections", "300"),
            ("log-bin", "binlog"),
            ("binlog-format", "ROW"),
        ] {
            server.arg(format!("--{name}={value}"));
        }
        server.args(settings).stdin(Stdio::null());
        server.stdout(Stdio::null());
        server.stderr(std::fs::File::create(&log).unwrap());
        *self.running.lock().unwrap() = Some(server.spawn().unwrap());
        let answers = timeout(PATIENCE, async {
            while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        });
        if answers.await.is_err() {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("MariaDB did not start:\n{log}");
        }
    }
}

impl Server for Mysql {
    const BACKEND: Backend = Backend::MySql;
    type Held = ();

    fn url(address: impl Display) -> String {
        format!("mysql://root@{address}/mysql")
    }

    fn table(schema: &str, name: &str) -> String {
        format!("{schema}.ratchet_{name}")
    }

    fn id(column: &str) -> String {
        format!("CAST(CAST({column} AS UUID) AS CHAR)")
    }

    fn watch_ends(schema: &str) -> String {
        format!(
            "CREATE TABLE {schema}.chaos_ends (
                 number INT AUTO_INCREMENT PRIMARY KEY, job BINARY(16) NOT NULL);
             CREATE TRIGGER {schema}.chaos_ended AFTER UPDATE ON {schema}.ratchet_jobs
             FOR EACH ROW
             IF OLD.state < {ENDED} AND NEW.state >= {ENDED} THEN
                 INSERT INTO {schema}.chaos_ends (job) VALUES (NEW.id);
             END IF"
        )
    }

    async fn primary() -> Self {
        let server = Self::new(false);
        server.start(&[]).await;
        server
    }

    fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server with SIGKILL.
    fn kill(&self) {
        if let Some(mut server) = self.running.lock().unwrap().take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Replication is "semi-synchronous" if `synchronous`: a commit returns, and is visible to
    /// others, only after the standby has received it.
    async fn standby(&self, synchronous: bool) -> Self {
        let standby = Self::primary().await;
        if synchronous {
            self.execute(
                "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC;
                 SET GLOBAL rpl_semi_sync_master_timeout = 3600000;
                 SET GLOBAL rpl_semi_sync_master_enabled = ON",
            )
            .await;
            let receives = "SET GLOBAL rpl_semi_sync_slave_enabled = ON";
            standby.execute(receives).await;
        }
        standby
            .execute(&format!(
                "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {},
                     MASTER_USER = 'root', MASTER_USE_GTID = slave_pos;
                 START SLAVE",
                self.port
            ))
            .await;
        let replicates = match synchronous {
            true => {
                "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status
                 WHERE variable_name = 'RPL_SEMI_SYNC_MASTER_CLIENTS'"
            }
            false => {
                "SELECT COUNT(*) FROM information_schema.processlist
                 WHERE command = 'Binlog Dump'"
            }
        };
        self.wait_until(replicates).await;
        standby
    }

    async fn promote(&self) {
        if self.member {
            // The others notice the loss of a member after five seconds.
            let whole = "SELECT COUNT(*) = 2 FROM information_schema.global_status
                         WHERE (variable_name, variable_value) IN
                             (('WSREP_READY', 'ON'), ('WSREP_CLUSTER_SIZE', '2'))";
            return self.wait_until(whole).await;
        }
        self.execute("STOP SLAVE IO_THREAD").await;
        let applied = "SELECT COUNT(*) FROM information_schema.processlist
                       WHERE state LIKE 'Slave has read all relay log%'";
        self.wait_until(applied).await;
        self.promote_as_held(()).await;
    }

    async fn hold(&self) {
        self.execute("STOP SLAVE SQL_THREAD").await;
    }

    async fn promote_as_held(&self, (): ()) {
        self.execute("STOP SLAVE; RESET SLAVE ALL").await;
    }

    /// Dumps the database to a file of the copy.
    fn copy(&self, schema: &str) -> Self {
        let copy = Self::new(false);
        shell(&format!(
            "install -d -m 0777 '{}' && mariadb-dump --no-defaults -h 127.0.0.1 -P {} -u root \
             --single-transaction --databases {schema} >'{}'",
            copy.file(""),
            self.port,
            copy.file("dump")
        ));
        copy
    }

    async fn restore(&self) {
        self.start(&[]).await;
        shell(&format!(
            "mariadb --no-defaults -h 127.0.0.1 -P {} -u root <'{}'",
            self.port,
            self.file("dump")
        ));
    }
}

/// Starts a Galera cluster of three members, of which clients use one.
pub(crate) async fn group() -> Pair<Mysql> {
    let library = env::var(GALERA).unwrap();
    let mut first = None;
    let mut members = Vec::new();
    for _ in 0..3 {
        let member = Mysql::new(true);
        let (group, receiver) = (free_port(), free_port());
        let address = match first {
            None => String::new(),
            Some(port) => format!("127.0.0.1:{port}"),
        };
        let mut settings = vec![
            "--wsrep-on=ON".to_owned(),
            format!("--wsrep-provider={library}"),
            format!("--wsrep-cluster-address=gcomm://{address}"),
            "--wsrep-node-address=127.0.0.1".to_owned(),
            "--wsrep-sst-method=rsync".to_owned(),
            format!("--wsrep-sst-receive-address=127.0.0.1:{}", free_port()),
            format!(
                "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{group};\
                 ist.recv_addr=127.0.0.1:{receiver};base_host=127.0.0.1;base_port={group}"
            ),
            "--innodb-autoinc-lock-mode=2".to_owned(),
        ];
        if first.is_none() {
            settings.push("--wsrep-new-cluster".to_owned());
        }
        member.start(&settings).await;
        first = first.or(Some(group));
        members.push(member);
    }
    let mut members = members.into_iter();
    let (writer, next) = (members.next().unwrap(), members.next());
    Pair::of(writer, next, members.collect()).await
}

impl Drop for Mysql {
    fn drop(&mut self) {
        self.kill();
    }
}
