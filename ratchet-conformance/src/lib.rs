//! The conformance suite: what every Ratchet store must pass.

mod build;
mod case;
mod cases;
mod cx;
mod fixture;
pub mod memory;
mod node;
pub mod report;
mod runner;
mod suite;

pub use case::Case;
pub use cx::Cx;
pub use fixture::{BoxError, Factory, Fixture, Power, Provision, TestClock, Vandal};
pub use memory::MemoryFixture;
pub use runner::Failure;
pub use suite::Suite;
