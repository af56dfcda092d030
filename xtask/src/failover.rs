//! Runs the failover tests several times with real timings, and shows the figures that they print.

use anyhow::{Context, Result};

use crate::db::{self, Server};
use crate::process;

/// How often to run the tests, and how long the leader's lock lasts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many times each case is run.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How long a leader's lock lasts, in milliseconds.
    #[arg(long, default_value_t = 6_000)]
    ttl_millis: u64,
    /// Arguments for the tests, such as the name of one.
    #[arg(last = true)]
    tests: Vec<String>,
}

/// Runs the failover tests, which are otherwise ordinary tests, one at a time, and fails if a
/// recovery takes too long.
pub(crate) fn run(args: &Args) -> Result<()> {
    let postgres: Server =
        db::postgres::provide().context("the failover cases on PostgreSQL need a server")?;
    let mysql = db::mysql::provide().context("the failover cases on MySQL need a server")?;
    println!(
        "{}; {}; ttl {} ms",
        postgres.origin, mysql.origin, args.ttl_millis
    );
    for round in 1..=args.rounds {
        println!("round {round} of {}", args.rounds);
        let mut test = process::cargo(&["test", "--release", "--package", "ratchet-acceptance"]);
        test.args(["--test", "failover", "--"])
            .args(["--nocapture", "--test-threads", "1"])
            .args(&args.tests)
            .env(db::postgres::URL, &postgres.url)
            .env(db::mysql::URL, &mysql.url)
            .env("RATCHET_FAILOVER_TTL_MILLIS", args.ttl_millis.to_string());
        process::run(&mut test)?;
    }
    Ok(())
}
