//! The conformance suite on a replica set: separate collections per case, with several handles on
//! them.

mod fixture;
mod server;

use std::process::ExitCode;

use ratchet_conformance::{Power, Suite};

fn main() -> ExitCode {
    // Runs few histories, because each step waits until a majority has stored it in the journal.
    // The store may report that other jobs wait for a job although no job does, because it flags a
    // parent before it stores the child.
    let powers = [
        Power::STORE,
        &[
            Power::FairKeys,
            Power::FairLimits,
            Power::Transactions,
            Power::RowLocks,
        ],
    ]
    .concat();
    let suite = Suite::new("mongodb", &powers).histories(10);
    let suite = suite
        .may_say_awaited_of_others()
        .attach(|prefix| fixture::attach(server::SERVER, prefix));
    suite.run(async { fixture::provision(server::SERVER, true) })
}
