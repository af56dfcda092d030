//! Ratchet on object storage: Amazon S3, Azure Blob Storage, Google Cloud Storage, or a directory.
//!
//! [`ObjectStore`] implements the store traits of `ratchet-core` with nothing but a bucket. The
//! bucket contains a log of commands. Every process that uses the store applies the commands of
//! the log, in its order, to its own copy of the data, which is that of
//! [`MemoryStore`](ratchet_core::MemoryStore). So all processes have the same data, and every
//! process has the whole contract.
//!
//! # The log
//! The log consists of segments: objects with consecutive numbers. Each is put with the condition
//! that no object has its name (`PutMode::Create`), so exactly one process writes each number. A
//! process that loses this race applies the segment of the winner to its data, and tries again
//! with the next number. It answers a call only when a segment with the command of this call is
//! stored.
//!
//! A segment contains a group of commands: while a put is under way, the commands of the next group
//! gather. A call that only reads, or that would change nothing, puts nothing: one request shows
//! that no newer segment exists.
//!
//! # Snapshots
//! After a number of segments, the process that put the last one stores a snapshot of the data, and
//! later deletes old snapshots and segments: see [`Builder::retention`]. A process opens the store
//! by the newest snapshot and the segments after it.
//!
//! # Time
//! The time of a command is decided in the log: it is never earlier than that of the command before
//! it, unless that was more than five minutes ahead of the server. Each process estimates the time
//! of the server: by the times that the server gives to objects, its own monotonic clock, and the
//! clock of its machine as far as both agree. The estimate is at most one second plus the duration
//! of one request ahead of the server's clock, plus what the monotonic clock gains in 15 minutes.
//!
//! # Limits
//! All data is in the memory of each process: live, finished and archived jobs. Calls take at least
//! as long as one put. Each call that changes something is part of a put, such as each heartbeat.

mod bucket;
mod budget;
mod clock;
mod config;
mod coordinator;
mod document;
mod error;
mod group;
mod log;
mod open;
mod snapshots;
mod store;
#[cfg(test)]
mod tests;
mod turns;
mod view;

pub use config::{Builder, Migration, SCHEMES};
pub use store::ObjectStore;

/// The client for object storage, in the version that this store uses.
#[doc(no_inline)]
pub use object_store;
