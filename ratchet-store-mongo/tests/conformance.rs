//! The conformance suite on a replica set: collections of its own per case, several handles on
//! them.

mod fixture;
mod server;

use std::process::ExitCode;

use ratchet_conformance::{Power, Suite};

fn main() -> ExitCode {
    Suite::new(
        "mongodb",
        &[
            Power::Clock,
            Power::Vandal,
            Power::Archive,
            Power::Recurring,
            Power::Workflows,
            Power::Signals,
        ],
    )
    .run(async { fixture::provision(server::URL) })
}
