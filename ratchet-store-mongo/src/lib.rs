//! Ratchet on MongoDB.
//!
//! [`MongoStore`] keeps jobs, nodes and locks in a few collections of one database. Their names
//! begin with a prefix. The default prefix is `ratchet_`. Stores with different databases or
//! prefixes are independent. Tested on MongoDB 6.0; requires 4.4 or later.
//!
//! # Replica sets and standalone servers
//! Changing several documents atomically needs transactions, and transactions need a replica set. A
//! replica set with one member is enough. A sharded cluster is refused, because each of its routers
//! has its own clock. On a standalone server the store offers less:
//! - Jobs with a lane, an idempotency key or a fair key, jobs that wait for other jobs or for a
//!   signal, and jobs in a batch are refused with `Invalid`.
//! - Writes with a [`Guard`](ratchet_core::model::Guard) and jobs in a transaction of the
//!   application fail with `Misconfigured`.
//! - Several jobs in one enqueue are stored one after the other.
//! - Recurring definitions, permits, limits of fair keys, the archive and wakeups are not
//!   available.
//!
//! [`MongoStore::has_transactions`] and [`StoreInfo`](ratchet_core::store::StoreInfo) report
//! whether the server has transactions.
//!
//! # Jobs that wait for other jobs
//! Some calls end a job that has children or is in a batch, or link new jobs to stored jobs. Such a
//! call makes all its changes in one transaction, including those to the children and the batch.
//! Transactions of MongoDB do not wait for each other. If two transactions change the same job or
//! batch, the server aborts one of them. The store retries the aborted transaction until the
//! deadline of the call. Calls that end jobs of the same batch conflict in the batch's document, so
//! a few large settlements work better than many small ones. Jobs without children and outside of
//! batches cost nothing extra.
//!
//! An open transaction of the application
//! ([`Client::enqueue_in`](ratchet_core::Client::enqueue_in)) blocks only:
//! - the end of each running job for which the transaction's new jobs wait;
//! - each purge or archive pass that would remove an ended job for which the transaction's new jobs
//!   wait; such a pass then removes no other jobs either;
//! - the end of every job in a batch that the transaction's new jobs join or wait for.
//!
//! # Processes killed during a transaction
//! The server binds a transaction to a session, not to a connection. If a process is killed during
//! a transaction, the documents that it wrote stay locked until the server aborts the transaction.
//! The server does so when the transaction is 60 s old (`transactionLifetimeLimitSeconds`), or up
//! to 30 s later. The locked documents can be the document of a resource, a limit or a batch, the
//! routes of jobs with a fair key, or jobs that were being settled or changed by an operator. Calls
//! that need these documents wait until the server aborts the transaction, or until their own
//! deadline. Claims do not wait for a route: they take the jobs that have turns. A settlement of
//! several claims settles the claims whose documents are not locked, and fails with `Contention`
//! after a tenth of the deadline. Locks and lanes stay locked only if the process dies during a
//! commit, because guarded writes and enqueues change them last. Ratchet's transactions are short.
//! If the server runs no other transactions, set a lower limit, such as 10 s.
//!
//! # Durability
//! Every write waits until a majority of the replica set has stored it in the journal. Every read
//! on which a decision depends goes to the primary and returns majority-committed data. The store
//! rejects URLs that set weaker concerns.
//!
//! # Privileges
//! The role `readWrite` on the database is enough. The user needs at least the actions `find`,
//! `insert`, `update`, `remove`, `listCollections` and `listIndexes`; `createCollection` and
//! `createIndex` unless [`Builder::create`] is off; and `changeStream` for wakeups. If the user is
//! dropped and created again, the store reconnects, except with [`MongoStore::from_database`].
//!
//! # Connections
//! Jobs use the driver's pool. Heartbeats and locks use a separate client, so that a pool exhausted
//! by jobs cannot make a node look dead. With [`MongoStore::from_database`] everything uses the
//! application's client.

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
mod division;
mod ends;
mod enqueue;
mod error;
mod expiry;
mod fair;
mod fair_limits;
mod freed;
mod guard;
mod holders;
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

/// The MongoDB driver, in the version that this store uses.
#[doc(no_inline)]
pub use mongodb;
