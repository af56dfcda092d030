//! A store, as the author of an extension would write it. The conformance suite tests it.

mod engine;

pub use engine::{RedbEngine, RedbTransaction, open, open_with};
