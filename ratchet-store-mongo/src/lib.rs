//! Ratchet on MongoDB.
//!
//! [`MongoStore`] keeps jobs, nodes and locks in a few collections of one database, whose names begin
//! with `ratchet_` unless told otherwise; stores with different databases or prefixes never see each
//! other. It was tested on MongoDB 6.0; it uses nothing that 4.4 does not have.
//!
//! # Replica sets and standalone servers
//! Whatever changes several documents at once needs transactions, and those need a replica set; one
//! node is enough. On a standalone server the store works with less, and says so where it is asked
//! for more: jobs with a lane or an idempotency key, writes with a
//! [`Guard`](ratchet_core::model::Guard) and [`MongoStore::enqueue_in`] are refused
//! (`Misconfigured`), several jobs that are enqueued together are stored one after the other, and
//! there are no recurring definitions, no permits, no archive and no wakeups. [`MongoStore::has_transactions`] tells which it is, and so does
//! [`StoreInfo`](ratchet_core::store::StoreInfo).
//!
//! # What is durable
//! Every write waits for a majority of the set and its journals, every read that decides something
//! reads what a majority has, from the primary. URLs that ask for less are refused.
//!
//! # Connections
//! Jobs use the driver's pool. Heartbeats and locks have a client of their own beside it, so that a
//! pool exhausted by jobs cannot make a node look dead; not so with
//! [`MongoStore::from_database`], where everything goes through the application's client.

mod act;
mod archive;
mod candidates;
mod claim;
mod clock;
mod config;
mod connection;
mod coordinator;
mod enqueue;
mod error;
mod indexes;
mod jobs;
mod lanes;
mod locks;
mod nodes;
mod permits;
mod pipelines;
mod purge;
mod queues;
mod rates;
mod reach;
mod read;
mod reclaim;
mod recurring;
mod report;
mod routes;
mod row;
mod settle;
mod store;
mod versions;

pub use config::{Builder, SCHEMES};
pub use coordinator::MongoCoordinator;
pub use store::MongoStore;
