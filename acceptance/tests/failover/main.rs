//! Failover with real processes: nodes under steady load, whose leader is killed, stopped, or
//! disconnected from its database, or which are restarted one after the other.
//!
//! After each case, the samples show at least one leader, at most one process per term, and no
//! leader of a term after a later term had begun. Every acknowledged job succeeded, no job overtook
//! another in its lane, and bodies began again only under a new claim. The times are printed. Their
//! limits are checked only if `RATCHET_FAILOVER_TTL_MILLIS` is set, as `cargo xtask failover` does:
//! on a busy machine, limits would make the tests fail without a defect.
//!
//! On PostgreSQL, one more case kills a leader whose lock ends with its database session. The TTL
//! of this lock is forty times longer than usual. The case always requires that another process
//! leads before half of the TTL has passed.
//!
//! | variable | meaning |
//! |---|---|
//! | `RATCHET_TEST_POSTGRES_URL`, `RATCHET_TEST_MYSQL_URL` | the servers; the cases of a missing server are ignored |
//! | `RATCHET_FAILOVER_TTL_MILLIS` | how long the leader's lock lasts; without it 1,500, and times are not required |
#![cfg_attr(
    not(unix),
    allow(dead_code, reason = "the tests send signals, which only Unix has")
)]
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "the program prints what happens")]

mod cases;
mod cluster;
mod judge;
mod proxy;
mod worker;

use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// The backends with a server, each with the variable that has the URL.
const SERVERS: [(&str, &str); 2] = [
    ("postgres", "RATCHET_TEST_POSTGRES_URL"),
    ("mysql", "RATCHET_TEST_MYSQL_URL"),
];

fn main() -> ExitCode {
    if let Some(order) = worker::Order::of_environment() {
        return worker::run(&order);
    }
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    if cfg!(unix) {
        for case in cases::CASES {
            if !case.needs_server() {
                trials.push(case.trial("sqlite", Ok(String::new())));
            }
            for (backend, variable) in SERVERS {
                if case.runs_on(backend) {
                    let url = env::var(variable);
                    let url = url.map_err(|_| format!("{variable} is not set"));
                    trials.push(case.trial(backend, url));
                }
            }
        }
    }
    libtest_mimic::run(&arguments, trials.into_iter().collect::<Vec<Trial>>()).exit_code()
}
