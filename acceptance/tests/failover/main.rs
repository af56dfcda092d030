//! Failover with real processes: nodes under steady load, whose leader is killed, stopped, cut off
//! from its database, and which are restarted one after the other.
//!
//! After each case: at most one process ever led in a term, and none after a later term had begun,
//! over all samples, and there were samples;
//! every acknowledged job succeeded; no lane was overtaken; bodies began again only under a new
//! claim. Times are printed, and required only with `RATCHET_FAILOVER_TTL_MILLIS` set, as
//! `cargo xtask failover` does: on a busy machine they would fail for no reason.
//!
//! One more case, on PostgreSQL: the leader is killed where locks end with the session of their
//! holder, and would last forty times longer otherwise. There it is required always that the lock
//! did not end by time.
//!
//! | variable | meaning |
//! |---|---|
//! | `RATCHET_TEST_POSTGRES_URL` | the server; without it the cases on PostgreSQL are ignored |
//! | `RATCHET_FAILOVER_TTL_MILLIS` | how long the leader's lock lasts; 1,500, and times are not required |
#![cfg_attr(not(unix), allow(dead_code, reason = "signals are those of Unix"))]
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "it prints what happened")]

mod cases;
mod cluster;
mod judge;
mod proxy;
mod worker;

use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(order) = worker::Order::of_environment() {
        return worker::run(&order);
    }
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    if cfg!(unix) {
        for case in cases::CASES {
            if !case.needs_server() {
                trials.push(case.trial("sqlite", Some(String::new())));
            }
            trials.push(case.trial("postgres", env::var("RATCHET_TEST_POSTGRES_URL").ok()));
        }
    }
    libtest_mimic::run(&arguments, trials.into_iter().collect::<Vec<Trial>>()).exit_code()
}
