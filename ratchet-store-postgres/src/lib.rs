//! Ratchet on PostgreSQL, version 13 or later.
//!
//! [`PostgresStore`] keeps jobs, nodes and locks in one schema of a database, `ratchet` by default.
//! Stores on different schemas never see each other. The store needs only tables: no extension,
//! function, trigger or server setting.
//!
//! # Connections
//! Jobs use a pool, which may be the application's own ([`PostgresStore::from_pool`]). Heartbeats
//! and locks use a separate connection, so that a pool exhausted by jobs cannot make a node look
//! dead. Wakeups use a third kind of connection, on which the store listens
//! ([`PostgresCoordinator`]).
//!
//! Locks can be bound to the session of their connection, so that they are free as soon as the
//! session ends; [`Builder::session_locks`] explains the cost.
//!
//! # PgBouncer
//! Transaction mode works, because no statement leaves state in its session. The whole suite was
//! run through PgBouncer 1.25 in this mode.
//!
//! - PgBouncer must keep prepared statements (1.21 or later with `max_prepared_statements` above
//!   0).
//! - PgBouncer delivers no notifications. Set [`Builder::direct`] to the URL of the database
//!   itself, or turn wakeups off ([`Builder::wakeups`]). Without a direct URL, nodes find jobs of
//!   other processes only by polling. If wakeups are not turned off either, every process logs a
//!   warning that it receives no notifications.
//! - PgBouncer does not pass `statement_timeout` on. Set it for the role (`ALTER ROLE … SET
//!   statement_timeout`).
//! - An application's own pool needs `extra_float_digits(None)`, because PgBouncer rejects this
//!   parameter. Alternatively, add the parameter to PgBouncer's `ignore_startup_parameters`.
//!
//! # Failover
//! After a failover to an asynchronous replica, or a restore, no process needs a restart. A store
//! caches only the ids of queues and kinds, and each statement that uses them checks them against
//! the database.

mod app;
mod config;
mod connect;
mod connection;
mod coordinator;
mod diagnostics;
mod dialect;
mod error;
mod migrate;
mod pooler;
mod session;
mod statements;
mod store;
mod within;

pub use config::{Builder, SCHEMES};
pub use coordinator::PostgresCoordinator;
pub use ratchet_sql::Migration;
pub use store::PostgresStore;

/// The PostgreSQL driver, in the version that this store uses.
#[doc(no_inline)]
pub use sqlx;
