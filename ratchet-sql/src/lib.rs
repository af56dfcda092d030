//! The Ratchet store for SQL servers, generic over a [`Dialect`].
//!
//! [`SqlStore`] is the store. A dialect contains what is specific to a server and its driver: how
//! to bind and read values, lease a connection and classify errors, and the text of each statement.
//! A server's crate provides a dialect, connections, settings, migrations and diagnostics, and
//! wraps the store in its own type with [`store!`].
//!
//! Only the stores of this workspace use this crate. Its API is not stable.

mod act;
mod archive;
mod arguments;
mod claim;
mod connections;
mod connector;
mod diagnostics;
mod dialect;
mod enqueue;
mod expiry;
mod failure;
mod fair;
mod fair_limits;
mod files;
mod generation;
mod held;
mod holders;
mod jobs;
mod lanes;
mod leased;
mod links;
mod links_read;
mod liveness;
mod locks;
mod migrations;
mod nodes;
mod order;
mod permits;
mod pool;
mod purge;
mod queues;
mod rates;
mod read;
mod reclaim;
mod recurring;
mod routes;
mod row;
mod settings;
mod settle;
mod signals;
mod statement;
mod store;
mod value;
mod versions;
mod within;
mod workflows;

pub use arguments::{Argument, Column, Element, List};
pub use connections::Connections;
pub use connector::{Connector, IDLE_IN_TRANSACTION, Lender, Purpose, connect_within};
pub use diagnostics::add_finding;
pub use dialect::{Dialect, Lease, Query, Row, Run};
pub use failure::{Failure, Loss, Result};
pub use files::{Reader, render, split, statement, unlisted};
pub use generation::{Generation, LIFETIME, Made};
pub use held::PATIENCE;
pub use leased::Leased;
pub use liveness::Liveness;
pub use migrations::{
    Migration, Mismatch, Schema, Step, behind, check_versions, incomplete, indexes, objects,
};
pub use pool::Pool;
pub use settings::{Settings, in_time, misconfigured};
pub use statement::{
    LimitStatements, OwnStatements, QueueStatements, Statement, Statements, TurnStatements,
};
pub use store::{SqlStore, too_late};
pub use value::Value;
pub use within::Savepoint;

/// Tables in which each row belongs to one job. The tables of idempotency keys and archived jobs
/// are not listed, because their rows remain when a job is deleted.
#[doc(hidden)]
pub const JOB_TABLES: [&str; 11] = [
    "jobs",
    "job_data",
    "job_notes",
    "job_tags",
    "attempts",
    "unique_keys",
    "lane_jobs",
    "links",
    "batch_jobs",
    "signals",
    "expiries",
];
