//! A store and a coordinator, as the author of an extension would write them. The tests run the
//! conformance suite on both.

mod coordinator;
mod engine;

pub use coordinator::FilteredCoordinator;
pub use engine::{RedbEngine, RedbTransaction, open};
