//! Throwaway database servers, for the tests, the benchmarks and a person.
//!
//! A server lives in a directory of its own, listens on the loopback interface on a free port, and
//! is stopped and removed by the process that started it.

mod compose;
mod keeper;
mod local;
mod memory;
pub(crate) mod mongodb;
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
    /// Stops the server that `up` started, or all of them, and removes the data.
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

/// The servers there are.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Postgres,
    /// A replica set of one node.
    Mongodb,
    /// One without a replica set.
    MongodbStandalone,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mongodb => "mongodb",
            Self::MongodbStandalone => "mongodb-standalone",
        }
    }

    /// The variable that names it for the tests.
    const fn variable(self) -> &'static str {
        match self {
            Self::Postgres => postgres::URL,
            Self::Mongodb => mongodb::URL,
            Self::MongodbStandalone => mongodb::STANDALONE_URL,
        }
    }

    fn start(self) -> Result<Server> {
        match self {
            Self::Postgres => postgres::own(),
            Self::Mongodb => mongodb::own(),
            Self::MongodbStandalone => mongodb::own_standalone(),
        }
    }

    /// Where it is written down that it runs.
    fn state(self) -> Result<PathBuf> {
        let file = format!("{}.json", self.name());
        Ok(process::target_dir()?.join("xtask").join(file))
    }
}

/// A server. Unless it was only named to us, it is stopped when this is dropped, or when this
/// process ends in any other way.
pub(crate) struct Server {
    pub(crate) url: String,
    /// Where it comes from, for people.
    pub(crate) origin: String,
    /// How to stop and start it, if it is ours.
    pub(crate) control: Option<Control>,
    /// The program it runs, where tests start further servers of it.
    pub(crate) program: Option<PathBuf>,
    keeper: Option<Keeper>,
}

/// Shell lines that do something to a server.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    /// Stops it at once, as a crash would. Its data stays.
    pub(crate) stop: String,
    /// Starts it again on the same port, and waits until it answers.
    pub(crate) start: String,
    /// Stops it and removes everything it left.
    remove: String,
}

impl Server {
    /// One that is not ours to stop.
    pub(crate) fn named(url: String) -> Self {
        Self {
            url,
            origin: "the server named to us".to_owned(),
            control: None,
            program: None,
            keeper: None,
        }
    }

    /// One we have prepared: it is started here, and from now on will be stopped and removed.
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

    /// Leaves it running when this process ends. Returns the command that removes it.
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
        println!("It runs already.");
        return told(kind, &url);
    }
    if state.exists() {
        // Stopped by something else, such as a restart of the machine: only its data is left.
        down(state)?;
    }
    let server = kind.start()?;
    println!("Started {}.", server.origin);
    let url = server.url.clone();
    if let Some(parent) = state.parent() {
        fs::create_dir_all(parent)?;
    }
    // Written before it is left alone, so that a server without a state file is never left.
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
        .context("no command in the state file")?;
    shell(remove)?;
    fs::remove_file(state)?;
    println!("Stopped, and its data removed.");
    Ok(())
}

/// The URL of the server of `up`, if it answers.
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

/// Runs a line of shell away from the checkout, which the server's user may not be able to read.
/// What it writes is shown only if it fails.
fn shell(line: &str) -> Result<()> {
    output(Command::new("sh").args(["-c", line])).map(drop)
}

/// Runs a command that is not interesting unless it fails; returns its standard output.
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

/// A word that the shell takes as it is.
fn quoted(word: impl AsRef<Path>) -> String {
    format!(
        "'{}'",
        word.as_ref().display().to_string().replace('\'', r"'\''")
    )
}

/// A program, if it is on the path.
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
