//! Runs the suite on the in-memory store, which is the executable specification.

use std::process::ExitCode;

use ratchet_conformance::{MemoryFixture, Power, Provision, Suite};

fn main() -> ExitCode {
    Suite::new("memory", Power::MEMORY)
        .run(async { Provision::ready(|| async { Ok(MemoryFixture::new()) }) })
}
