//! Runs the conformance suite on an engine whose commits fail if another transaction was faster.

#[allow(dead_code, reason = "each test uses a part of it")]
mod map;

use std::process::ExitCode;

fn main() -> ExitCode {
    map::fixture::run("kv-optimistic", map::MapEngine::optimistic)
}
