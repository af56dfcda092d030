//! A store and a coordinator of one's own, as an extension author would write them: see the tests
//! for how the conformance suite runs on both.

mod coordinator;
mod meter;
mod store;

pub use coordinator::FilteredCoordinator;
pub use meter::{Meter, MethodCounts};
pub use store::MeteredStore;
