//! The conformance suite on a server without transactions: what is refused there is left out, and
//! says so in the report; everything else holds.

mod fixture;
mod server;

use std::process::ExitCode;

use ratchet_conformance::{Power, Suite};

/// What is about lanes, guards and idempotency keys, and about batches that are all or nothing.
const WITHOUT: &[&str] = &["lane", "guard"];

fn main() -> ExitCode {
    Suite::new("mongodb-standalone", Power::STORE)
        .without("needs transactions, which a standalone has not", WITHOUT)
        .run(async { fixture::provision(server::STANDALONE_URL) })
}
