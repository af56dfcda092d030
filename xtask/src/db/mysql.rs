//! Finds or starts a MySQL or MariaDB: the server that the environment names, an installed MariaDB,
//! or one that apt installs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::keeper::Keeper;
use super::{Control, Server, compose, free_port, local, on_path, output, quoted};
use crate::process;

/// The variable that names the server for the tests.
pub(crate) const URL: &str = "RATCHET_TEST_MYSQL_URL";

/// The service in compose.yaml, and the variable that sets its port.
const SERVICE: &str = "mariadb";
const PORT: &str = "RATCHET_MARIADB_PORT";

/// Returns the server that the environment names, or starts one.
///
/// # Errors
/// If the environment names no server and no server can be started. The error contains the reasons.
pub(crate) fn provide() -> Result<Server> {
    match env::var(URL) {
        Ok(url) => Ok(Server::named(url)),
        Err(_) => own(),
    }
}

/// Starts a server, which is stopped when it is dropped.
///
/// # Errors
/// If no server can be started. The error contains the reason for each way that was tried.
pub(crate) fn own() -> Result<Server> {
    let mut reasons = Vec::new();
    for (way, start) in [
        ("installed", start as fn() -> Result<Server>),
        ("by apt", install_and_start),
        ("in a container", in_a_container),
    ] {
        match start().with_context(|| way.to_owned()) {
            Ok(server) => return Ok(server),
            Err(reason) => reasons.push(format!("{reason:#}")),
        }
    }
    bail!("no MariaDB: {}", reasons.join("; "))
}

fn in_a_container() -> Result<Server> {
    compose::start_service(SERVICE, PORT, |port| {
        format!("mysql://root:ratchet@127.0.0.1:{port}/mysql")
    })
}

/// Installs the distribution's package, and then starts a server. Only root may do this: tests of
/// another user change nothing on the machine, and root is not asked for a password.
fn install_and_start() -> Result<Server> {
    ensure!(find().is_none(), "not needed, it is installed");
    ensure!(on_path("apt-get").is_some(), "there is no apt-get");
    ensure!(local::is_root()?, "only root can install packages");
    eprintln!("MariaDB is not installed: installing the package `mariadb-server` with apt-get");
    local::apt(&["update"])?;
    local::apt(&[
        "install",
        "--yes",
        "--no-install-recommends",
        "mariadb-server",
    ])?;
    start()
}

/// The error if no programs are installed.
const NOT_FOUND: &str = "found no mariadbd and mariadb-install-db";

/// The programs of an installed server.
struct Programs {
    server: PathBuf,
    install: PathBuf,
}

fn find() -> Option<Programs> {
    let program = |name: &str| {
        let usual = Path::new("/usr/sbin").join(name);
        on_path(name).or_else(|| usual.is_file().then_some(usual))
    };
    Some(Programs {
        server: program("mariadbd")?,
        install: program("mariadb-install-db")?,
    })
}

/// Starts a server with the installed programs, on a fresh data directory. Every user of this
/// machine may connect over the loopback interface without a password, since the server is
/// temporary and holds nothing secret.
fn start() -> Result<Server> {
    let programs = find().context(NOT_FOUND)?;
    let version = output(Command::new(&programs.server).arg("--version"))?;
    let directory = directory(user()?)?;
    let as_user = option(user()?);
    let (data, log) = (directory.join("data"), directory.join("log"));
    let install = format!(
        "{} --no-defaults {as_user} --datadir={} --auth-root-authentication-method=normal \
         --skip-test-db",
        quoted(&programs.install),
        quoted(&data)
    );
    let port = free_port()?;
    let (pid, log) = (quoted(directory.join("pid")), quoted(log));
    // The settings that durability depends on are the defaults; they are set here because figures
    // and crash tests depend on them.
    let server = format!(
        "{} --no-defaults {as_user} --datadir={} --bind-address=127.0.0.1 --port={port} \
         --socket={} --pid-file={pid} --max-connections=300 --innodb-flush-log-at-trx-commit=1 \
         --innodb-flush-method=fsync",
        quoted(&programs.server),
        quoted(&data),
        quoted(directory.join("socket"))
    );
    let kill = format!("[ ! -s {pid} ] || kill -KILL \"$(cat {pid})\"; rm -f {pid}");
    let answers = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null");
    let wait = format!(
        "for i in $(seq 600); do bash -c {} && exit 0; sleep 0.1; done; tail -n 5 {log} >&2; exit 1",
        quoted(answers)
    );
    let control = Control {
        remove: format!("{kill}; rm -rf {}", quoted(&directory)),
        stop: kill,
        start: format!("{server} >>{log} 2>&1 </dev/null & {wait}"),
    };
    if let Err(error) = output(Command::new("sh").args(["-c", &install])) {
        output(Command::new("rm").arg("-rf").arg(&directory))?;
        return Err(error);
    }
    let version = version
        .split_once("Ver ")
        .map_or(&*version, |(_, rest)| rest);
    let version = version.split(' ').next().unwrap_or_default();
    let url = format!("mysql://root@127.0.0.1:{port}/mysql");
    let origin = format!("MariaDB {version}, started for this run");
    Server::start(url, origin, control)
}

/// A directory in which tests start their own servers. When this is dropped, or this process ends
/// in any other way, the servers are killed and removed.
pub(crate) struct Sandbox {
    /// The option of MariaDB's programs that names their user, or nothing.
    pub(crate) user: String,
    /// The directory. A server writes its process id to the file `pid` of a subdirectory.
    pub(crate) folder: PathBuf,
    /// The PATH with MariaDB's programs.
    pub(crate) path: String,
    _keeper: Keeper,
}

/// Prepares a directory in which tests start their own servers.
///
/// # Errors
/// If MariaDB is not installed. A container cannot be used for this.
pub(crate) fn sandbox() -> Result<Sandbox> {
    let programs = find().context(NOT_FOUND)?;
    let folder = directory(user()?)?;
    let home = quoted(&folder);
    let remove =
        format!("for pid in {home}/*/pid; do kill -KILL \"$(cat \"$pid\")\"; done; rm -rf {home}");
    let folders = [&programs.server, &programs.install].map(|program| program.parent());
    let path = env::var("PATH").unwrap_or_default();
    let path = folders
        .into_iter()
        .flatten()
        .fold(path, |path, folder| format!("{path}:{}", folder.display()));
    Ok(Sandbox {
        user: option(user()?),
        _keeper: Keeper::new(&remove)?,
        folder,
        path,
    })
}

/// Where distributions install the library of Galera.
const GALERA: &str = "/usr/lib/galera/libgalera_smm.so";

/// Returns the library of Galera, if it is installed.
pub(crate) fn galera() -> Option<&'static str> {
    Path::new(GALERA).is_file().then_some(GALERA)
}

/// Creates a temporary directory of the user that runs the server.
fn directory(user: Option<&str>) -> Result<PathBuf> {
    let template = format!("{}/ratchet-mariadb.XXXXXX", local::temporary());
    let directory = PathBuf::from(output(Command::new("mktemp").args(["-d", &template]))?);
    if let Some(user) = user {
        output(Command::new("chown").arg(user).arg(&directory))?;
    }
    Ok(directory)
}

/// Returns the option of MariaDB's programs that names their user, or nothing.
fn option(user: Option<&str>) -> String {
    user.map(|user| format!("--user={user}"))
        .unwrap_or_default()
}

/// Returns the user that runs the server, if it is not the current one: the server refuses root.
fn user() -> Result<Option<&'static str>> {
    if !local::is_root()? {
        return Ok(None);
    }
    let user = "mysql";
    let exists = process::works(process::program("id").args(["-u", user]));
    ensure!(
        exists,
        "MariaDB refuses root, and there is no user `{user}`"
    );
    Ok(Some(user))
}
