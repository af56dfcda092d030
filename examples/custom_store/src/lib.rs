//! A store and a coordinator, as an extension author would write them: see the tests for how the
//! conformance suite runs on both.

mod coordinator;
mod jobs;
mod locks;
mod nodes;
mod queues;
mod store;
mod tables;

pub use coordinator::FilteredCoordinator;
pub use store::MapStore;
