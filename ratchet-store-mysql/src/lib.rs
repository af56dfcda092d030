//! Ratchet on MySQL, version 8.0.22 or later, and MariaDB, version 10.6 or later.
//!
//! [`MysqlStore`] keeps jobs, nodes and locks in tables of one database. Their names begin with a
//! prefix, `ratchet_` by default. Stores with different prefixes or databases never see each other.
//! The store needs only tables: no procedure, function, trigger or event.
//!
//! # Connections
//! Jobs use a pool, which may be the application's own ([`MysqlStore::from_pool`]). Heartbeats and
//! locks use a separate connection, so that a pool exhausted by jobs cannot make a node look dead.
//! Each call sends one text, which may have several statements. So proxies in front of the server
//! must support texts with several statements.
//!
//! # Transactions
//! All transactions of the store have the isolation level `READ COMMITTED`, whatever the default of
//! the server is. Claims lock rows by their primary keys only, so they take no gap locks.
//!
//! # Time
//! The clock of the server decides what is due, in UTC and in milliseconds, whatever the time zone
//! of the server or of the session is.
//!
//! # Failover
//! After a failover to a replica, or a restore, no process needs a restart. A store caches only the
//! ids of queues and kinds, and each statement that uses them checks them against the database. If
//! the server becomes read-only, the store opens new connections, so that they can lead to the new
//! primary.

mod app;
mod config;
mod connect;
mod connection;
mod diagnostics;
mod dialect;
mod error;
mod migrate;
mod query;
mod statements;
mod store;
mod within;
mod words;

pub use config::{Builder, SCHEMES};
pub use ratchet_sql::Migration;
pub use store::MysqlStore;

/// The driver, in the version that this store uses.
#[doc(no_inline)]
pub use sqlx;
