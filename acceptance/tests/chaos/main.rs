//! Chaos tests on real servers: worker processes, connections, operations and the server itself are
//! killed repeatedly under load.
//!
//! After each case, every job whose enqueue was acknowledged has succeeded, failed or is pending,
//! and no such job is lost. Bodies ran again only after a lost claim, under a new `claim_seq`, and
//! no worker exited by itself. The time until recovery is printed.
//!
//! | variable | meaning |
//! |---|---|
//! | `RATCHET_TEST_POSTGRES_URL`, `RATCHET_TEST_MYSQL_URL`, `RATCHET_TEST_MONGODB_URL`, `RATCHET_TEST_SQLSERVER_URL` | the servers; the cases of a missing server are ignored |
//! | `RATCHET_CHAOS_ROUNDS` | how many times each disturbance is repeated; default 3, or 1 if the clock steps |
//! | `RATCHET_CHAOS_STOP`, `RATCHET_CHAOS_START` | shell lines that stop and start the server; without them, cases that need the server for themselves are ignored |
//! | `RATCHET_CHAOS_POSTGRES`, `RATCHET_CHAOS_FOLDER` | the prefix of a shell line that runs a program of PostgreSQL, and a directory for servers; without them, the cases `topology::pair` are ignored |
//! | `RATCHET_CHAOS_MYSQL`, `RATCHET_CHAOS_GALERA` | the option of MariaDB's programs that names their user, or an empty text, and the library of Galera; without them, the cases `topology::mysql_pair` and `topology::galera` are ignored |
//! | `RATCHET_CHAOS_TOPOLOGY_ROUNDS` | how many times each fault of [`topology`] is repeated; default 3 |
//!
//! `cargo xtask chaos postgres`, `postgres-pair`, `mysql`, `mysql-pair`, `mongodb` and
//! `mongodb-set` set these variables.
//! `cargo xtask chaos sqlserver` takes the server, and the lines that stop and start it, from the
//! environment.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "the program prints what happens")]

mod cases;
mod clock;
mod field;
mod judge;
mod mongodb;
mod mysql;
mod sqlserver;
mod topology;
mod worker;

use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};
use ratchet_conformance::is_required;

use crate::cases::{CASES, Case};

fn main() -> ExitCode {
    if let Some(order) = worker::Order::of_environment() {
        return worker::run(&order);
    }
    let arguments = Arguments::from_args();
    let trials = CASES.iter().map(trial).chain(topology::trials()).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(case: &'static Case) -> Trial {
    let variable = case.backend.variable();
    let url = env::var(variable).ok();
    let reason = match &url {
        None if is_required(case.backend.name()) => None,
        None => Some(format!("{variable} is not set")),
        Some(_) if case.needs_server && env::var_os("RATCHET_CHAOS_STOP").is_none() => {
            Some(format!(
                "this case needs a server of its own, which `cargo xtask chaos {}` starts",
                case.backend.name()
            ))
        }
        Some(_) => None,
    };
    let name = format!("{}::{}", case.backend.name(), case.name);
    if let Some(reason) = reason {
        let why = reason.clone();
        return Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why)))
            .with_kind(reason)
            .with_ignored_flag(true);
    }
    Trial::test(name, move || {
        let url = url.ok_or(format!(
            "this backend is required, but {variable} is not set"
        ))?;
        cases::run(case, &url);
        Ok(())
    })
}
