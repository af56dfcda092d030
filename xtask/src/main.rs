//! The maintenance commands of the workspace: `cargo xtask COMMAND`.
#![expect(clippy::print_stdout, reason = "this is a command-line tool")]

mod backends;
mod bench;
mod boundaries;
mod browser;
mod chaos;
mod db;
mod failover;
mod features;
mod load;
mod matrix;
mod mutants;
mod package;
mod process;
mod prose;
mod sim;
mod statements;
mod test;

use std::process::ExitCode;

use clap::Parser;

/// The maintenance commands of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Runs all tests: unit, integration, conformance, simulation, docs, examples.
    Test(test::Args),
    /// Runs the engine simulation with many seeds, or replays one.
    Sim(sim::Args),
    /// Starts and stops a throwaway database server for manual use.
    Db(db::Args),
    /// Repeatedly kills workers, connections and the server, and checks the result.
    Chaos(chaos::Args),
    /// Kills, stops and disconnects the leader among real processes, and measures the recovery.
    Failover(failover::Args),
    /// Measures every backend and the floor, or compares two revisions, and prints one table.
    Bench(bench::Args),
    /// Prints the conformance table of the last test run.
    Matrix,
    /// Builds the facade, the core and the command with each feature alone, and with none.
    Features(features::Args),
    /// Runs the tests of the SQL stores with one wrong statement at a time.
    Mutants(mutants::Args),
    /// Packages every crate that can be published, and runs the quickstart from the facade's
    /// archive.
    Package,
    /// Checks the wording of comments and documents.
    Prose(prose::Args),
    /// Checks that the core and the conformance suite mention no backend, that traits stay small,
    /// that the modules of the engine form no cycle, and that the SQL stores have the same files of
    /// statements.
    Boundaries,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Test(args) => test::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Db(args) => db::run(&args),
        Command::Chaos(args) => chaos::run(&args),
        Command::Failover(args) => failover::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Matrix => matrix::run(),
        Command::Features(args) => features::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Package => package::run(),
        Command::Prose(args) => prose::run(&args),
        Command::Boundaries => boundaries::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            match error.downcast_ref() {
                Some(bench::Slower { .. }) => ExitCode::from(bench::Slower::STATUS),
                None => ExitCode::FAILURE,
            }
        }
    }
}
