//! A store, as the author of an extension would write it. The tests run the conformance suite on it.

mod engine;

pub use engine::{RedbEngine, RedbTransaction, open};
