//! The chaos tests at full length, on a server that may be stopped.

use anyhow::Result;

use crate::backends::BACKENDS;
use crate::db::{self, Server};
use crate::process;

/// Which cluster to disturb, and how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum)]
    backend: Backend,
    /// How many times each fault is repeated. Default: 10, or 3 for failovers of the database
    /// itself, which take about a minute each.
    #[arg(long)]
    rounds: Option<u32>,
    /// Arguments for the tests, such as the name of one.
    #[arg(last = true)]
    tests: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Backend {
    Postgres,
    /// PostgreSQL servers that are promoted, restored and cut off.
    PostgresPair,
    /// MariaDB.
    Mysql,
    /// MariaDB servers that are promoted, restored and cut off, and a Galera cluster of three, if
    /// Galera is installed.
    MysqlPair,
    /// A replica set of one node.
    Mongodb,
    /// A replica set of three nodes, with faults of the primary and of replication.
    MongodbSet,
    /// The server in `RATCHET_TEST_SQLSERVER_URL`. `RATCHET_CHAOS_STOP` and `RATCHET_CHAOS_START`
    /// stop and start it; without these variables it is not stopped.
    Sqlserver,
}

/// Runs the chaos tests with more rounds than an ordinary test run. Uses a separate server, which
/// can be stopped without affecting other tests.
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
    // Removes the variables of all servers, so that the tests of other backends are skipped. Those
    // tests would stop and start the server of this run.
    for other in BACKENDS.iter().filter_map(|one| one.server.as_ref()) {
        test.env_remove(other.url);
    }
    let (server, variable): (Server, _) = match args.backend {
        Backend::Postgres => (db::postgres::own()?, db::postgres::URL),
        Backend::PostgresPair => {
            let sandbox = db::postgres::sandbox()?;
            test.env("RATCHET_CHAOS_POSTGRES", &sandbox.programs)
                .env("RATCHET_CHAOS_FOLDER", &sandbox.folder);
            return process::run(&mut test);
        }
        Backend::MysqlPair => {
            let sandbox = db::mysql::sandbox()?;
            test.env("RATCHET_CHAOS_MYSQL", &sandbox.user)
                .env("RATCHET_CHAOS_FOLDER", &sandbox.folder)
                .env("PATH", &sandbox.path);
            if let Some(library) = db::mysql::galera() {
                test.env("RATCHET_CHAOS_GALERA", library);
            }
            return process::run(&mut test);
        }
        Backend::Mysql => (db::mysql::own()?, db::mysql::URL),
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
