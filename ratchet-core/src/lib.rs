//! The core of Ratchet: the model, the rules, the store traits and the engine.
//!
//! - The model ([`model`], [`JobId`], [`Name`], [`Json`]) and the pure rules ([`state`],
//!   [`priority`], [`retry`], [`route`], [`schedule`], [`permit`], [`rate`], [`stranded`],
//!   [`throughput`], [`claiming`]), which get the time as an argument.
//! - The store traits ([`store`]), whose documented clauses the conformance suite tests, and
//!   [`MemoryStore`], which is their executable specification.
//! - The engine ([`Node`], [`Client`]), which runs typed [`Job`]s on any [`Store`].
//!
//! Applications use the facade crate `ratchet`, which re-exports what they need. Store authors use
//! this crate, or `ratchet::store_api`, and `ratchet-conformance`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod breaker;
pub mod claiming;
pub mod client;
pub mod cluster;
pub mod dictionary;
pub mod due;
pub mod engine;
pub mod error;
pub mod fair;
pub mod handler;
pub mod host;
pub mod id;
pub mod json;
pub mod limiter;
pub mod limits;
pub mod links;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod name;
#[cfg(feature = "otel")]
mod otel;
mod outage;
pub mod permit;
pub mod priority;
pub mod rate;
pub mod retry;
pub mod route;
pub mod schedule;
mod shutdown;
pub mod state;
pub mod store;
pub mod stranded;
#[cfg(feature = "testing")]
pub mod testing;
pub mod throughput;
pub mod time;
pub mod trace;

pub use breaker::{BreakerInfo, BreakerState, CircuitBreaker};
pub use client::{
    ArchiveClient, Bulk, BulkCounts, Client, RecurringClient, Step, StreamCounts, StreamError,
    VersionWatch, Wakes, Workflow,
};
pub use cluster::Leader;
pub use engine::{
    BuildError, DaemonContext, DaemonResult, JobTypes, Node, NodeBuilder, NodeHook, NodeStats,
    Pool, PoolStats, Ratchet, Retain, Retention, RunError, SYSTEM_QUEUE,
};
pub use error::{InvalidInput, Result, SchemaProblem, SettingProblem, StoreError, StoreErrorKind};
pub use handler::{
    BoxError, CancelReason, Job, JobContext, JobError, JobResult, ParentBatch, ParentJob, Requires,
    Verdict,
};
#[cfg(feature = "tower")]
pub use handler::{JobLayer, JobRequest, JobResponse, JobService, ServiceError};
pub use id::{BatchId, ClaimToken, Fence, Incarnation, JobId, NodeId, next_in_time};
pub use json::Json;
pub use limiter::RateLimit;
pub use memory::MemoryStore;
pub use model::{
    BatchCondition, Comparison, Condition, DueRoute, Enqueued, JobRecord, NewJob, OnConflict,
    PutOutcome, Recurring, RecurringRecord,
};
pub use name::Name;
pub use priority::{Aging, Priority};
pub use rate::Rate;
pub use retry::{Backoff, RetryPolicy};
pub use route::{Route, Selection};
pub use schedule::{Misfire, Overlap, Schedule};
pub use shutdown::shutdown_signal;
pub use state::{JobAction, JobState};
pub use store::{SharedStore, Store};
pub use trace::TraceContext;
