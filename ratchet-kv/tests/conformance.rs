//! Runs the conformance suite on an engine with one writer at a time.

#[allow(dead_code, reason = "each test uses only a part of this module")]
mod map;

use std::process::ExitCode;

fn main() -> ExitCode {
    map::fixture::run("kv", map::MapEngine::new)
}
