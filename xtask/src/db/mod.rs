//! Throwaway database servers, for tests, benchmarks and manual use.
//!
//! A server has a separate directory and listens on a free port of the loopback interface. The
//! process that started it stops and removes it.

mod compose;
mod keeper;
mod local;
mod memory;
pub(crate) mod mongodb;
pub(crate) mod mysql;
pub(crate) mod object;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod sqlserver;
mod wire;

use std::env;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};

use self::keeper::Keeper;
pub(crate) use self::memory::{InMemory, use_memory};
use crate::process;

/// What to do with the server.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Starts a server that stays until `down`, and prints its URL.
    Up {
        #[arg(value_enum, default_value_t = Kind::Postgres)]
        server: Kind,
    },
    /// Stops the server that `up` started, or all such servers, and removes their data.
    Down {
        #[arg(value_enum)]
        server: Option<Kind>,
    },
    /// Prints the URL of the server that `up` started.
    Url {
        #[arg(value_enum, default_value_t = Kind::Postgres)]
        server: Kind,
    },
}

/// The kinds of servers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Postgres,
    /// A replica set of one node.
    Mongodb,
    /// A server without a replica set.
    MongodbStandalone,
    /// A MariaDB.
    Mysql,
    /// An emulator of Amazon S3.
    ObjectS3,
    /// An emulator of Azure Blob Storage.
    ObjectAzure,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mongodb => "mongodb",
            Self::MongodbStandalone => "mongodb-standalone",
            Self::Mysql => "mysql",
            Self::ObjectS3 => "object-s3",
            Self::ObjectAzure => "object-azure",
        }
    }

    /// Returns the variable that passes the server's URL to the tests.
    const fn variable(self) -> &'static str {
        match self {
            Self::Postgres => postgres::URL,
            Self::Mongodb => mongodb::URL,
            Self::MongodbStandalone => mongodb::STANDALONE_URL,
            Self::Mysql => mysql::URL,
            Self::ObjectS3 => object::S3_URL,
            Self::ObjectAzure => object::AZURE_URL,
        }
    }

    fn start(self) -> Result<Server> {
        match self {
            Self::Postgres => postgres::own(),
            Self::Mongodb => mongodb::own(),
            Self::MongodbStandalone => mongodb::own_standalone(),
            Self::Mysql => mysql::own(),
            Self::ObjectS3 => object::own_s3(),
            Self::ObjectAzure => object::own_azure(),
        }
    }

    /// Returns the path of the file that records the running server.
    fn state(self) -> Result<PathBuf> {
        let file = format!("{}.json", self.name());
        Ok(process::target_dir()?.join("xtask").join(file))
    }
}

/// A database server. Unless the environment named it, it is stopped when this is dropped, or when
/// this process ends in any other way.
pub(crate) struct Server {
    pub(crate) url: String,
    /// Where the server comes from, as shown to people.
    pub(crate) origin: String,
    /// How to stop and start the server, if we started it.
    pub(crate) control: Option<Control>,
    /// The server's program, if tests start further servers from it.
    pub(crate) program: Option<PathBuf>,
    keeper: Option<Keeper>,
}

/// Shell lines that stop, start and remove a server.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    /// Stops the server at once, as a crash would. Its data stays.
    pub(crate) stop: String,
    /// Starts the server again on the same port, and waits until it responds.
    pub(crate) start: String,
    /// Stops the server and removes all its files.
    remove: String,
}

impl Server {
    /// Returns a server that the environment names, and that we do not stop.
    pub(crate) fn named(url: String) -> Self {
        Self {
            url,
            origin: "a server from an environment variable".to_owned(),
            control: None,
            program: None,
            keeper: None,
        }
    }

    /// Starts a prepared server, which will be stopped and removed when this is dropped.
    fn start(url: String, origin: String, control: Control) -> Result<Self> {
        let keeper = Keeper::new(&control.remove)?;
        shell(&control.start)?;
        Ok(Self {
            url,
            origin,
            control: Some(control),
            program: None,
            keeper: Some(keeper),
        })
    }

    /// Leaves the server running after this process ends. Returns the command that removes it.
    fn leave(mut self) -> Result<Option<String>> {
        if let Some(keeper) = self.keeper.take() {
            keeper.leave()?;
        }
        Ok(self.control.map(|control| control.remove))
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match args.action {
        Action::Up { server } => up(server),
        Action::Down {
            server: Some(server),
        } => down(&server.state()?),
        Action::Down { server: None } => {
            for server in Kind::value_variants() {
                if server.state()?.exists() {
                    println!("{}:", server.name());
                    down(&server.state()?)?;
                }
            }
            Ok(())
        }
        Action::Url { server } => match running(&server.state()?)? {
            Some(url) => {
                println!("{url}");
                Ok(())
            }
            None => bail!(
                "no server runs; start one with `cargo xtask db up {}`",
                server.name()
            ),
        },
    }
}

fn up(kind: Kind) -> Result<()> {
    let state = &kind.state()?;
    if let Some(url) = running(state)? {
        println!("The server is already running.");
        return told(kind, &url);
    }
    if state.exists() {
        // The server was stopped by something else, such as a reboot, and only its data is left.
        down(state)?;
    }
    let server = kind.start()?;
    println!("Started {}.", server.origin);
    let url = server.url.clone();
    if let Some(parent) = state.parent() {
        fs::create_dir_all(parent)?;
    }
    // The state is written first, so that no server is left running without a state file.
    let remove = server.control.as_ref().map(|control| &control.remove);
    fs::write(state, json!({"url": url, "remove": remove}).to_string())?;
    server.leave()?;
    told(kind, &url)
}

fn told(kind: Kind, url: &str) -> Result<()> {
    println!(
        "\n  export {}='{url}'\n\nStop it with `cargo xtask db down {}`.",
        kind.variable(),
        kind.name()
    );
    Ok(())
}

fn down(state: &Path) -> Result<()> {
    let Some(found) = read(state)? else {
        println!("No server was started by `cargo xtask db up`.");
        return Ok(());
    };
    let remove = found["remove"]
        .as_str()
        .context("the state file has no command that removes the server")?;
    shell(remove)?;
    fs::remove_file(state)?;
    println!("Stopped the server and removed its data.");
    Ok(())
}

/// Returns the URL of the server that `up` started, if that server responds.
fn running(state: &Path) -> Result<Option<String>> {
    let url = read(state)?.and_then(|found| found["url"].as_str().map(str::to_owned));
    Ok(url.filter(|url| answers(url)))
}

fn read(state: &Path) -> Result<Option<Value>> {
    if !state.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(state)?;
    let found = serde_json::from_str(&text);
    Ok(Some(found.with_context(|| {
        format!("{} is damaged", state.display())
    })?))
}

/// Returns whether a server listens at the host and port of a URL.
fn answers(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.split(['/', '?']).next().unwrap_or(host);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    host.parse()
        .is_ok_and(|address| TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok())
}

/// Returns a port of the loopback interface that is free at the moment.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Runs a shell line outside of the checkout, which the server's user may be unable to read. Its
/// output is shown only if it fails.
fn shell(line: &str) -> Result<()> {
    output(Command::new("sh").args(["-c", line])).map(drop)
}

/// Runs a command and returns its standard output. Its output is shown only if it fails.
fn output(command: &mut Command) -> Result<String> {
    let output = command
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        bail!("{command:?} ended with {}\n{out}\n{err}", output.status);
    }
    Ok(text(&output.stdout))
}

/// Quotes a word so that the shell does not interpret it.
fn quoted(word: impl AsRef<Path>) -> String {
    format!(
        "'{}'",
        word.as_ref().display().to_string().replace('\'', r"'\''")
    )
}

/// Returns the path of a program, if it is on the PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_survive_the_shell() {
        let line = format!("printf %s {}", quoted("it's a $HOME"));
        let said = output(Command::new("sh").args(["-c", &line])).unwrap();
        assert_eq!(said, "it's a $HOME");
    }

    #[test]
    fn a_url_is_asked_at_its_address() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("postgres://user:secret@{address}/name?x=1");
        assert!(answers(&url));
        drop(listener);
        assert!(!answers(&url));
    }
}
