//! Durable background jobs, recurring schedules and cluster leadership for Rust services, on the
//! database they already run.
//!
//! A job is a row of the database and a node is a task in your process: there is no broker and no
//! extra service. [`connect`] opens the database of a URL, [`Ratchet`] builds a node, and a type
//! that implements [`Job`] has a name, a payload and a body.
//!
//! ```no_run
//! use ratchet::{JobContext, JobResult, Ratchet};
//!
//! #[ratchet::job(kind = "greet")]
//! async fn greet(name: String, ctx: &JobContext) -> JobResult<usize> {
//!     println!("Hello {name}, this is attempt {}", ctx.attempt());
//!     Ok(name.len()) // kept with the job; an error is a failed attempt, logged and retried
//! }
//!
//! # #[cfg(not(feature = "sqlite"))] fn main() {}
//! # #[cfg(feature = "sqlite")]
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = ratchet::connect("sqlite://jobs.db").await?; // the scheme chooses the backend
//!     let node = Ratchet::builder(store).register::<Greet>().build()?;
//!     node.enqueue(ratchet::Job::into_job(Greet { name: "Ada".into() })).await?;
//!     node.run().await?; // until SIGTERM or Ctrl-C; then running jobs finish
//!     Ok(())
//! }
//! ```
//!
//! A process that only enqueues needs no node: [`Client::new`] takes the store.
//!
//! # Where to start
//!
//! | task | start with |
//! |---|---|
//! | define a job, report its progress, cancel it | [`Job`], [`JobContext`], [`JobError`] |
//! | enqueue: delay, priority, unique key, tags | [`NewJob`], [`Client::enqueue`], [`Enqueued`] |
//! | retry and give up | [`RetryPolicy`], [`Backoff`], [`Verdict`] |
//! | run a node: queues, pools, shutdown | [`NodeBuilder`], [`Node`], [`Pool`], [`Aging`], [`Retention`] |
//! | run jobs on a schedule | [`Recurring`], [`Schedule`], [`RecurringClient`] |
//! | run jobs after others, wait for signals | [`Workflow`], [`Step`], [`Bulk`], [`Client::signal`] |
//! | limit what runs at once, or per second | [`NodeBuilder::permits`], [`RateLimit`] |
//! | do something on one node only | [`NodeBuilder::daemon`], [`NodeBuilder::active_passive`], [`Leader`] |
//! | find, retry, cancel and delete jobs | [`Client`], [`JobFilter`], [`JobAction`], [`JobRecord`] |
//! | be notified of every attempt | [`NodeHook`], [`metrics`] |
//! | test your own jobs | `testing`, [`MemoryStore`], [`ManualClock`] |
//!
//! An error of the database is a [`StoreError`], whose [`kind`](StoreError::kind) shows whether a
//! retry can help. Invalid input is an [`InvalidInput`], which names the field.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `sqlite` (default), `postgres`, `mysql`, `mongo`, `sqlserver` | a backend: a scheme for [`connect`] and a module with its builder |
//! | `object`, with `object-aws`, `object-azure` and `object-gcp` | jobs in a bucket of object storage, or in a directory |
//! | `macros` (default) | the attribute [`job`](macro@job) |
//! | `cron` (default) | cron expressions and time zones |
//! | `sysinfo` (default) | processor and memory use of each node |
//! | `config` | settings from a file and the environment |
//! | `http` | probes, an HTTP API and the dashboard |
//! | `prometheus` | `http`, with `GET /metrics` |
//! | `otel` | OpenTelemetry spans |
//! | `tower` | tower layers around the bodies of jobs |
//! | `testing` | helpers for tests of your own jobs |
//! | `store-api` | what you need to write your own store or coordinator |
//!
//! The guide, in the folder `docs/guide` of the repository, explains each topic with examples that
//! run.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backends;
#[cfg(feature = "config")]
#[macro_use]
pub mod configured;
mod connect;
#[cfg(doctest)]
mod guide;
mod schemes;
#[cfg(feature = "store-api")]
pub mod store_api;

// Connecting to a database.
#[cfg(feature = "config")]
pub use configured::{Migration, connect_configured, migrations, pending_migrations};
pub use connect::{ConnectError, connect};
#[doc(inline)]
pub use ratchet_core::{
    MemoryStore, SharedStore, Store,
    memory::ManualClock,
    store::{Checked, StoreInfo},
};
pub use schemes::register_scheme;

// Job types and their bodies.
#[doc(inline)]
pub use ratchet_core::{
    BoxError, CancelReason, Job, JobContext, JobError, JobResult, JobTypes, Json, ParentBatch,
    ParentJob, Requires, Verdict,
};
#[cfg(feature = "tower")]
#[doc(inline)]
pub use ratchet_core::{JobLayer, JobRequest, JobResponse, JobService, ServiceError};
/// Turns an `async fn` into a job type. Use the macro for jobs that need only a kind and a body.
///
/// The macro generates a struct, which is the payload of the job. The struct has the name of the
/// function in `CamelCase`, and derives `Debug`, `Clone`, `Serialize` and `Deserialize`. The
/// arguments of the function become its fields.
///
/// Some parameters do not become fields. A parameter of the type `&JobContext` or `JobContext` is
/// the context. Any other reference is shared state of the node, and a node without that state
/// fails to build. Read state only through such a parameter, because `ctx.state` panics for any
/// other type. The function itself is unchanged, so tests can call it.
///
/// The struct has the visibility and the documentation of the function, and its fields are public.
/// Attributes of arguments, such as documentation or `#[serde(default)]`, move to the fields. If a
/// function `welcome` has no arguments, its job is created as `Welcome {}`.
///
/// If a job needs more, such as default options, a lane or older names, implement [`Job`] instead.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::{Job, JobContext, JobResult, Ratchet};
///
/// struct Mailer;
///
/// /// Welcomes a new user.
/// #[ratchet::job(kind = "welcome")]
/// async fn welcome(name: String, _mailer: &Mailer, ctx: &JobContext) -> JobResult<String> {
///     Ok(format!("Welcome, {name}! (attempt {})", ctx.attempt()))
/// }
///
/// let store = ratchet::connect("memory:").await?;
/// let lacking = Ratchet::builder(store.clone()).register::<Welcome>().build();
/// assert!(lacking.unwrap_err().to_string().contains("Mailer"));
///
/// let node = Ratchet::builder(store).register::<Welcome>().state(Mailer).build()?;
/// let id = node.enqueue(Welcome { name: "Ada".into() }.into_job()).await?.id();
/// # let client = node.client();
/// # let done = async {
/// #     loop {
/// #         match client.job(id).await.unwrap().unwrap().result {
/// #             Some(result) => break result.decode::<String>().unwrap(),
/// #             None => tokio::time::sleep(std::time::Duration::from_millis(1)).await,
/// #         }
/// #     }
/// # };
/// # let mut said = None;
/// # node.run_until(async { said = Some(done.await) }).await?;
/// # assert_eq!(said.as_deref(), Some("Welcome, Ada! (attempt 1)"));
/// # Ok(()) }
/// ```
#[cfg(feature = "macros")]
pub use ratchet_macros::job;

// Enqueueing: new jobs, retries, workflows, batches, signals.
#[doc(inline)]
pub use ratchet_core::{
    Backoff, BatchCondition, BatchId, Comparison, Condition, Enqueued, JobId, Name, NewJob,
    OnConflict, Priority, RetryPolicy, Step, TraceContext, Workflow,
    model::{After, BatchClosed, BatchRecord, Delivered, Link, LinkState, Parent, RunAt},
    time::Timestamp,
};

// The client: reading jobs, and acting on them.
#[doc(inline)]
pub use ratchet_core::{
    ArchiveClient, Bulk, BulkCounts, Client, JobAction, JobRecord, JobState, StreamCounts,
    StreamError, VersionWatch, Wakes,
    model::{
        Acted, ActionOutcome, Among, ArchiveFilter, ArchivePage, ArchivedJob, Attempt,
        AttemptOutcome, Detail, FairKeyInfo, FairKeyUsage, FairLimit, FairScope, JobFilter,
        JobOrder, JobPage, JobSelector, JobSpec, PageRequest, PauseInfo, PauseRequest, PauseScope,
        PermitInfo, Progress, QueueInfo, SignalRecord, StateCounts,
    },
    state::Response,
    store::Changed,
};

// Nodes, which run jobs.
#[doc(inline)]
pub use ratchet_core::{
    Aging, BuildError, DaemonContext, DaemonResult, Fence, Node, NodeBuilder, NodeId, NodeStats,
    Pool, PoolStats, Ratchet, Retain, Retention, RunError, SYSTEM_QUEUE, SettingProblem,
    cluster::{InProcessCoordinator, LeaderTimings, Leadership, LeadershipWatch, NoopCoordinator},
    model::{Guard, Guarded},
    shutdown_signal,
};

// Hooks, by which a node notifies the application about its jobs.
#[doc(inline)]
pub use ratchet_core::{
    ClaimToken, NodeHook, Route,
    model::{Claim, Outcome, Settlement},
};

// Rate limits and circuit breakers.
#[doc(inline)]
pub use ratchet_core::{
    BreakerInfo, BreakerState, CircuitBreaker, Rate, RateLimit,
    limiter::{HybridLimiter, LocalLimiter, RateKey, RateLimiter, StrictLimiter},
    model::RateAnswer,
};

// Recurring jobs.
#[doc(inline)]
pub use ratchet_core::{
    Misfire, Overlap, PutOutcome, Recurring, RecurringClient, RecurringRecord, Schedule,
    model::{Definition, RecurringPage},
    schedule::ZoneData,
};

// The cluster: nodes, leaders, locks, and problems with the database.
#[doc(inline)]
pub use ratchet_core::{
    DueRoute, Leader,
    model::{
        Finding, NodeLoad, NodeProfile, NodeRecord, NodeStatus, NodeTotals, PoolProfile, Severity,
    },
    route::Selection,
    store::{Acquired, HeldLock, LockInfo},
};

// Errors.
#[doc(inline)]
pub use ratchet_core::{InvalidInput, Result, SchemaProblem, StoreError, StoreErrorKind};

#[cfg(feature = "testing")]
#[doc(inline)]
pub use ratchet_core::testing;
#[doc(inline)]
pub use ratchet_core::{limits, metrics};

/// Items that the code generated by [`job`](macro@job) uses.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod macro_support {
    pub use serde;

    /// Maps a `JobResult` to the type of its value.
    pub trait Returned {
        /// Type of the value.
        type Output;
    }

    impl<T> Returned for crate::JobResult<T> {
        type Output = T;
    }
}

/// Settings from the file `ratchet.toml` and from environment variables.
#[cfg(feature = "config")]
pub mod config {
    pub use ratchet_config::*;
}

/// HTTP access to Ratchet: health probes, the cluster, jobs, metrics and a dashboard.
#[cfg(feature = "http")]
pub mod http {
    pub use ratchet_http::*;
}

// The backends. Their table is in `backends`.
#[cfg(feature = "mongo")]
pub mod mongo;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "object")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlserver")]
pub mod sqlserver;

#[cfg(all(test, not(feature = "cron")))]
mod tests {
    use crate::{Definition, InvalidInput, Name, NewJob, Recurring, Schedule};

    fn names_the_feature(error: &InvalidInput) {
        assert_eq!(error.field(), "cron");
        assert!(error.to_string().contains("feature `cron`"), "{error}");
    }

    #[test]
    fn a_cron_schedule_names_the_missing_feature() {
        names_the_feature(&Schedule::cron("0 3 * * *", "Europe/Berlin").unwrap_err());
        let declared = Recurring::cron("0 3 * * *").job(NewJob::new("mail", &1));
        names_the_feature(&declared.named("nightly").check().unwrap_err());
    }

    #[test]
    fn so_does_a_stored_definition_with_one() {
        let name = Name::new("name", "nightly").unwrap();
        let hourly = Recurring::every(std::time::Duration::from_secs(3_600));
        let hourly = hourly.job(NewJob::new("mail", &1)).named("nightly").check();
        let text = hourly.unwrap().to_stored().unwrap();
        let interval = r#"{"every":{"millis":3600000}}"#;
        assert!(text.contains(interval), "{text}");
        let cron = r#"{"cron":{"expression":"0 3 * * *","zone":"UTC"}}"#;
        let text = text.replace(interval, cron);
        names_the_feature(&Definition::from_stored(name, &text).unwrap_err());
    }
}
