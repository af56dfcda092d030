//! Ratchet on SQL Server, version 2016 or later, and on what speaks its protocol and language.
//!
//! [`SqlServerStore`] keeps jobs, nodes and locks in one schema of a database, `ratchet` by
//! default; stores on different schemas never see each other. It needs nothing but tables: no
//! procedure, no function, no trigger, no Service Broker, no agent job.
//!
//! # The database
//! Its compatibility level must be 130 or above, and `READ_COMMITTED_SNAPSHOT` on, or connecting is
//! refused with the statement that a DBA must run ([`Builder::locking_reads`] lets it be off).
//! Whatever else a login, a database or a server sets for sessions is set anew for each connection.
//!
//! # Connections
//! Jobs use a pool. Heartbeats and locks have one connection of their own, so that a pool exhausted
//! by jobs cannot make a node look dead. A connection whose call was dropped, timed out or failed
//! midway is closed and never used again; so is one that is dropped inside a transaction.
//!
//! # Wakeups
//! There are none: nodes find the jobs of other processes by polling, up to one poll interval
//! later. What SQL Server has for telling others, Service Broker, gives each message to one
//! receiver, while a wakeup is for every node; it is off in many databases and in Azure SQL, needs
//! objects and rights of its own, and a receiver holds a connection that the driver cannot
//! interrupt. A coordinator over another transport can be given to nodes.
//!
//! # Babelfish
//! The store runs on Babelfish for PostgreSQL too, which the tests use where there is no SQL
//! Server. There table hints are accepted and do nothing: claims at the same time wait for each
//! other.

mod app;
mod config;
mod connect;
mod connection;
mod diagnostics;
mod dialect;
mod error;
mod leftovers;
mod migrate;
mod query;
mod row;
mod session;
mod statements;
mod store;
mod target;
mod transaction;
mod words;

pub use config::{Builder, Encryption, SCHEMES};
pub use connect::DriverConnection;
pub use ratchet_sql::Migration;
pub use store::SqlServerStore;
pub use transaction::Transaction;

/// The driver, in the version that this store uses.
#[doc(no_inline)]
pub use tiberius;
