//! Ratchet on PostgreSQL, version 13 or later.
//!
//! [`PostgresStore`] keeps jobs, nodes and locks in one schema of a database, `ratchet` by default;
//! stores on different schemas never see each other. It needs nothing but tables: no
//! extension, no function, no trigger, no setting of the server.
//!
//! # Connections
//! Jobs use a pool, which may be the application's own ([`PostgresStore::from_pool`]). Heartbeats
//! and locks have one connection of their own, so that a pool exhausted by jobs cannot make a node
//! look dead. Wakeups have another, on which the store listens ([`PostgresCoordinator`]).
//!
//! Locks may be bound to the session of that connection, so that they are free as soon as it is
//! gone ([`Builder::session_locks`]); read there what that costs.
//!
//! # PgBouncer
//! Transaction mode works: no statement leaves anything in its session. The whole suite was run
//! through PgBouncer 1.25 so. It must keep prepared statements (1.21 or later with
//! `max_prepared_statements` above 0). It carries no notifications: give the database itself as
//! [`Builder::direct`], or switch wakeups off ([`Builder::wakeups`]), and then nodes find jobs of
//! other processes by polling only. With neither the same is true, but every process also tries to
//! listen, and warns that it hears nothing. PgBouncer passes no `statement_timeout` on: set it for
//! the role (`ALTER ROLE … SET statement_timeout`). An application's own pool needs
//! `extra_float_digits(None)` or PgBouncer's `ignore_startup_parameters`.
//!
//! # Failover
//! After a failover to an asynchronous replica, or a restore, no process needs a restart. What a
//! store keeps in memory, the numbers of queues and kinds, is compared with the database by each
//! statement that uses it.

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

/// The driver, in the version that this store uses.
#[doc(no_inline)]
pub use sqlx;
