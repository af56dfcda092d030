//! The floor: a job queue written by hand with the driver and no library.
//!
//! The floor uses batches of 100, keeps finished rows, and has the default durability. It has no
//! claim tokens, no history, no unique keys and only one node. A program that needs these features
//! pays for them, with or without a library.

mod mysql;
mod postgres;
mod sqlite;

use anyhow::{Result, bail, ensure};
use ratchet_bench::figures::Outcome;
use ratchet_bench::load::Nothing;

use crate::Options;

/// Maximum number of rows that one claim returns, and that one statement completes.
const BATCH: usize = 100;

pub(crate) async fn run(scenario: &'static str, options: &Options) -> Result<Outcome> {
    ensure!(
        !matches!(scenario, "claim" | "contend"),
        "the floor program has no aging, so its claims cannot be compared with those of Ratchet"
    );
    let mut outcome = match options.url.split_once("://") {
        Some(("sqlite", path)) => sqlite::run(scenario, options, path)?,
        Some(("postgres" | "postgresql", _)) => postgres::run(scenario, options).await?,
        Some(("mysql" | "mariadb", _)) => mysql::run(scenario, options).await?,
        _ => {
            bail!("the floor program supports only sqlite://FILE, postgres://… and mysql://… URLs")
        }
    };
    outcome.peer = "floor".to_owned();
    outcome.scenario = scenario.to_owned();
    Ok(outcome)
}

/// Returns the JSON payloads of `count` jobs, numbered from `first`.
fn payloads(first: usize, count: usize) -> Result<Vec<String>> {
    let payload = |n| Ok(serde_json::to_string(&Nothing::number(n))?);
    (first..first + count).map(payload).collect()
}
