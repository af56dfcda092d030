//! Runs the coordinator suite on the coordinator that transports no wakeups. The contract allows
//! such a coordinator, because wakeups may be lost.

use std::process::ExitCode;

use ratchet_conformance::{CoordinatorFactory, CoordinatorSuite, Provision};
use ratchet_core::cluster::NoopCoordinator;

fn main() -> ExitCode {
    let factory = CoordinatorFactory::new(|| async { Ok(NoopCoordinator) });
    CoordinatorSuite::new("noop", &[]).run(async { Provision::Ready(factory) })
}
