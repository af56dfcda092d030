//! The chaos tests at full length, on a server that may be stopped.

use anyhow::Result;

use crate::backends::BACKENDS;
use crate::db::{self, Server};
use crate::process;

/// What to disturb, and how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum)]
    backend: Backend,
    /// How often each fault is repeated. Default: 10; 3 for failovers of the database itself, which
    /// take about a minute each.
    #[arg(long)]
    rounds: Option<u32>,
    /// Passed on to the tests, such as the name of one.
    #[arg(last = true)]
    tests: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Backend {
    Postgres,
    /// PostgreSQL servers that are promoted, restored and cut off.
    PostgresPair,
    /// A replica set of one node.
    Mongodb,
    /// A replica set of three nodes, with faults of the primary and of replication.
    MongodbSet,
    /// The server that `RATCHET_TEST_SQLSERVER_URL` names. What stops and starts it is in
    /// `RATCHET_CHAOS_STOP` and `RATCHET_CHAOS_START`, or else it is not stopped.
    Sqlserver,
}

/// The tests are ordinary tests of the facade; here they get more rounds, and a server of their
/// own, so that it can be stopped without disturbing others.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut test = process::cargo(&["test", "--release", "--package", "ratchet-acceptance"]);
    test.args(["--test", "chaos", "--"])
        .args(["--nocapture", "--test-threads", "1"])
        .args(&args.tests)
        .env(
            "RATCHET_CHAOS_ROUNDS",
            args.rounds.unwrap_or(10).to_string(),
        );
    if let Some(rounds) = args.rounds {
        test.env("RATCHET_CHAOS_TOPOLOGY_ROUNDS", rounds.to_string());
    }
    // The cases of another server would stop and start this one.
    for other in BACKENDS.iter().filter_map(|one| one.server.as_ref()) {
        test.env_remove(other.url);
    }
    let (server, variable): (Server, _) = match args.backend {
        Backend::Postgres => (db::postgres::own()?, db::postgres::URL),
        Backend::PostgresPair => {
            let place = db::postgres::place()?;
            test.env("RATCHET_CHAOS_POSTGRES", &place.programs)
                .env("RATCHET_CHAOS_FOLDER", &place.folder);
            return process::run(&mut test);
        }
        Backend::Mongodb => (db::mongodb::own()?, db::mongodb::URL),
        Backend::MongodbSet => (db::mongodb::own_three()?, db::mongodb::URL),
        Backend::Sqlserver => (db::sqlserver::provide()?, db::sqlserver::URL),
    };
    println!("{}", server.origin);
    test.env(variable, &server.url);
    if let Some(control) = &server.control {
        test.env("RATCHET_CHAOS_STOP", &control.stop)
            .env("RATCHET_CHAOS_START", &control.start);
    }
    process::run(&mut test)
}
