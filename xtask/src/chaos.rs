//! The chaos tests at full length, on a server that may be stopped.

use anyhow::{Context, Result};

use crate::db::{self, Server};
use crate::process;

/// What to disturb, and how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum)]
    backend: Backend,
    /// How often each thing is disturbed.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Passed on to the tests, such as the name of one.
    #[arg(last = true)]
    tests: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Backend {
    Postgres,
    /// A replica set of one node.
    Mongodb,
    /// A replica set of three nodes, of which the primary is stopped.
    MongodbSet,
}

/// The tests are ordinary tests of the facade; here they get more rounds, and a server of their
/// own, which nobody else misses while it is stopped.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (postgres, mongodb) = (db::postgres::URL, db::mongodb::URL);
    let (server, variable, other): (Server, _, _) = match args.backend {
        Backend::Postgres => (db::postgres::own()?, postgres, mongodb),
        Backend::Mongodb => (db::mongodb::own()?, mongodb, postgres),
        Backend::MongodbSet => (db::mongodb::own_three()?, mongodb, postgres),
    };
    let control = server.control.as_ref();
    let control = control.context("a server of our own can be stopped")?;
    println!("{}", server.origin);
    let mut test = process::cargo(&["test", "--release", "--package", "ratchet"]);
    test.args(["--all-features", "--test", "chaos", "--"])
        .args(["--nocapture", "--test-threads", "1"])
        .args(&args.tests)
        .env(variable, &server.url)
        // The cases of another server would stop and start this one.
        .env_remove(other)
        .env("RATCHET_CHAOS_ROUNDS", args.rounds.to_string())
        .env("RATCHET_CHAOS_STOP", &control.stop)
        .env("RATCHET_CHAOS_START", &control.start);
    process::run(&mut test)
}
