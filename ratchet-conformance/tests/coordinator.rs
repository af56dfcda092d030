//! Runs the suite on the coordinators of the core.

use std::process::ExitCode;

use ratchet_conformance::{CoordinatorFactory, CoordinatorSuite, Power, Provision};
use ratchet_core::cluster::InProcessCoordinator;

fn main() -> ExitCode {
    let factory = CoordinatorFactory::new(|| async { Ok(InProcessCoordinator::new()) });
    CoordinatorSuite::new("in-process", &[Power::Delivery]).run(async { Provision::Ready(factory) })
}
