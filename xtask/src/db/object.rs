//! Starts emulators of object storage: moto for Amazon S3, and Azurite for Azure Blob Storage. Both
//! are installed below the target directory by pip and npm, unless moto is installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::local::temporary;
use super::{Control, Server, free_port, on_path, output, quoted};
use crate::process;

/// The variables that name a bucket for the tests: `http://HOST:PORT/BUCKET`.
pub(crate) const S3_URL: &str = "RATCHET_TEST_OBJECT_S3_URL";
pub(crate) const AZURE_URL: &str = "RATCHET_TEST_OBJECT_AZURE_URL";

const MOTO: &str = "moto[server]==5.2.1";
const AZURITE: &str = "azurite@3.37.0";
const BUCKET: &str = "ratchet";

/// Creates the bucket, once the server responds.
const CREATE_BUCKET: &str = "import sys, urllib.request as r; \
                             r.urlopen(r.Request(sys.argv[1], method='PUT'))";

/// Returns the bucket that the environment names, or starts an S3 emulator.
///
/// # Errors
/// If the environment names none and the emulator cannot be installed or started.
pub(crate) fn provide_s3() -> Result<Server> {
    env::var(S3_URL).map_or_else(|_| own_s3(), |url| Ok(Server::named(url)))
}

/// Returns the container that the environment names, or starts an emulator of Azure Blob Storage.
///
/// # Errors
/// If the environment names none and the emulator cannot be installed or started.
pub(crate) fn provide_azure() -> Result<Server> {
    env::var(AZURE_URL).map_or_else(|_| own_azure(), |url| Ok(Server::named(url)))
}

/// Starts an S3 emulator, which is stopped when it is dropped.
///
/// # Errors
/// If it cannot be installed or started.
pub(crate) fn own_s3() -> Result<Server> {
    let python = moto().context("no S3 emulator")?;
    let port = free_port()?;
    let service = format!("http://127.0.0.1:{port}");
    let python = quoted(python);
    let serve = format!("{python} -m moto.server -H 127.0.0.1 -p {port}");
    let create = format!("{python} -c \"{CREATE_BUCKET}\" {service}/{BUCKET}");
    start(&service, "moto", &serve, &create)
}

/// Starts an emulator of Azure Blob Storage, which is stopped when it is dropped.
///
/// # Errors
/// If it cannot be installed or started.
pub(crate) fn own_azure() -> Result<Server> {
    let program = azurite().context("no emulator of Azure Blob Storage")?;
    let port = free_port()?;
    let service = format!("http://127.0.0.1:{port}");
    let serve = format!(
        "node {} --inMemoryPersistence --silent --skipApiVersionCheck --disableTelemetry \
         --blobHost 127.0.0.1 --blobPort {port}",
        quoted(program)
    );
    let script = process::root().join("xtask/azurite-container.mjs");
    let create = format!("node {} {service} {BUCKET}", quoted(script));
    start(&service, "Azurite", &serve, &create)
}

/// Starts a server, and creates the bucket as soon as it responds, for up to a minute.
fn start(service: &str, name: &str, serve: &str, create: &str) -> Result<Server> {
    let template = format!("{}/ratchet-object.XXXXXX", temporary());
    let directory = PathBuf::from(output(Command::new("mktemp").args(["-d", &template]))?);
    let home = quoted(&directory);
    let stop = format!("kill -9 $(cat {home}/pid) 2>/dev/null");
    let control = Control {
        start: format!(
            "cd {home}; {serve} >>log 2>&1 </dev/null & echo $! >{home}/pid; \
             for try in $(seq 120); do {create} >{home}/created 2>&1 && exit 0; \
             kill -0 $(cat {home}/pid) || break; sleep 0.5; done; \
             tail -n 5 {home}/log {home}/created >&2; exit 1"
        ),
        remove: format!("{stop}; rm -rf {home}"),
        stop,
    };
    let url = format!("{service}/{BUCKET}");
    Server::start(url, format!("{name}, started for this run"), control)
}

/// Returns a Python that has moto. Creates a virtual environment if the one on the PATH has not.
fn moto() -> Result<PathBuf> {
    let python = on_path("python3").context("there is no python3")?;
    let has_moto =
        |python: &Path| process::works(Command::new(python).args(["-c", "import moto.server"]));
    if has_moto(&python) {
        return Ok(python);
    }
    let directory = installed("moto-5.2.1", |directory| {
        output(Command::new(&python).args(["-m", "venv"]).arg(directory))?;
        let mut pip = Command::new(directory.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", MOTO]);
        output(&mut pip)
    })?;
    let python = directory.join("bin/python");
    ensure!(has_moto(&python), "moto is installed, but does not start");
    Ok(python)
}

/// Returns the program of Azurite, and installs it if necessary.
fn azurite() -> Result<PathBuf> {
    ensure!(on_path("node").is_some(), "there is no node");
    ensure!(on_path("npm").is_some(), "there is no npm");
    let directory = installed("azurite-3.37.0", |directory| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
        output(npm.arg("--prefix").arg(directory).arg(AZURITE))
    })?;
    Ok(directory.join("node_modules/azurite/dist/src/blob/main.js"))
}

/// Returns a directory below the target directory. Installs into it unless that was done before.
fn installed(name: &str, install: impl FnOnce(&Path) -> Result<String>) -> Result<PathBuf> {
    let directory = process::target_dir()?.join("xtask").join(name);
    let complete = directory.join("complete");
    if !complete.exists() {
        eprintln!("installing {name} below the target directory");
        fs::create_dir_all(&directory)?;
        install(&directory)?;
        fs::write(complete, "")?;
    }
    Ok(directory)
}
