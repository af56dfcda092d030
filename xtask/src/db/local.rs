//! Starts PostgreSQL from installed programs, on a fresh data directory.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::keeper::Keeper;
use super::memory;
use super::{Control, Server, free_port, on_path, output, quoted};
use crate::process;

/// Where Debian and its derivatives install the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Where Debian's package reads the settings for creating its default cluster.
const DEBIAN_SETTINGS: &str = "/etc/postgresql-common/createcluster.d";
/// How many ports to try: another process may take a port before the server starts.
const TRIES: u32 = 3;

/// The error if no programs are installed.
const NOT_FOUND: &str = "found no initdb and pg_ctl on the PATH or in /usr/lib/postgresql";

/// Starts a server with the installed programs.
pub(super) fn start() -> Result<Server> {
    let programs = find().context(NOT_FOUND)?;
    let user = user()?;
    let mut tries = 1;
    loop {
        match on_a_fresh_directory(&programs, &user) {
            Err(error) if tries < TRIES => eprintln!("note: {error:#}; trying another port"),
            other => return other,
        }
        tries += 1;
    }
}

fn on_a_fresh_directory(programs: &Path, user: &User) -> Result<Server> {
    let version = output(Command::new(programs.join("postgres")).arg("--version"))?;
    let directory = user.directory()?;
    initialize(programs, user, &directory)?;
    listen(programs, user, &directory, &version)
}

/// The programs and a directory with which tests start their own servers. When this is dropped, or
/// this process ends in any other way, the servers are stopped and removed.
pub(crate) struct Sandbox {
    /// The prefix of a shell line that runs one of PostgreSQL's programs.
    pub(crate) programs: String,
    /// A directory owned by the user that runs the programs. Each server has a subdirectory.
    pub(crate) folder: PathBuf,
    _keeper: Keeper,
}

pub(super) fn sandbox() -> Result<Sandbox> {
    let programs = find().context(NOT_FOUND)?;
    let user = user()?;
    let folder = user.directory()?;
    let (prefix, home) = (user.prefix(), quoted(&folder));
    let programs = format!("{prefix}{}/", quoted(programs));
    let stop = format!("{programs}pg_ctl stop -s -w -m immediate -D");
    let remove = format!("for data in {home}/*/; do {stop} \"$data\"; done; {prefix}rm -rf {home}");
    Ok(Sandbox {
        _keeper: Keeper::new(&remove)?,
        programs,
        folder,
    })
}

/// Installs the distribution's package, and then starts a server. Only root may do this: tests of
/// another user change nothing on the machine, and root is not asked for a password.
pub(super) fn install_and_start() -> Result<Server> {
    ensure!(
        find().is_none(),
        "PostgreSQL is already installed, so there is nothing to install"
    );
    ensure!(
        on_path("apt-get").is_some(),
        "the program `apt-get` is not on the PATH"
    );
    ensure!(is_root()?, "only root can install packages");
    eprintln!("PostgreSQL is not installed: installing the package `postgresql` with apt-get");
    // This setting prevents the package from creating and starting its default server.
    let setting = Path::new(DEBIAN_SETTINGS).join("ratchet-xtask.conf");
    fs::create_dir_all(DEBIAN_SETTINGS)?;
    fs::write(&setting, "create_main_cluster = false\n")?;
    let installed = apt(&["update"])
        .and_then(|()| apt(&["install", "--yes", "--no-install-recommends", "postgresql"]));
    fs::remove_file(setting)?;
    installed?;
    start()
}

pub(super) fn apt(args: &[&str]) -> Result<()> {
    let mut apt = process::program("apt-get");
    process::run(apt.args(args).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Returns the directory with the newest programs, if there are any.
fn find() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| Reverse(*version));
    let on_path = on_path("initdb").and_then(|initdb| {
        // If `initdb` is a link, the server's program is in the directory of the linked file.
        Some(initdb.canonicalize().ok()?.parent()?.to_owned())
    });
    versions
        .into_iter()
        .map(|(_, programs)| programs)
        .chain(on_path)
        .find(|programs| {
            ["initdb", "pg_ctl", "postgres"]
                .iter()
                .all(|name| programs.join(name).is_file())
        })
}

/// The user that runs the server: the current one, or another if the current one is root, since
/// PostgreSQL refuses root.
enum User {
    Ourselves,
    Other(&'static str),
}

fn user() -> Result<User> {
    if !is_root()? {
        return Ok(User::Ourselves);
    }
    ensure!(
        on_path("runuser").is_some(),
        "PostgreSQL refuses to run as root, and the program `runuser` is not on the PATH"
    );
    let exists = |name: &&str| process::works(process::program("id").args(["-u", name]));
    let other = ["postgres", "nobody"].into_iter().find(exists);
    Ok(User::Other(other.context(
        "PostgreSQL refuses to run as root, and there is no other user",
    )?))
}

pub(super) fn is_root() -> Result<bool> {
    Ok(output(Command::new("id").arg("-u"))? == "0")
}

impl User {
    /// Returns a command that this user runs.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        match self {
            Self::Ourselves => Command::new(program.as_ref()),
            Self::Other(name) => {
                let mut command = Command::new("runuser");
                command.args(["-u", name, "--"]).arg(program.as_ref());
                command
            }
        }
    }

    /// Creates a temporary directory owned by this user.
    fn directory(&self) -> Result<PathBuf> {
        let template = format!("{}/ratchet-postgres.XXXXXX", temporary());
        let made = output(self.command("mktemp").args(["-d", &template]))?;
        Ok(PathBuf::from(made))
    }

    /// Returns the prefix of a shell line that this user runs.
    fn prefix(&self) -> String {
        match self {
            Self::Ourselves => String::new(),
            Self::Other(name) => format!("runuser -u {name} -- "),
        }
    }
}

/// Returns the directory in which servers keep their data: on a disk, unless the tests use a
/// directory in memory. Benchmarks need a disk, because the figures of a server in memory do not
/// include durability.
pub(super) fn temporary() -> String {
    if let Some(memory) = memory::in_use() {
        return memory.display().to_string();
    }
    let wanted = std::env::var("TMPDIR").ok().filter(|path| !path.is_empty());
    let kept = || {
        Path::new("/var/tmp")
            .is_dir()
            .then(|| "/var/tmp".to_owned())
    };
    wanted.or_else(kept).unwrap_or_else(|| "/tmp".to_owned())
}

/// Tests that need passwords create members of this role, which must log in with one.
const WITH_PASSWORD: &str = "host all +ratchet_with_password 127.0.0.1/32 scram-sha-256";

/// Creates the data directory. Every user of this machine may connect over the loopback interface
/// without a password, since the server is temporary and holds nothing secret.
fn initialize(programs: &Path, user: &User, directory: &Path) -> Result<()> {
    let mut initdb = user.command(programs.join("initdb"));
    initdb.arg("-D").arg(directory.join("data"));
    initdb.args([
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-locale",
        "--no-sync",
    ]);
    let rules = directory.join("data").join("pg_hba.conf");
    let mut sed = user.command("sed");
    sed.args(["-i", &format!("1i {WITH_PASSWORD}")]).arg(rules);
    let made = output(&mut initdb).and_then(|_| output(&mut sed)).map(drop);
    if made.is_err() {
        output(user.command("rm").arg("-rf").arg(directory))?;
    }
    made
}

fn listen(programs: &Path, user: &User, directory: &Path, version: &str) -> Result<Server> {
    let port = free_port()?;
    // fsync is on by default; it is set here because figures and crash tests depend on it.
    // Statements are counted only in databases that enable this, so the other databases do not pay
    // for it.
    let counting = match counts_statements(programs) {
        true => "-c shared_preload_libraries=pg_stat_statements -c pg_stat_statements.track=none",
        false => "",
    };
    let settings = format!(
        "-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={} \
         -c max_connections=200 -c fsync=on -c password_encryption=scram-sha-256 {counting}",
        directory.display()
    );
    let (data, log) = (
        quoted(directory.join("data")),
        quoted(directory.join("log")),
    );
    let pg_ctl = format!("{}{}", user.prefix(), quoted(programs.join("pg_ctl")));
    let stop = format!("{pg_ctl} stop -s -w -m immediate -D {data}");
    let start = format!(
        "{pg_ctl} start -s -w -t 60 -D {data} -l {log} -o {}",
        quoted(&settings)
    );
    let control = Control {
        // The data is removed even if the server had already been stopped.
        remove: format!("{stop}; {}rm -rf {}", user.prefix(), quoted(directory)),
        stop,
        start: format!("{start} || {{ tail -n 5 {log} >&2; exit 1; }}"),
    };
    let version = version.replace("postgres (PostgreSQL)", "PostgreSQL");
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    Server::start(url, format!("{version}, started for this run"), control)
}

/// Returns whether the extension `pg_stat_statements` is installed. Some systems have it in a
/// separate package.
fn counts_statements(programs: &Path) -> bool {
    let library = output(Command::new(programs.join("pg_config")).arg("--pkglibdir"));
    library.is_ok_and(|directory| {
        Path::new(&directory)
            .join("pg_stat_statements.so")
            .is_file()
    })
}
