//! Finds or starts a MongoDB: the server that the environment names, an installed one, one that pip
//! installs below the target directory, or a container.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use super::local::temporary;
use super::{Control, Server, compose, free_port, on_path, output, quoted, wire};
use crate::process;

/// The variable that names the replica set for the tests.
pub(crate) const URL: &str = "RATCHET_TEST_MONGODB_URL";
/// The variable that names the standalone server for the tests.
pub(crate) const STANDALONE_URL: &str = "RATCHET_TEST_MONGODB_STANDALONE_URL";
/// The variable that passes the server's program to tests that start servers themselves.
pub(crate) const PROGRAM: &str = "RATCHET_TEST_MONGODB_PROGRAM";

/// The name of the replica set.
const SET: &str = "rs0";
/// The path of the program in the pip package.
const IN_WHEEL: &str = "fiftyone/db/bin/mongod";
/// How many ports to try: another process may take a port before the server starts.
const TRIES: u32 = 3;

/// The kind of server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A replica set of one node: it has transactions.
    Set,
    /// A replica set of three nodes, which survives the loss of one.
    Three,
    /// A single server, which has no transactions.
    Standalone,
}

/// Returns the replica set that the environment names, or starts one.
///
/// # Errors
/// If the environment names no server and no server can be started. The error contains the reasons.
pub(crate) fn provide() -> Result<Server> {
    env::var(URL).map_or_else(|_| own(), |url| Ok(Server::named(url)))
}

/// Returns the standalone server that the environment names, or starts one.
///
/// # Errors
/// If the environment names no server and no server can be started. The error contains the reasons.
pub(crate) fn provide_standalone() -> Result<Server> {
    env::var(STANDALONE_URL).map_or_else(|_| own_standalone(), |url| Ok(Server::named(url)))
}

/// Starts a replica set of one node, which is stopped when it is dropped.
///
/// # Errors
/// If no server can be started. The error contains the reason for each way that was tried.
pub(crate) fn own() -> Result<Server> {
    find(Kind::Set)
}

/// Starts a replica set of three nodes, which is stopped when it is dropped.
///
/// # Errors
/// If no server can be started. The error contains the reason for each way that was tried.
pub(crate) fn own_three() -> Result<Server> {
    find(Kind::Three)
}

/// Starts a standalone server, which is stopped when it is dropped.
///
/// # Errors
/// If no server can be started. The error contains the reason for each way that was tried.
pub(crate) fn own_standalone() -> Result<Server> {
    find(Kind::Standalone)
}

fn find(kind: Kind) -> Result<Server> {
    let mut reasons = Vec::new();
    for (way, start) in [
        ("installed", installed as fn(Kind) -> Result<Server>),
        ("by pip", by_pip),
        ("in a container", in_a_container),
    ] {
        match start(kind).with_context(|| way.to_owned()) {
            Ok(server) => return Ok(server),
            Err(reason) => reasons.push(format!("{reason:#}")),
        }
    }
    bail!("no MongoDB: {}", reasons.join("; "))
}

fn installed(kind: Kind) -> Result<Server> {
    start(
        &on_path("mongod").context("found no mongod on the PATH")?,
        kind,
    )
}

/// Installs the package that the requirements file names, with a hash from the repository, unless
/// it is already installed, and starts a server from it.
fn by_pip(kind: Kind) -> Result<Server> {
    let requirements = process::root().join("xtask/mongodb-requirements.txt");
    let mut hasher = DefaultHasher::new();
    fs::read(&requirements)?.hash(&mut hasher);
    let name = format!("mongodb-{:016x}", hasher.finish());
    let directory = process::target_dir()?.join("xtask").join(name);
    let program = directory.join(IN_WHEEL);
    {
        // Several servers start at the same time, so only one thread installs.
        static INSTALLING: Mutex<()> = Mutex::new(());
        let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        if !program.is_file() {
            install(&requirements, &directory)?;
        }
    }
    start(&program, kind)
}

fn install(requirements: &Path, directory: &Path) -> Result<()> {
    let pip = |words: &[&str]| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip"]).args(words);
        pip
    };
    ensure!(
        process::works(&mut pip(&["--version"])),
        "there is no python3 with pip"
    );
    eprintln!("MongoDB is not installed: installing a server below the target directory with pip");
    // The directory has another name until it is complete, and a different one for each process
    // that installs at the same time.
    let fresh = directory.with_extension(std::process::id().to_string());
    let mut install = pip(&[
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--no-compile",
        "--target",
    ]);
    install.arg(&fresh).arg("-r").arg(requirements);
    let installed = output(&mut install).and_then(|_| {
        let moved = fs::rename(&fresh, directory);
        // If the rename fails, another process may have installed the server first.
        ensure!(
            moved.is_ok() || directory.is_dir(),
            "could not rename the directory of the installed server"
        );
        Ok(())
    });
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    installed
}

fn start(program: &Path, kind: Kind) -> Result<Server> {
    let mut tries = 1;
    loop {
        match on_a_fresh_directory(program, kind) {
            Err(error) if tries < TRIES => eprintln!("note: {error:#}; trying another port"),
            other => return other,
        }
        tries += 1;
    }
}

fn on_a_fresh_directory(program: &Path, kind: Kind) -> Result<Server> {
    let version = output(Command::new(program).arg("--version"))?;
    let version = version.lines().next().unwrap_or_default();
    let version = version.replace("db version v", "MongoDB ");
    let template = format!("{}/ratchet-mongodb.XXXXXX", temporary());
    let directory = PathBuf::from(output(Command::new("mktemp").args(["-d", &template]))?);
    let ports: Vec<u16> = match kind {
        Kind::Set | Kind::Standalone => vec![free_port()?],
        Kind::Three => free_ports()?,
    };
    for port in &ports {
        fs::create_dir(directory.join(port.to_string()))?;
    }
    let hosts: Vec<String> = ports.iter().map(|p| format!("127.0.0.1:{p}")).collect();
    let (options, what) = match kind {
        Kind::Set => (format!("?replicaSet={SET}"), "a replica set of one node"),
        Kind::Three => (format!("?replicaSet={SET}"), "a replica set of three nodes"),
        Kind::Standalone => (String::new(), "a standalone"),
    };
    let url = format!("mongodb://{}/{options}", hosts.join(","));
    let origin = format!("{version}, {what}, started for this run");
    let control = control(program, kind, &directory, &ports);
    let mut server = Server::start(url, origin, control)?;
    server.program = Some(program.to_owned());
    if kind != Kind::Standalone {
        wire::initiate(&ports, SET)?;
    }
    Ok(server)
}

/// Returns three free ports. Holds each port until all three are found, so that they differ.
fn free_ports() -> Result<Vec<u16>> {
    let held: std::io::Result<Vec<TcpListener>> = (0..3)
        .map(|_| TcpListener::bind(("127.0.0.1", 0)))
        .collect();
    let ports = held?.into_iter().map(|held| Ok(held.local_addr()?.port()));
    ports.collect()
}

/// Returns the shell lines that control the servers. Each server has a directory, named by its
/// port. If there are several, the line that stops one takes its port from `RATCHET_CHAOS_PORT`.
/// The start line starts all servers that do not run.
fn control(program: &Path, kind: Kind, directory: &Path, ports: &[u16]) -> Control {
    let set = match kind {
        Kind::Set | Kind::Three => format!("--replSet {SET} --oplogSize 256"),
        Kind::Standalone => String::new(),
    };
    let all: Vec<String> = ports.iter().map(u16::to_string).collect();
    let (all, first) = (all.join(" "), &all[0]);
    let home = quoted(directory);
    // Test commands enable the fail points with which tests break connections. Each test leaves
    // about fifty files, which the server deletes only when no snapshot can need them. The other
    // settings make it delete them soon.
    let server = format!(
        "{} --dbpath {home}/$port --port $port --bind_ip 127.0.0.1 --nounixsocket {set} \
         --wiredTigerCacheSizeGB 0.5 --setParameter enableTestCommands=1 \
         --setParameter ttlMonitorSleepSecs=1 \
         --setParameter minSnapshotHistoryWindowInSeconds=0 --syncdelay 10 \
         --setParameter diagnosticDataCollectionEnabled=false \
         --fork --logappend --logpath {home}/$port/log --pidfilepath {home}/$port/pid >/dev/null",
        quoted(program)
    );
    let runs = format!("kill -0 $(cat {home}/$port/pid) 2>/dev/null");
    let kill = format!("kill -9 $(cat {home}/$port/pid); while {runs}; do sleep 0.05; done");
    Control {
        start: format!(
            "for port in {all}; do {runs} || {server} \
             || {{ tail -n 5 {home}/$port/log >&2; exit 1; }}; done"
        ),
        stop: format!("port=${{RATCHET_CHAOS_PORT:-{first}}}; {kill}"),
        // The data is removed even if the server had already been stopped.
        remove: format!("for port in {all}; do {kill}; done 2>/dev/null; rm -rf {home}"),
    }
}

/// Starts a container. The member of its replica set has the container's own port in its name, so
/// only a direct connection reaches it under our port.
fn in_a_container(kind: Kind) -> Result<Server> {
    let (service, port) = match kind {
        Kind::Set => ("mongodb-8", "RATCHET_MONGODB_8_PORT"),
        Kind::Standalone => ("mongodb-standalone", "RATCHET_MONGODB_STANDALONE_PORT"),
        Kind::Three => bail!("compose.yaml has no service for a replica set of three members"),
    };
    compose::start_service(service, port, |port| {
        format!("mongodb://127.0.0.1:{port}/?directConnection=true")
    })
}
