//! The core of Ratchet: what decides.
//!
//! - The model ([`model`], [`JobId`], [`Name`], [`Json`]) and the pure rules ([`state`],
//!   [`priority`], [`retry`], [`route`]), with the time passed in.
//! - The store traits ([`store`]), whose documented clauses the conformance suite proves, and
//!   [`MemoryStore`], their executable specification.
//! - The engine ([`Node`], [`Client`]) that runs typed [`Job`]s on any [`Store`].
//!
//! Applications use the facade crate `ratchet`, which re-exports all of this; store authors use
//! this crate and `ratchet-conformance`.

pub mod client;
pub mod cluster;
pub mod engine;
pub mod error;
pub mod handler;
pub mod id;
pub mod json;
pub mod limits;
pub mod links;
pub mod memory;
pub mod model;
pub mod name;
pub mod priority;
pub mod retry;
pub mod route;
pub mod state;
pub mod store;
pub mod time;
pub mod trace;

pub use client::{Client, Step, VersionWatch, Wakes, Workflow};
pub use engine::{
    BuildError, DaemonContext, DaemonResult, Node, NodeBuilder, NodeStats, Pool, PoolStats,
    Ratchet, RunError, SYSTEM_QUEUE,
};
pub use error::{InvalidInput, Result, StoreError, StoreErrorKind};
pub use handler::{CancelReason, Job, JobContext, JobError, JobResult, ParentJob, Requires};
pub use id::{BatchId, ClaimToken, Fence, JobId, NodeId};
pub use json::Json;
pub use memory::MemoryStore;
pub use model::{BatchCondition, Condition, Enqueued, JobRecord, NewJob};
pub use name::Name;
pub use priority::{Aging, Priority};
pub use retry::{Backoff, RetryPolicy};
pub use route::{Route, Selection};
pub use state::{JobAction, JobState};
pub use store::{SharedStore, Store};
pub use trace::TraceContext;
