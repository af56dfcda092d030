//! A store and a coordinator, as the author of an extension would write them. The tests run the
//! conformance suite on both.

mod coordinator;
mod jobs;
mod locks;
mod nodes;
mod queues;
mod store;
mod tables;

pub use coordinator::FilteredCoordinator;
pub use store::MapStore;
