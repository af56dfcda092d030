//! Runs the conformance suite on an optimistic engine: a commit fails if another transaction was
//! committed after the snapshot.

#[allow(dead_code, reason = "each test uses only a part of this module")]
mod map;

use std::process::ExitCode;

fn main() -> ExitCode {
    map::fixture::run("kv-optimistic", map::MapEngine::optimistic)
}
