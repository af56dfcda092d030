//! The types of the API's JSON responses, created from the records of the core.
//!
//! The command line prints the same types. Times are RFC 3339 in UTC with milliseconds, in fields
//! that end in `_at`. Durations are whole milliseconds, in fields that end in `_ms`. Ids are
//! strings. A field without a value is `null`, so all responses of a type have the same fields. If
//! a field may be missing instead, its documentation says so.
//!
//! ```
//! # use ratchet_core::BoxError;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! # use std::sync::Arc;
//! use ratchet_core::model::{JobFilter, PageRequest};
//! use ratchet_core::{MemoryStore, NewJob, Ratchet};
//! use ratchet_http::view::Jobs;
//!
//! let client = Ratchet::client(Arc::new(MemoryStore::new()));
//! client.enqueue(NewJob::new("greet", "Ada")).await?;
//! let page = client.list(&JobFilter::all(), &PageRequest::first(50)).await?;
//! let json = serde_json::to_value(Jobs::from(&page))?;
//! assert_eq!(json["jobs"][0]["kind"], "greet");
//! # Ok(()) }
//! ```

mod attempt;
mod batch;
mod cluster;
mod counts;
mod events;
mod fair_key;
mod fair_limit;
mod graph;
mod job;
mod lock;
mod overview;
mod pause;
mod probes;
mod queue;
mod recurring;
mod state;
mod time;
mod work;

pub use attempt::{Attempt, Attempts, Outcome};
pub use batch::{Batch, Batches};
pub use cluster::{
    Breaker, BreakerState, Cluster, Leader, Node, NodeStatus, OwnNode, Role, Status, Totals,
    is_live,
};
pub use counts::{Matching, MatchingByState};
pub use events::{ChangedJobs, ChangedNodes, Failures, Lagged, Tick};
pub use fair_key::{FairKey, FairKeys};
pub use fair_limit::{FairLimit, FairLimits};
pub use graph::{Edge, Graph, GraphNode, LinkState, Vertex};
pub use job::{Hidden, Job, JobDetail, Jobs, Origin, Progress, Retry, Signal, Trace};
pub use lock::{Lock, Locks, Permit, Permits};
pub use overview::{DeadLetters, Overview, Point, Rates, Series, StrandedRoute};
pub use pause::{Pause, PauseScope, Pauses};
pub use probes::{Health, Leading, NotReady, Readiness, Ready};
pub use queue::{Queue, Queues};
pub use recurring::{RecurringJob, Recurrings};
pub use state::{Counts, JobAction, Level, State};
pub use time::{At, millis};
pub use work::{Acted, ActedOutcome, BulkDone, Changed, Triggered};
