//! Ratchet on MongoDB.
//!
//! [`MongoStore`] keeps jobs, nodes and locks in a few collections of one database, whose names begin
//! with `ratchet_` unless told otherwise; stores with different databases or prefixes never see each
//! other. It was tested on MongoDB 6.0; it uses nothing that 4.4 does not have.
//!
//! # Replica sets and standalone servers
//! Whatever changes several documents at once needs transactions, and those need a replica set; one
//! node is enough. A sharded cluster is refused: its routers tell the time by a clock each. On a
//! standalone server the store works with less, and says so where it is asked
//! for more: jobs with a lane or an idempotency key, writes with a
//! [`Guard`](ratchet_core::model::Guard) and jobs in a transaction of the application are refused
//! (`Misconfigured`), as are jobs that wait for others or for a signal, or are in a batch
//! (`Invalid`), several jobs that are enqueued together are stored one after the other, and
//! there are no recurring definitions, no permits, no archive and no wakeups.
//! [`MongoStore::has_transactions`] tells which it is, and so does
//! [`StoreInfo`](ratchet_core::store::StoreInfo).
//!
//! # Jobs that wait for others
//! Whatever ends a job that others wait for, or that is in a batch, and whatever links new jobs to
//! stored ones, is a transaction, in which all that follows from it is written too. Transactions here
//! do not wait for each other: of two that meet at a job or a batch one is done again by the store,
//! until its deadline. Many ends at once in one batch meet in its document, and so do better in large
//! settlements than in many small ones. Jobs that nobody waits for, and that are in no batch, cost what
//! they always did. An application's transaction that links to running jobs
//! ([`Client::enqueue_in`](ratchet_core::Client::enqueue_in)) holds up their ends while it is open, and nothing else; one that links
//! to a job that has ended, the purge that would delete that job, or archive it, and with it the
//! others of the same pass; one that joins a batch or waits for it, the ends of the jobs in it.
//!
//! # Processes that die in the middle
//! The server binds a transaction to a session and not to a connection. What a process had written
//! in a transaction when it was killed stays held until the server ends that transaction: when it is
//! 60 s old (`transactionLifetimeLimitSeconds`), or up to half as much later. That may be the permits
//! of a resource, a batch, or the jobs that an action or an end was about; calls that need them wait
//! until then, or until their deadline. A settlement of several claims fails with `Contention` after a
//! tenth of the deadline, when all that it could settle is settled. Locks and lanes are held so only by a process
//! that dies in the moment of a commit, since guarded writes and enqueues change them last. Transactions here are short: where the server has
//! no others, a lower limit is better, such as 10 s.
//!
//! # What is durable
//! Every write waits for a majority of the set and its journals, every read that decides something
//! reads what a majority has, from the primary. URLs that ask for less are refused.
//!
//! # Rights
//! The role `readWrite` on the database is enough. The least rights are the actions `find`, `insert`,
//! `update`, `remove`, `listCollections` and `listIndexes`; `createCollection` and `createIndex` unless
//! [`Builder::create`] is off; and `changeStream` for wakeups. If the user is dropped and created again,
//! the store connects anew; not so with [`MongoStore::from_database`].
//!
//! # Connections
//! Jobs use the driver's pool. Heartbeats and locks have a client of their own beside it, so that a
//! pool exhausted by jobs cannot make a node look dead; not so with
//! [`MongoStore::from_database`], where everything goes through the application's client.

mod act;
mod app;
mod archive;
mod awaited;
mod bulk;
mod candidates;
mod checks;
mod claim;
mod clients;
mod clock;
mod config;
mod connection;
mod coordinator;
mod diagnostics;
mod ends;
mod enqueue;
mod error;
mod guard;
mod indexes;
mod jobs;
mod lanes;
mod links;
mod locks;
mod members;
mod migrate;
mod nodes;
mod open;
mod outages;
mod passes;
mod permits;
mod pipelines;
mod purge;
mod queues;
mod rates;
mod read;
mod reclaim;
mod recurring;
mod report;
mod routes;
mod row;
mod select;
mod settle;
mod signals;
mod store;
mod versions;
mod workflows;

pub use config::{Builder, SCHEMES};
pub use coordinator::MongoCoordinator;
pub use migrate::Migration;
pub use store::MongoStore;

/// The driver, in the version that this store uses.
pub use mongodb;
