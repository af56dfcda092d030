//! A [Ratchet] store on any ordered, transactional key-value engine.
//!
//! Implement [`Engine`] and [`Transaction`] for the engine: begin, commit, four operations on keys,
//! and a clock. [`KvStore`] then provides a complete store on this engine.
//!
//! [Ratchet]: https://docs.rs/ratchet-jobs

mod archive;
mod call;
mod engine;
mod enqueue;
mod fair;
mod fair_limits;
mod jobs;
mod keys;
mod locks;
mod nodes;
mod queues;
mod recurring;
mod store;
pub mod testing;
mod workflows;

pub use engine::{Access, Engine, Entry, Order, Transaction};
pub use store::KvStore;
