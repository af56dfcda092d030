//! The conformance suite on a server without transactions. Such a server has only the optional
//! powers that the list in this file contains. A few cases need an enqueue that stores several jobs
//! atomically; the report lists them as exempted. All other cases must pass.

mod fixture;
mod server;

use std::process::ExitCode;

use ratchet_conformance::{Power, Suite};

/// Cases that need an enqueue which stores several jobs atomically.
const WITHOUT: &[&str] = &[
    "differential",
    "enqueue::a_dropped_enqueue_has_stored_all_of_its_jobs_or_none",
];

const WHY: &str = "needs transactions, which a standalone server lacks";

fn main() -> ExitCode {
    Suite::new(
        "mongodb-standalone",
        &[
            Power::Clock,
            Power::Vandal,
            Power::Residue,
            Power::Restart,
            Power::Processes,
            Power::Rates,
            Power::Diagnostics,
            Power::Tags,
        ],
    )
    .without(WHY, WITHOUT)
    .attach(|prefix| fixture::attach(server::STANDALONE, prefix))
    .run(async { fixture::provision(server::STANDALONE, false) })
}
