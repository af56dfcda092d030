//! Runs the coordinator suite on the in-process coordinator.

use std::process::ExitCode;

use ratchet_conformance::{CoordinatorFactory, CoordinatorSuite, Power, Provision};
use ratchet_core::cluster::InProcessCoordinator;

fn main() -> ExitCode {
    let factory = CoordinatorFactory::new(|| async { Ok(InProcessCoordinator::new()) });
    CoordinatorSuite::new("in-process", &[Power::Delivery]).run(async { Provision::Ready(factory) })
}
