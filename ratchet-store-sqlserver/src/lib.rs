//! Ratchet on SQL Server, version 2016 or later, and on servers compatible with it.
//!
//! [`SqlServerStore`] keeps jobs, nodes and locks in one schema of a database, `ratchet` by
//! default. Stores on different schemas never see each other. The store needs only tables: no
//! procedure, function, trigger, Service Broker or agent job.
//!
//! # The database
//! The database needs compatibility level 130 or above, and `READ_COMMITTED_SNAPSHOT` on unless
//! [`Builder::locking_reads`] is set. Otherwise connecting fails, and the error contains the
//! statement that a DBA must run. Each connection sets all other session settings that the store
//! depends on, whatever the defaults of the login, the database and the server are.
//!
//! # Connections
//! Jobs use a pool. Heartbeats and locks use a separate connection, so that a pool exhausted by
//! jobs cannot make a node look dead. A connection is closed and never used again if a call on it
//! was dropped, timed out or failed midway, or if it is dropped inside a transaction.
//!
//! # Wakeups
//! The store sends no wakeups: nodes find the jobs of other processes by polling, up to one poll
//! interval later. SQL Server's own notifications, Service Broker, do not fit: each message reaches
//! only one receiver, while a wakeup is for every node. Service Broker is also off in many
//! databases and in Azure SQL. It needs its own objects and rights, and a receiver occupies a
//! connection that the driver cannot interrupt. Nodes can use a coordinator with another transport.
//!
//! # Babelfish
//! The store also runs on Babelfish for PostgreSQL, which the tests use where there is no SQL
//! Server. Babelfish accepts table hints but ignores them, so concurrent claims wait for each
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

/// The SQL Server driver, in the version that this store uses.
#[doc(no_inline)]
pub use tiberius;
