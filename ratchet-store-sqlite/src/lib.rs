//! Ratchet on SQLite.
//!
//! [`SqliteStore`] implements the store traits of `ratchet-core` on one database file, which
//! several processes of one host may share. Writes of all callers go through one connection, where
//! they are committed in groups; reads have connections of their own.
//!
//! `BEGIN IMMEDIATE` begins every transaction that writes, so none of them can lose its snapshot.
//! Times are milliseconds of SQLite's clock, which is the host's.

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

/// The driver, in the version that this store uses.
#[doc(no_inline)]
pub use rusqlite;
