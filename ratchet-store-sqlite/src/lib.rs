//! Ratchet on SQLite.
//!
//! [`SqliteStore`] implements the store traits of `ratchet-core` on one database file, which
//! several processes on one host may share. The writes of all callers use one connection, which
//! commits them in groups. Reads use other connections.
//!
//! Every transaction that writes begins with `BEGIN IMMEDIATE`, so it cannot fail later because
//! another connection has written. Times are in milliseconds. They come from SQLite's clock, which
//! is the clock of the host.

mod act;
mod app;
mod archive;
mod claim;
mod config;
mod connection;
mod coordinator;
mod diagnostics;
mod enqueue;
mod error;
mod expiry;
mod fair;
mod jobs;
mod lanes;
mod links;
mod locks;
mod migrate;
mod nodes;
mod permits;
mod queue;
mod queues;
mod rates;
mod read;
mod readers;
mod reclaim;
mod recurring;
mod request;
mod routes;
mod row;
mod settle;
mod signals;
mod statements;
mod store;
mod versions;
mod workflows;
mod writer;

pub use config::{Builder, SCHEME, Synchronous};
pub use ratchet_sql::Migration;
pub use store::SqliteStore;

/// The SQLite driver, in the version that this store uses.
#[doc(no_inline)]
pub use rusqlite;
